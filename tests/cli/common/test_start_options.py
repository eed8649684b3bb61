"""Settings of a node as options of `node start`."""

from dataclasses import fields
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedchain.cli.common.start_options import GROUPS
from fedchain.cli.main import app
from fedchain.files.field_texts import field_texts
from fedchain.node.config import NodeConfig
from tests.support.cli_node import refused


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


@pytest.mark.parametrize(
    ("option", "said"),
    [("listen", "listen is '', which is not of the form"), ("key", "key is missing"), ("data", "data is missing")],
)
def test_an_option_that_is_empty_is_not_taken_for_one_that_was_not_given(
    tmp_path: Path, option: str, said: str
) -> None:
    (tmp_path / "node.toml").write_text('genesis = "a"\nkey = "b"\ndata = "c"\nlisten = "/ip4/127.0.0.1/tcp/0"\n')
    assert said in refused("node", "start", tmp_path / "node.toml", f"--{option}", "")
