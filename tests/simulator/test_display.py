"""Output of a simulation: a legend of the columns that are there, and all of it on a narrow terminal, too."""

import io

import pytest
from rich.console import Console as RichConsole

from fedchain.simulator.display import Display, round_table, summary
from fedchain.simulator.engine.measurement import RoundMetrics
from fedchain.simulator.engine.outcome import Outcome
from fedchain.simulator.scenario import load_scenario

LOCAL = RoundMetrics(round=1, height=1, virtual_s=5.0, taa=0.91667, tal=0.125, test_accuracy=0.25, posts=12_345)
SHARED = RoundMetrics(round=1, height=1, virtual_s=5.0, taa=0.91667, tal=0.125, taa_received=0.5, epsilon=1.25)


def shown(renderable: object, width: int) -> str:
    console = RichConsole(width=width, file=io.StringIO(), record=True)
    console.print(renderable, crop=False)
    return console.export_text()


def test_the_legend_names_columns_that_are_there_and_no_other() -> None:
    scenario = load_scenario(None, {"peers": 3})
    local, shared = (shown(round_table([row], scenario), 200) for row in (LOCAL, SHARED))
    assert "dfpl on digits: 3 peers, seed 0" in local
    assert "whole test set" in local
    assert "aggr" not in local
    assert "epsilon" not in local
    assert "aggr.: of the aggregated model" in shared
    assert "epsilon: the largest of the peers'" in shared
    assert "whole test set" not in shared


@pytest.mark.parametrize("width", [40, 60, 80])
def test_numbers_of_rounds_are_never_cut(width: int) -> None:
    row = RoundMetrics(
        round=1, height=1, virtual_s=5.0, taa=0.91, tal=0.125, taa_received=0.82, test_accuracy=0.73, epsilon=1.25
    )
    text = shown(round_table([row], load_scenario(None, {"peers": 3})), width)
    assert "…" not in text
    assert {"91.00", "0.125", "82.00", "73.00", "1.25"} <= {*text.split()}
    assert max(map(len, text.splitlines())) <= width


def test_hashes_of_a_run_are_whole_on_any_terminal() -> None:
    outcome = Outcome([LOCAL], {}, "aa" * 32, "bb" * 32, "cc" * 32, 15.0, 42, ["a lie", "and another"], {})
    for width in (40, 80):
        text = shown(summary(outcome, "runs/x", 0.0), width)
        assert {"aa" * 32, "bb" * 32, "cc" * 32, "runs/x"} <= {*text.split()}
        assert "a lie; and another" in " ".join(text.split())


def test_who_was_skipped_is_named() -> None:
    outcome = Outcome([LOCAL], {}, "aa" * 32, "bb" * 32, "cc" * 32, 15.0, 42, [], {})
    assert "skipped" not in shown(summary(outcome, "runs/x", 0.0), 200)
    outcome.skipped = ["peer 0, round 1: first", "peer 2, round 1: nothing of peer 1 is used"]
    text = " ".join(shown(summary(outcome, "runs/x", 0.0), 200).split())
    assert "2 times, the last: peer 2, round 1: nothing of peer 1 is used" in text


def test_the_rounds_that_are_shown_end_where_members_move_the_end() -> None:
    moved = [{"round": 2, "kind": "amend", "values": {"rounds": 12}}]
    console = RichConsole(width=80, file=io.StringIO(), record=True)
    Display(console, load_scenario(None, {"peers": 4, "changes": moved})).on_round(LOCAL)
    assert console.export_text().startswith("round 1/12 ")
