"""A plan says whether the bounds hold."""

import json
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedchain.cli.main import app
from fedchain.simulator.planning.plan import plan_rounds, theory_of
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


def test_of_several_numbers_of_rounds_the_best_bound_is_told() -> None:
    theory = a_theory(weight=1.0)
    low, high = (replace(theory.bounds[0], weight_max=limit) for limit in (0.5, 3.0))
    low, high = replace(low, rounds=1, learning_rate_max=-1.0), replace(high, rounds=2, learning_rate_max=0.5)
    several = replace(theory, bounds=(low, high, replace(high, rounds=3, learning_rate_max=0.25)))
    first, *_ = verdicts(several)
    assert first == "Corollary 1 admits lambda = 1 for R = 2, 3, with eta below 0.5 at the most; it is 0.1."
    rising = (replace(low, variation=5.0), replace(high, variation=2.0))
    _, second, _ = verdicts(replace(several, bounds=rising))
    assert "it only says that the loss of a round rises by no more than 2, or for other R some larger number" in second
    assert verdicts(replace(theory, weight=4.0, bounds=(low, high)))[0].startswith(
        "Corollary 1 is vacuous here: lambda = 4 is not below 3, the largest weight"
    )


TINY = """
peers = 3
classes_avg = 2
[hyperparameters]
learning_rate = 0.25
regularizer_weight = 0.125
"""


@pytest.mark.parametrize("proved", [True, False])
def test_the_bounds_are_printed_under_their_equations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proved: bool
) -> None:
    """Limits that admit nothing are no numbers, and the proof is of the paper's loss without momentum alone."""
    constants = replace(a_theory(weight=0.1).constants, first_gradient_square=64.0)
    monkeypatch.setattr("fedchain.simulator.planning.plan.estimate_constants", lambda *given: constants)
    path = tmp_path / "tiny.toml"
    path.write_text(TINY + ('regularizer = "norm"\nmomentum = 0.0\n' if proved else ""), encoding="utf-8")
    given = ("--set", "alpha=1", "--set", "beta=4", "--set", "rounds_max=2")
    text = run(str(path), *given)
    planned = plan_rounds(PAPER, 2)
    theory = theory_of(constants, PAPER, planned, learning_rate=0.25, weight=0.125, target=4.0)
    for row in theory.bounds:
        limits = (row.weight_max, row.weight_max_first, row.learning_rate_max, row.learning_rate_max_first)
        shown = [f"{limit:.3g}" if limit > 0 else "none" for limit in limits]
        assert [str(row.rounds), *shown, f"{row.variation:.3g}"] in [line.split()[:6] for line in text.splitlines()]
    assert "bounds at η = 0.25, λ = 0.125, χ = 4" in text
    assert ("without momentum; here it is only evaluated" in " ".join(text.split())) is not proved


def test_a_limit_that_is_not_above_zero_admits_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    constants = replace(a_theory(weight=0.1).constants, first_gradient_square=0.01)
    monkeypatch.setattr("fedchain.simulator.planning.plan.estimate_constants", lambda *given: constants)
    (tmp_path / "tiny.toml").write_text(TINY, encoding="utf-8")
    text = run(str(tmp_path / "tiny.toml"), "--set", "alpha=1", "--set", "beta=4", "--set", "rounds_max=2")
    assert [line.split()[4] for line in text.splitlines() if line.split()[:1] == ["1"]][-1] == "none"


def test_infinity_is_null_in_json() -> None:
    theory = a_theory(weight=0.1, learning_rate=2.0)
    assert theory.target_floor == inf
    plan = Plan(Scenario(), PAPER, ("given", "given"), plan_rounds(PAPER, 20), [], theory)
    found = json.loads(json.dumps(plan_to_dict(plan), allow_nan=False))["theory"]
    assert found["target_floor"] is None
    assert [row["rounds_needed"] for row in found["bounds"]] == [None] * 20


def test_two_numbers_in_a_row_are_a_list_and_no_range() -> None:
    given = ("--set", "alpha=1", "--set", "beta=4", "--set", "bounds=false")
    assert "left out: R = 21, 22, which leave no local step" in run(*given, "--set", "rounds_max=22")
    assert "left out" not in run(*given, "--set", "rounds_max=20")


def test_nothing_is_measured_for_a_budget_that_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """To measure takes seconds; and a budget that only the measured times make impossible is refused, too."""
    monkeypatch.setattr("fedchain.simulator.planning.plan_report.measure_iteration_s", lambda *given: 50.0)
    short = CliRunner().invoke(app, ["plan", "--t-sum", "40", "--set", "beta=1"])
    said = "fedchain: t_sum is 40 s, but one round of one local step takes alpha + beta = 51 s\n"
    assert (short.exit_code, short.stderr) == (2, said)
    monkeypatch.setattr("fedchain.simulator.planning.plan_report.measure_iteration_s", pytest.fail)
    assert CliRunner().invoke(app, ["plan", "--t-sum", "4", "--set", "beta=4"]).exit_code == 2


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
