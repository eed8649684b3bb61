"""Each field of a genesis document that members agree on has a setting, and the settings' defaults are its own."""

import re
from dataclasses import fields
from typing import Annotated, Any, get_origin

import pytest

from fedchain.chain.genesis import Genesis
from fedchain.chain.membership.change import CHANGES_VERSION
from fedchain.cli.common.settings import rows_of
from fedchain.files.field_texts import field_texts
from fedchain.files.tables import validate
from fedchain.node.config import NodeConfigError
from fedchain.node.founding.consensus import Consensus, Founding
from fedchain.simulator.scenario import Scenario, ScenarioError
from tests.support.paths import DOCS

OTHERWISE = {"name", "created_ms", "members", "learning", "setup", "phases", "aggregator"}
"""Fields that options of their own say, or that follow from the method or from other fields."""


def test_every_field_has_a_setting() -> None:
    found = Consensus(payload_mib_max=1).to_genesis()
    assert {item.name for item in fields(Genesis) if item.init} == OTHERWISE | found.keys()
    by_name = {item.name: item.default for item in fields(Genesis)}
    differ = {name for name, value in found.items() if value != by_name[name]}
    assert differ == {"initial_bits", "payload_size_max", "retention_blocks", "version"}


def test_the_protocol_says_where_a_simulation_founds_otherwise() -> None:
    by_name = {item.name: item.default for item in fields(Genesis)}
    found = Scenario().to_genesis()
    differ = {name: value for name, value in found.items() if value != by_name[name]}
    assert differ.keys() == {"initial_bits", "inline_size_max", "phase_timeout_ms", "rounds", "version"}
    page = (DOCS / "protocol.md").read_text(encoding="utf-8")
    said = re.findall(r"`(\w+)` (\d[\d ]*)", page.split("The simulator's own are")[1].split("as there.")[0])
    assert {name: int(number.replace(" ", "")) for name, number in said} == {
        name: differ[name] for name in ("inline_size_max", "phase_timeout_ms", "rounds", "version")
    }


def test_a_number_of_every_setting_has_a_range_and_its_default_is_in_it() -> None:
    validate(Consensus, Consensus(), "it", ValueError)
    for item in fields(Consensus):
        assert type(item.default) in (bool, str) or get_origin(item.type) is Annotated, item.name


def test_what_set_takes_is_listed_with_its_range() -> None:
    rows = {row.name: row for row in rows_of(Consensus)}
    assert rows["inline_kib_max"].text.endswith(" announces it. [between 0 and 256]")
    assert (rows["fault_model"].choices, rows["centralized"].choices) == (("byzantine", "crash"), ())


def test_a_scenario_has_the_same_settings_and_says_the_same_of_them() -> None:
    known, said = field_texts(Consensus), field_texts(Scenario)
    assert {name for name in known if said[name] != known[name]} == {
        "inline_kib_max",
        "mining_attempts",
        "retention_blocks",
        "rounds",
    }
    assert Scenario(inline_kib_max=3).to_genesis()["inline_size_max"] == 3 * 2**10
    refusal = "scenario vote_timeout_s is 0.0, it must be between 0.001 and 1,000,000"
    with pytest.raises(ScenarioError, match=re.escape(refusal)):
        Scenario(vote_timeout_s=0.0).validate()


@pytest.mark.parametrize(
    "chosen", [{"admission": "quorum"}, {"admission": "sponsors", "sponsors": 2}, {"away_after": 3}, {"version": 2}]
)
def test_members_may_change_unless_a_founder_wants_version_2(chosen: dict[str, Any]) -> None:
    found = Consensus(**chosen).to_genesis()
    assert found["version"] == chosen.get("version", CHANGES_VERSION)
    assert {name: getattr(found[name], "value", found[name]) for name in chosen} == chosen


def test_data_have_a_part_for_each_member_that_there_may_ever_be() -> None:
    assert Founding().count_parts(4) == 4
    assert Founding(parts=4).count_parts(4) == 4
    assert Founding(parts=9, admission="quorum").count_parts(4) == 9
    with pytest.raises(NodeConfigError, match="parts is 3, it must be at least 4"):
        Founding(parts=3, admission="quorum").count_parts(4)
    with pytest.raises(NodeConfigError, match="parts is 9, it must be 4: in a closed federation nobody joins"):
        Founding(parts=9).count_parts(4)
