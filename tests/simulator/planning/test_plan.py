"""``fedchain plan``: times from a clock that tests hold, the paper's table, plain verdicts, one line for bad input."""

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedchain.cli.main import app
from fedchain.learning.convergence.theory import Budget, learning_rate_max, variation_bound
from fedchain.learning.exceptions import ConfigurationError
from fedchain.simulator.planning.plan import (
    TIMED_STEPS,
    expected_mining_s,
    measure_hashes_per_s,
    measure_iteration_s,
    plan_rounds,
)
from fedchain.simulator.reproduction.experiment import load_experiment
from fedchain.simulator.scenario import Scenario
from tests.support.simulator.planned import PAPER, a_theory, run

TINY = """
name = "tiny"
peers = 3
classes_avg = 2
proof_function = "sha256d"
mining_attempts = 4
"""


def ticking(seconds: float) -> Any:
    """A clock on which each look takes this long."""
    return itertools.count(0.0, seconds).__next__


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY, encoding="utf-8")
    return str(path)


def test_the_papers_table_and_its_quirk() -> None:
    rows = {row.rounds: row for row in plan_rounds(PAPER, 25)}
    assert {r: rows[r].local_steps for r in (2, 4, 5, 6, 8, 10)} == {2: 46, 4: 21, 5: 16, 6: 12, 8: 8, 10: 6}
    assert list(rows) == list(range(1, 21)), "from 21 rounds on mining leaves no step"
    six = rows[6]
    assert (six.mined_s, six.trained_s) == (24, 72)
    assert six.left_s == 76, "what Tables III and IV print as E·alpha·R; with the floor of Eq. 11 it is 72"
    assert rows[5].trained_s == rows[5].left_s == 80


def test_a_budget_without_a_round_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="t_sum is 4 s"):
        plan_rounds(Budget(total_s=4.0, iteration_s=1.0, mining_s=4.0), 10)


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("dfpl", {}),
        ("fedavg", {}),
        ("fedavg", {"gradient_noise": 1.0, "epsilon_budget": 1e-3}),
        ("dfpl", {"prototype_noise": 1.0, "gradient_noise": 1.0}),
        ("fedph", {"encryption": "threshold", "noise": "split", "class_examples_min": 5}),
        ("fedgkt", {}),
    ],
)
def test_alpha_is_the_time_from_one_step_to_the_next(method: str, settings: dict[str, Any]) -> None:
    """Also with noise, whatever the budget for what is posted, and where prototypes are encrypted behind the steps.

    Where posts list parts, a plan ended in a traceback.
    """
    scenario = Scenario(peers=3, method=method, hyperparameters={"local_epochs": 3, **settings})
    assert measure_iteration_s(scenario, ticking(0.25)) == 0.25


def test_a_method_whose_models_take_no_steps_one_by_one_needs_a_stated_alpha(tmp_path: Path) -> None:
    path = tmp_path / "fedintr.toml"
    path.write_text(TINY + 'method = "fedintr"\n', encoding="utf-8")
    refused = CliRunner().invoke(app, ["plan", str(path)])
    said = "fedchain: fedintr does not train its model step by step; state alpha\n"
    assert (refused.exit_code, refused.stderr) == (2, said)
    assert "fedintr on digits" in run(str(path), "--set", "alpha=1", "--set", "beta=4")


def test_alpha_is_the_median_of_the_rounds_after_the_warm_up() -> None:
    ticks = itertools.accumulate(seconds for seconds in (9.0, 1.0, 5.0, 2.0, 4.0, 3.0) for _ in range(TIMED_STEPS))
    assert measure_iteration_s(Scenario(peers=3, method="fedavg"), ticks.__next__) == pytest.approx(3.0)


def test_the_hash_rate_is_the_median_of_the_measurements_after_the_warm_up() -> None:
    ticks = itertools.accumulate((100.0, 5.0, 1.0, 4.0, 2.0, 3.0), initial=0.0)
    assert measure_hashes_per_s("scrypt", ticks.__next__) == pytest.approx(128 / 3.0)


def test_a_step_alone_has_limits_of_its_own() -> None:
    """Eqs. 25 and 26 take the first gradient, whose square is 8, in place of those of the whole round."""
    theory = a_theory(weight=0.1)
    for row in theory.bounds:
        assert row.weight_max_first == pytest.approx(4 * row.rounds / (100 - 4 * row.rounds))
        first = learning_rate_max(theory.constants, PAPER, row.rounds, weight=0.1, gradient_sum=8.0)
        assert row.learning_rate_max_first == first


def test_the_rate_and_the_weight_are_each_in_its_place() -> None:
    theory = a_theory(weight=0.5, learning_rate=0.25)
    for row in theory.bounds:
        whole = 4.0 * PAPER.real_steps(row.rounds)
        rate, weight = {"learning_rate": 0.25}, {"weight": 0.5}
        assert row.learning_rate_max == learning_rate_max(
            theory.constants, PAPER, row.rounds, **weight, gradient_sum=whole
        )
        assert row.variation == variation_bound(
            theory.constants, PAPER, row.rounds, **rate, **weight, gradient_sum=whole
        )


@pytest.mark.parametrize(("chi", "target"), [((), 4.0), (("--set", "chi=3"), 3.0)])
def test_corollary_2_is_asked_about_chi_or_about_what_was_measured(
    tiny: str, chi: tuple[str, ...], target: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    constants = a_theory(weight=0.1).constants
    monkeypatch.setattr("fedchain.simulator.planning.plan.estimate_constants", lambda *given: constants)
    given = (tiny, "--set", "alpha=1", "--set", "beta=4", "--set", "rounds_max=3")
    found = json.loads(run(*given, *chi, "--json"))["theory"]
    assert (found["target"], len(found["bounds"])) == (target, 3)
    shown = " ".join(run(*given, *chi).split())
    assert f"χ = {target:g}" in shown
    assert f"promises a mean squared gradient below chi = {target:g} for R < " in shown


def test_beta_is_the_hashes_of_a_block_over_the_hash_rate_of_all() -> None:
    rate = measure_hashes_per_s("scrypt", ticking(0.5))
    assert rate == 256
    scenario = Scenario(peers=20, mining_attempts=1024)
    assert expected_mining_s(scenario, rate) == pytest.approx(1024 / (256 * 20), rel=1e-4)
    fixed = Scenario(peers=20, mining_attempts=1024, aggregator="fixed", centralized=True)
    assert expected_mining_s(fixed, rate) == pytest.approx(4.0, rel=1e-4)


def test_the_weight_limit_is_the_same_for_every_number_of_rounds() -> None:
    """Q and the drift are about the same E: rounded down in one of them, the limit would jump with R."""
    limits = [row.weight_max for row in a_theory(weight=0.1).bounds]
    assert limits == pytest.approx([4.0 / (0.5 * 4.0)] * 20)  # mean ||grad L||² / (L2 G)


@pytest.mark.long
@pytest.mark.slow
def test_a_plan_with_bounds_and_its_search_in_seconds(tiny: str, tmp_path: Path) -> None:
    search = tmp_path / "search.toml"
    command = ["plan", tiny, "--t-sum", "12", "--set", "alpha=1", "--set", "beta=2", "--set", "rounds_max=3", "--json"]
    finished = subprocess.run(
        [sys.executable, "-m", "fedchain", *command, "--out", str(search)],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert finished.returncode == 0, finished.stderr
    found = json.loads(finished.stdout)
    assert [(row["rounds"], row["local_steps"]) for row in found["rounds"]] == [(1, 10), (2, 4), (3, 2)]
    assert found["alpha_from"] == "given"
    assert found["theory"]["constants"]["smoothness"] > 0
    assert len(found["theory"]["verdicts"]) == 3
    result = CliRunner().invoke(app, ["reproduce", str(search), "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert "best by loss" in result.stdout
    assert len(list((tmp_path / "out" / "results").glob("*.json"))) == 3
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("results", "table.md", "table.csv", "table.tex", "table.png", "table.pdf", "rounds.csv")
    }


def test_the_search_is_written_as_an_experiment(tiny: str, tmp_path: Path) -> None:
    search = tmp_path / "search.toml"
    told = run(
        tiny,
        "--set",
        "alpha=1",
        "--set",
        "beta=4",
        "--set",
        "rounds_max=6",
        "--set",
        "bounds=false",
        "--set",
        "seeds=2",
        "--out",
        str(search),
    )
    assert told.splitlines()[-1] == f"simulate every R: fedchain reproduce {search}"
    experiment = load_experiment(search)
    assert (experiment.name, experiment.seeds) == ("search", (0, 1))
    assert [cell.hyperparameters["local_steps"] for cell in experiment.cells] == [96, 46, 29, 21, 16, 12]
    assert experiment.scenario["name"] == "tiny"
    refused = CliRunner().invoke(app, ["plan", tiny, "--out", str(search)])
    assert refused.stderr.strip() == f"fedchain: {search} exists already; name another file with --out"


def test_what_is_not_given_is_measured(tiny: str) -> None:
    found = json.loads(run(tiny, "--set", "rounds_max=2", "--set", "bounds=false", "--json"))
    assert found["alpha_from"].startswith("measured: a step of dfpl on digits")
    assert found["beta_from"].startswith("measured: 4 sha256d hashes")
    assert found["beta_from"].endswith(" per second and miner, 3 miners")
    assert found["budget"]["iteration_s"] > 0
    assert found["budget"]["mining_s"] > 0


def test_an_aggregator_that_mines_alone_is_one_miner(tmp_path: Path) -> None:
    """It was "1 miners"."""
    path = tmp_path / "alone.toml"
    path.write_text(TINY + 'aggregator = "fixed"\ncentralized = true\n', encoding="utf-8")
    found = json.loads(run(str(path), "--set", "alpha=1", "--set", "bounds=false", "--json"))
    assert found["beta_from"].endswith(" per second and miner, 1 miner")


def test_other_methods_are_planned_without_bounds(tmp_path: Path) -> None:
    path = tmp_path / "fedavg.toml"
    path.write_text(TINY + 'method = "fedavg"\n', encoding="utf-8")
    assert "no bounds: the corollaries are about dfpl's loss" in run(str(path), "--set", "alpha=1", "--set", "beta=4")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--set", "alpha=0"), "alpha is 0.0 s, it must be above 0"),
        (("--set", "alpha=nan"), "alpha is nan s"),
        (("--set", "beta=-1"), "beta is -1.0 s"),
        (("--t-sum", "0"), "t_sum is 0.0 s"),
        (
            ("--t-sum", "4", "--set", "alpha=1", "--set", "beta=4"),
            "t_sum is 4 s, but one round of one local step takes",
        ),
        (("--set", "chi=0"), "chi is 0.0, it must be above 0"),
        (("--set", "mining_attempts=1"), "mining_attempts is 1"),
        (("--set", "peers=4"), "--set peers: it stands in a scenario's file alone"),
        (("--set", "rounds=4"), "unknown setting or hyper-parameter of dfpl 'rounds'; did you mean 'rounds_max'?"),
        (("none.toml",), "none.toml cannot be read"),
        (("--out", "somewhere"), "--out is 'somewhere', it must be the file of an experiment, which ends in .toml"),
        (
            ("--set", "alpha=1", "--set", "beta=4", "--set", "bounds=false", "--out", "/dev/null/x.toml"),
            "x.toml cannot be written",
        ),
    ],
)
def test_bad_input_is_one_line(arguments: tuple[str, ...], words: str) -> None:
    result = CliRunner().invoke(app, ["plan", *arguments])
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.strip().splitlines()
    assert words in line


def test_an_unknown_field_of_the_scenario_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text("peeers = 3\n", encoding="utf-8")
    result = CliRunner().invoke(app, ["plan", str(path)])
    assert result.exit_code == 2
    (line,) = result.stderr.strip().splitlines()
    assert "no key 'peeers'; did you mean 'peers'" in line
