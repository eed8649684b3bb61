"""Settings of a node as options of `node start`."""

from dataclasses import fields

from fedchain.cli.common.start_options import GROUPS
from fedchain.files.field_texts import field_texts
from fedchain.node.config import NodeConfig


def test_every_setting_is_an_option_with_a_help_text_in_one_group() -> None:
    grouped = [name for names in GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(item.name for item in fields(NodeConfig))
    assert set(grouped) == set(field_texts(NodeConfig))
