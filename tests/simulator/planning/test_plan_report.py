"""A plan says whether the bounds hold."""

import json
from math import inf
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedchain.cli.main import app
from fedchain.simulator.planning.plan import plan_rounds
from fedchain.simulator.planning.plan_report import Plan, plan_to_dict, verdicts
from fedchain.simulator.scenario import Scenario
from tests.support.simulator.planned import PAPER, a_theory, run


def test_bounds_that_hold_are_said_to() -> None:
    theory = a_theory(weight=0.1)
    first, second, third = verdicts(theory)
    # 2·(384 − 0.1·0.5·4·96) / (2·(384 + 0.5·96)) at R = 1
    assert first == "Corollary 1 admits lambda = 0.1 for R = 1 to 20, with eta below 0.844 at the most; it is 0.1."
    assert second == "Theorem 1 promises a falling loss at eta = 0.1 for R = 1 to 20."
    # rate: 0.18·4 − 0.1·(2·0.1·0.5 + 2·0.1·0.5·4) = 0.67; (100 − 20 / 0.67) / 4
    assert theory.rounds_limit == pytest.approx((100 - 20 / 0.67) / 4)
    # Eq. 29: with the E = 2 of R = 16 it takes more than 14.9 rounds, with the E = 1 of R = 17 more than 29.9
    assert third.endswith("below chi = 4 for R < 17.5: R = 1 to 16 reach it.")


def test_bounds_that_say_nothing_are_said_to() -> None:
    first, second, third = verdicts(a_theory(weight=10.0, target=0.1))
    assert first.startswith("Corollary 1 is vacuous here: lambda = 10 is not below 2,")
    assert second.startswith("Theorem 1 is vacuous here")
    # chi must exceed (2·0.1·0.5 + 2·10·0.5·4) / (2 − 0.2)
    assert "for no R; it needs chi above 22.3" in third
    assert "eta = 2 is not below 2 / L1 = 1" in verdicts(a_theory(weight=0.1, learning_rate=2.0))[2]


def test_infinity_is_null_in_json() -> None:
    theory = a_theory(weight=0.1, learning_rate=2.0)
    assert theory.target_floor == inf
    plan = Plan(Scenario(), PAPER, ("given", "given"), plan_rounds(PAPER, 20), [], theory)
    found = json.loads(json.dumps(plan_to_dict(plan), allow_nan=False))["theory"]
    assert found["target_floor"] is None
    assert [row["rounds_needed"] for row in found["bounds"]] == [None] * 20


def test_the_table_is_printed_and_infeasible_rounds_are_named() -> None:
    text = run("--set", "alpha=1", "--set", "beta=4", "--set", "rounds_max=24", "--set", "bounds=false")
    assert [line.split() for line in text.splitlines() if line.split()[:1] == ["6"]] == [["6", "12", "24", "72", "76"]]
    assert "left out: R = 21 to 24, which leave no local step (E < 1)" in text


def test_a_full_disk_leaves_no_half_of_an_experiment(tmp_path: Path) -> None:
    (tmp_path / "search.toml.unfinished").symlink_to("/dev/full")
    given = ("--set", "alpha=1", "--set", "beta=4", "--set", "bounds=false")
    full = CliRunner().invoke(app, ["plan", *given, "--out", str(tmp_path / "search.toml")])
    said = f"fedchain: {tmp_path / 'search.toml'} cannot be written: No space left on device\n"
    assert (full.exit_code, full.stderr) == (2, said)
    assert not [*tmp_path.iterdir()]
