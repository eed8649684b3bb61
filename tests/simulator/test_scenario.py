"""Scenarios: what a file says is what is run, and what cannot be run is refused in one clear line."""

import math
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import LearningError
from fedchain.simulator.disturbances import Clock, Fault
from fedchain.simulator.scenario import Scenario, ScenarioError, field_help, load_scenario, scenario_from_dict

FAULTS = (Fault(at_s=3.5, kind="crash", peers=(0, 2)), Fault(at_s=9.0, kind="slow", peers=(1,), factor=2.5))


def test_a_scenario_survives_its_file(tmp_path: Path) -> None:
    scenario = Scenario(name="x", peers=5, loss=0.25, hyperparameters={"local_steps": 3}, faults=FAULTS)
    path = tmp_path / "x.toml"
    path.write_text(tomli_w.dumps(scenario.to_dict()), encoding="utf-8")
    assert load_scenario(path, {}) == scenario


def test_a_file_says_where_nothing_is_trained_ahead() -> None:
    assert "train_ahead" not in Scenario().to_dict()
    named = scenario_from_dict({"train_ahead": False})
    assert not scenario_from_dict(named.to_dict()).train_ahead


def test_a_file_says_how_often_models_are_measured_on_their_own_test_sets() -> None:
    assert "evaluate_every" not in Scenario().to_dict()
    named = scenario_from_dict({"evaluate_every": 3})
    assert scenario_from_dict(named.to_dict()).evaluate_every == 3


def test_a_file_names_the_device_where_it_is_no_processor() -> None:
    assert "device" not in Scenario().to_dict()
    named = scenario_from_dict({"device": "cuda:1"})
    assert scenario_from_dict(named.to_dict()) == named
    assert named.to_dict()["device"] == "cuda:1"


def test_every_field_of_every_table_has_help() -> None:
    for kind in (Scenario, Fault):
        assert set(field_help(kind)) == {item.name for item in fields(kind)}
        assert all(field_help(kind).values())


def test_learning_is_chosen_as_everywhere_else() -> None:
    shared = {item.name for item in fields(LearningConfig)} & {item.name for item in fields(Scenario)}
    assert {item.name for item in fields(LearningConfig)} - shared == {
        "clients",
        "dataless",
        "material",
        "more_shapes",
        "shapes",
        "weights_hash",
    }
    for name in shared - {"hyperparameters"}:
        assert getattr(Scenario(), name) == getattr(LearningConfig(), name)
        assert name == "seed" or field_help(Scenario)[name] == field_help(LearningConfig)[name]


def test_an_option_overrides_the_file_and_the_file_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text("peers = 7\nrounds = 3\n", encoding="utf-8")
    scenario = load_scenario(path, {"peers": 9})
    assert (scenario.peers, scenario.rounds, scenario.seed) == (9, 3, Scenario().seed)


def test_an_unknown_key_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(ScenarioError, match=r"no key 'peeers'; did you mean 'peers'\?"):
        scenario_from_dict({"peeers": 3})
    with pytest.raises(ScenarioError, match=r"faults\[0\] has no key 'when'; known are at_s, kind, peers, factor"):
        scenario_from_dict({"faults": [{"when": 3}]})


def test_a_hyper_parameter_among_the_settings_of_a_file_is_told_its_place(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text("peers = 7\nlearning_rate = 0.1\n", encoding="utf-8")
    with pytest.raises(ScenarioError, match=r"^learning_rate is a hyper-parameter of fedavg: it stands below \[hyp"):
        load_scenario(path, {"method": "fedavg"})
    path.write_text("leerning_rate = 0.1\n", encoding="utf-8")
    with pytest.raises(ScenarioError, match=r"^scenario has no key 'leerning_rate'"):
        load_scenario(path, {})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"peers": "5"}, "peers is '5', it must be of type int"),
        ({"peers": 5.0}, "must be of type int"),
        ({"peers": True}, "must be of type int"),
        ({"loss": "a lot"}, "must be of type float"),
        ({"centralized": 1}, "must be of type bool"),
        ({"name": 3}, "must be of type str"),
        ({"hyperparameters": 3}, "must be a table"),
        ({"faults": 3}, "must be an array"),
        ({"faults": [3]}, "must be a table"),
        ({"faults": [{"at_s": 1.0}]}, "lacks the key 'kind'"),
        ({"faults": [{"at_s": 1.0, "kind": "crash", "peers": 1}]}, "must be"),
        ({"faults": [{"at_s": 1.0, "kind": "crash", "peers": ["a"]}]}, "must be"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        scenario_from_dict(values)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_integer_stands_for_a_float() -> None:
    assert isinstance(scenario_from_dict({"mining_s": 4}).mining_s, float)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("peers", 0),
        ("peers", 10_001),
        ("rounds", 0),
        ("workers", 0),
        ("workers", 65),
        ("seed", -1),
        ("test_every", -1),
        ("evaluate_every", -1),
        ("iteration_s", -0.1),
        ("iteration_s", float("nan")),
        ("mining_s", 0.0),
        ("mining_attempts", 1),
        ("hash_rates", [1.0] * 21),
        ("hash_rates", [1.0, 0.0]),
        ("proof_function", "md5"),
        ("aggregator", "somebody"),
        ("vote_quorum_percent", 49),
        ("vote_quorum_percent", 100),
        ("contribution_quorum", -1),
        ("contribution_quorum", 21),
        ("contributors_per_round", 21),
        ("committee_size", 21),
        ("inactive_after", 0),
        ("phase_timeout_s", 0.0),
        ("degree", 20),
        ("degree", -1),
        ("delay_min_ms", 101),
        ("delay_max_ms", -1),
        ("loss", 1.0),
        ("loss", -0.1),
        ("loss", float("nan")),
        ("replay", 1.1),
        ("bandwidth_mbit_s", -1.0),
        ("max_virtual_s", 0.0),
        ("max_virtual_s", 1e10),
        ("method", "dfpll"),
        ("dataset", "imagenet"),
        ("model", "gpt"),
        ("partition", "fair"),
        ("classes_avg", 11),
        ("classes_std", -1),
        ("shots", 0),
        ("test_shots", 0),
        ("dirichlet_alpha", 0.0),
        ("hyperparameters", {"local_stepz": 3}),
        ("hyperparameters", {"local_steps": 0}),
        ("centralized", True),
        ("faults", [{"at_s": -1.0, "kind": "crash", "peers": [0]}]),
        ("faults", [{"at_s": 1.0, "kind": "crahs", "peers": [0]}]),
        ("faults", [{"at_s": 1.0, "kind": "crash", "peers": [20]}]),
        ("faults", [{"at_s": 1.0, "kind": "crash"}]),
        ("faults", [{"at_s": 1.0, "kind": "slow", "peers": [0], "factor": 0.0}]),
    ],
)
def test_an_impossible_value_is_refused_in_one_line(name: str, value: Any) -> None:
    with pytest.raises((ScenarioError, LearningError)) as caught:
        load_scenario(None, {name: value})
    assert "\n" not in str(caught.value)
    assert str(caught.value)


def test_a_file_that_is_missing_or_not_toml_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="cannot be read"):
        load_scenario(tmp_path / "none.toml", {})
    with pytest.raises(ScenarioError, match="is a folder, not a scenario's file; --out names the folder of a run"):
        load_scenario(tmp_path, {})
    path = tmp_path / "bad.toml"
    path.write_bytes(b"peers = = 3")
    with pytest.raises(ScenarioError, match="is not TOML"):
        load_scenario(path, {})
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ScenarioError, match="is not TOML"):
        load_scenario(path, {})


def test_the_default_scenario_is_possible() -> None:
    Scenario().validate()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, ("digits", "digits")),
        ({"task": "folder/mytask.py:load"}, ("mytask", "own")),
        ({"task": "package.module:load"}, ("module", "own")),
        ({"task": "-.py:load"}, ("own", "own")),
        ({"task": "mytask:load", "name": "mine"}, ("mine", "own")),
        ({"task": "mytask:load", "dataset": "mnist"}, ("mytask", "mnist")),
    ],
)
def test_a_task_brings_its_own_data_and_its_name(values: dict[str, str], expected: tuple[str, str]) -> None:
    scenario = scenario_from_dict(values)
    assert (scenario.name, scenario.dataset) == expected


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [{"round": 3, "kind": "join", "peers": [5]}, {"round": 3, "kind": "leave", "peers": [5]}],
            r"changes\[1\]: leave of peer 5 in round 3, but it joins in round 3",
        ),
        (
            [{"round": 2, "kind": "rekey", "peers": [5]}, {"round": 3, "kind": "join", "peers": [5]}],
            r"changes\[0\]: rekey of peer 5 in round 2, but it joins in round 3",
        ),
        (
            [{"round": 2, "kind": "leave", "peers": [0, 1]}, {"round": 2, "kind": "rekey", "peers": [1]}],
            r"changes\[1\]: another change of peer 1 in round 2",
        ),
        (
            [{"round": 3, "kind": "join", "peers": [5]}, {"round": 4, "kind": "rekey", "peers": [5]}],
            r"changes\[1\]: rekey of peer 5 in round 4, but its join of round 3 holds from round 5 on",
        ),
        (
            [{"round": 4, "kind": "leave", "peers": [1]}, {"round": 2, "kind": "leave", "peers": [1]}],
            r"changes\[0\]: leave of peer 1 in round 4, but it leaves in round 2",
        ),
        (
            [{"round": 2, "kind": "leave", "peers": [1]}, {"round": 4, "kind": "recover", "peers": [1]}],
            r"changes\[1\]: recover of peer 1 in round 4, but it leaves in round 2",
        ),
        (
            [{"round": 2, "kind": "remove", "peers": [1]}, {"round": 3, "kind": "recover", "peers": [1]}],
            r"changes\[1\]: recover of peer 1 in round 3, but it is removed in round 2",
        ),
        ([{"round": 3, "kind": "back", "peers": [1]}], r"changes\[0\]: back of peer 1 in round 3, but it is not away"),
        (
            [{"round": 2, "kind": "away", "peers": [1]}, {"round": 3, "kind": "back", "peers": [1]}],
            r"changes\[1\]: back of peer 1 in round 3, but its away of round 2 holds from round 4 on",
        ),
        (
            [{"round": 2, "kind": "away", "peers": [1]}, {"round": 4, "kind": "away", "peers": [1]}],
            r"changes\[1\]: away of peer 1 in round 4, but it is away already",
        ),
        (
            [{"round": 2, "kind": "recover", "peers": [1]}, {"round": 4, "kind": "rekey", "peers": [1]}],
            r"changes\[1\]: rekey of peer 1 in round 4, but it has another key since round 2: .* in round 5",
        ),
        (
            [{"round": 10, "kind": "leave", "peers": [1]}],
            r"changes\[0\]: leave in round 10, but round 9 is the last one",
        ),
        (
            [{"round": 2, "kind": "amend", "values": {"rounds": 5}}, {"round": 6, "kind": "leave", "peers": [1]}],
            r"changes\[1\]: leave in round 6, but round 5 is the last one",
        ),
        (
            [{"round": 2, "kind": "leave", "peers": [1, 2]}],
            "leave of peer 2 in round 2 leaves 3 members, but 4 have to",
        ),
        (
            [{"round": number, "kind": "amend", "values": {"vote_timeout_ms": 500}} for number in (1, 2)],
            r"changes\[1\]: another amendment in round 2",  # nothing is proposed before the first block
        ),
        (
            [{"round": 2, "kind": "amend", "values": {"vote_timeout_ms": 500}, "begin": 3}],
            r"changes\[0\]: begin is 3, but an amendment of round 2 can begin with 4",
        ),
        (
            [{"round": 2, "kind": "amend", "values": {"vote_timeout_ms": -1}}],
            r"changes\[0\]: vote_timeout_ms is -1, it must be a whole number from 0 to 18446744073709551615",
        ),
        (
            [{"round": 2, "kind": "amend", "values": {"rounds": 0}}],
            "last round that changes leave is 0, it must be between 1 and 1000000",  # such a run had no end
        ),
        (
            [{"round": 2, "kind": "amend", "values": {"rounds": 10**7}}],
            "last round that changes leave is 10000000, it must be between 1 and 1000000",
        ),
        (
            [{"round": 2, "kind": "amend", "values": {"rounds": math.inf}}],
            r"changes\[0\]: rounds is inf, it must be a whole number from 0 to 18446744073709551615",
        ),
        (
            [{"round": 2, "kind": "leave", "peers": [1], "reason": 67 * "…"}],
            r"changes\[0\]: reason has 201 bytes, at most 200 are allowed",  # such a run died in round 2
        ),
        ([{"round": 2, "kind": "join", "peers": [5], "reason": 193 * "x"}], "193 bytes, at most 192 are allowed"),
        ([{"round": 2, "kind": "amend", "values": {"admission": 1}}], r"changes\[0\]: admission is no number"),
        ([{"round": 2, "kind": "amend", "values": {"aggregator": 5}}], "aggregator is 5, but there is no such member"),
    ],
)
def test_changes_that_would_be_lost_are_refused(rows: list[dict[str, Any]], message: str) -> None:
    """A node signs one change of itself at a time, and a newcomer has no place before its join is counted."""
    with pytest.raises(ScenarioError, match=message):
        scenario_from_dict({"peers": 5, "rounds": 9, "admission": "quorum", "changes": rows}).validate()


def test_a_run_that_is_there_may_have_changes_that_were_lost() -> None:
    changes = [{"round": 3, "kind": "back", "peers": [1]}]
    scenario_from_dict({"peers": 5, "rounds": 9, "admission": "quorum", "changes": changes}).validate(is_begun=True)


@pytest.mark.parametrize(
    ("table", "row", "message"),
    [
        ("faults", {"at_s": 1.0, "kind": "crash", "peers": [1], "factor": 3.0}, "factor is 3.0, which has no effect"),
        ("faults", {"at_s": 1.0, "kind": "heal", "peers": [1]}, "names peers, which has no effect: heal is for all"),
        (
            "changes",
            {"round": 2, "kind": "leave", "peers": [1], "begin": 5},
            "begin is 5, which has no effect: it is of",
        ),
        ("faults", {"at_s": 1.0, "kind": "slow", "peers": [1]}, "has no effect: factor is 1, and none of its peers is"),
        ("clocks", {"at_s": 1.0, "peers": [1]}, "has no effect: it needs offset_s or drift"),
    ],
)
def test_what_a_table_says_without_an_effect_is_refused(table: str, row: dict[str, Any], message: str) -> None:
    scenario = scenario_from_dict({table: [row], "rounds": 6, "admission": "quorum"})
    with pytest.raises(ScenarioError, match=rf"^{table}\[0\] {message}"):
        scenario.validate()
    scenario.validate(is_begun=True)


def test_a_fault_ends_what_began_before_it_by_time() -> None:
    end, other = Fault(at_s=4.0, kind="slow", peers=(1, 2)), Fault(at_s=5.0, kind="slow", peers=(2,))
    begin = Fault(at_s=3.0, kind="slow", peers=(1,), factor=3.0)
    Scenario(faults=(end, begin)).validate()
    for faults in ((end, begin, other), (end, begin, replace(end, at_s=6.0)), (replace(end, at_s=2.0), begin)):
        with pytest.raises(
            ScenarioError, match=r"^faults\[[02]\] has no effect: factor is 1, and none of its peers is slow"
        ):
            Scenario(faults=faults).validate()
    Scenario(faults=(end, begin, replace(begin, at_s=5.0), replace(end, at_s=6.0))).validate()
    Scenario(clocks=(Clock(peers=(1,), drift=0.1), Clock(peers=(1,), offset_s=-1.0))).validate()
