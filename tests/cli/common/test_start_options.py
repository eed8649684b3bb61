"""Settings of a node as options of `node start`."""

from dataclasses import fields

from typer.testing import CliRunner

from fedchain.cli.common.start_options import GROUPS
from fedchain.cli.main import app
from fedchain.files.field_texts import field_texts
from fedchain.node.config import NodeConfig


def test_every_setting_has_a_help_text_and_each_option_is_a_setting() -> None:
    assert {item.name for item in fields(NodeConfig)} == field_texts(NodeConfig).keys()
    named = [name for names in GROUPS.values() for name in names]
    assert set(named) <= field_texts(NodeConfig).keys()
    assert len(set(named)) == len(named)


def test_the_settings_of_a_node_are_listed_and_no_hyper_parameters_are_promised() -> None:
    lines = CliRunner().invoke(app, ["node", "start", "--settings"]).stdout.splitlines()
    rows = dict(line.split(maxsplit=1) for line in lines)
    assert rows.keys() == {item.name for item in fields(NodeConfig)}
    assert rows["genesis"].split(maxsplit=1) == ["-", "Genesis document of the federation."]
    assert rows["listen"].split(maxsplit=1) == ["/ip4/0.0.0.0/tcp/4001", "Address to listen on, as a multiaddr."]
    for name in ("start", "check", "join"):
        shown = CliRunner().invoke(app, ["node", name, "--help"]).stdout
        assert "--set NAME=VALUE" in shown
        assert "hyper" not in shown
