"""Settings of a node as options of `node start`."""

from dataclasses import fields

from fedchain.cli.common.start_options import GROUPS
from fedchain.files.field_texts import field_texts
from fedchain.node.config import NodeConfig


def test_every_setting_has_a_help_text_and_each_option_is_a_setting() -> None:
    assert {item.name for item in fields(NodeConfig)} == field_texts(NodeConfig).keys()
    named = [name for names in GROUPS.values() for name in names]
    assert set(named) <= field_texts(NodeConfig).keys()
    assert len(set(named)) == len(named)
