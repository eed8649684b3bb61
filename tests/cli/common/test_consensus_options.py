"""Each field of consensus that members agree on has a setting."""

from dataclasses import fields

from fedchain.chain.genesis import Genesis
from fedchain.cli.common.consensus_options import SETTINGS

OTHERWISE = {"version", "name", "created_ms", "members", "learning", "setup", "phases", "aggregator", "centralized"}
"""Fields that options of their own say, or that follow from the method."""


def test_every_field_is_a_setting() -> None:
    assert {item.name for item in fields(Genesis) if item.init} == OTHERWISE | {setting.field for setting in SETTINGS}
