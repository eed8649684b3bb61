"""``fedchain plan``: measure, apply the theory, show the results, and write the search as an experiment if asked."""

import json
import math
import shlex
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from rich.table import Table

from fedchain.files.spool import write_whole
from fedchain.learning.convergence.theory import Budget, Constants
from fedchain.learning.methods.dfpl import Dfpl
from fedchain.learning.registry import build_method
from fedchain.simulator.planning.options import PlanOptions
from fedchain.simulator.planning.plan import (
    PlannedRounds,
    Theory,
    apply_theory,
    expected_mining_s,
    measure_hashes_per_s,
    measure_iteration_s,
    plan_rounds,
)
from fedchain.simulator.planning.search import build_search
from fedchain.simulator.reproduction.compare import write_experiment
from fedchain.simulator.scenario import Scenario, ScenarioError, field_help
from fedchain.terminal import Console, Fitted
from fedchain.wording import counted


@dataclass(frozen=True, slots=True)
class Plan:
    """All results."""

    scenario: Scenario
    budget: Budget
    origins: tuple[str, str]
    """Origins of alpha and beta, as text."""
    planned: list[PlannedRounds]
    left_out: list[int]
    """Numbers of rounds, up to the largest one considered, that leave no local step."""
    theory: Theory | None


def run_plan(scenario: Scenario, options: PlanOptions, *, as_json: bool) -> None:
    """Make the plan and print it. Raises ScenarioError or LearningError if there is nothing to plan."""
    console = Console(quiet=as_json)
    if options.out is not None and options.out.exists():
        raise ScenarioError(f"{options.out} exists already; name another file with --out")
    budget, origins = choose_budget(scenario, options)
    planned = plan_rounds(budget, options.rounds_max)
    left_out = [rounds for rounds in range(1, options.rounds_max + 1) if rounds > planned[-1].rounds]
    _show_budget(console, scenario, budget, origins, planned, left_out)
    theory = _apply_theory(console, scenario, budget, planned, options)
    if options.out is not None:
        text = write_experiment(build_search(options.out.stem, scenario, budget, planned, options.seeds))
        try:
            write_whole(text, options.out)
        except OSError as error:
            raise ScenarioError(f"{options.out} cannot be written: {error.strerror}") from None
        console.print(f"simulate every R: fedchain reproduce {shlex.quote(str(options.out))}", soft_wrap=True)
    if as_json:
        print(json.dumps(plan_to_dict(Plan(scenario, budget, origins, planned, left_out, theory)), indent=2))


def choose_budget(scenario: Scenario, options: PlanOptions) -> tuple[Budget, tuple[str, str]]:
    """The budget of given times, with measurements in place of missing ones; and the origins of alpha and beta."""
    given = Budget(
        total_s=options.total_s,
        iteration_s=1e-9 if options.alpha is None else options.alpha,
        mining_s=0.0 if options.beta is None else options.beta,
    )
    given.validate()  # before anything is measured
    alpha, beta, origins = options.alpha, options.beta, ["given", "given"]
    if alpha is None:
        alpha = float(f"{measure_iteration_s(scenario, time.perf_counter):.3g}")  # more digits are noise
        origins[0] = f"measured: a step of {scenario.method} on {scenario.dataset}, one thread"
    if beta is None:
        rate = measure_hashes_per_s(scenario.proof_function, time.perf_counter)
        beta = float(f"{expected_mining_s(scenario, rate):.3g}")
        origins[1] = (
            f"measured: {scenario.mining_attempts:,} {scenario.proof_function} hashes, {rate:,.0f} per second "
            f"and miner, {counted(1 if scenario.centralized else scenario.members, 'miner')}"
        )
    budget = Budget(total_s=options.total_s, iteration_s=alpha, mining_s=beta)
    budget.validate()
    return budget, (origins[0], origins[1])


def plan_to_dict(plan: Plan) -> dict[str, Any]:
    """Plain values, for JSON; null stands for infinity."""
    theory = None if plan.theory is None else asdict(plan.theory) | {"verdicts": verdicts(plan.theory)}
    values: dict[str, Any] = _plain(
        {
            "scenario": plan.scenario.to_dict(),
            "budget": asdict(plan.budget),
            "alpha_from": plan.origins[0],
            "beta_from": plan.origins[1],
            "rounds": [asdict(row) for row in plan.planned],
            "left_out": plan.left_out,
            "theory": theory,
        }
    )
    return values


def verdicts(theory: Theory) -> list[str]:
    """Sentences on which bounds say something about this scenario, and which are vacuous."""
    heaviest = max(row.weight_max for row in theory.bounds)
    falling = [row.rounds for row in theory.bounds if row.variation < 0]
    lines = []
    if theory.weight >= heaviest:
        lines.append(
            f"Corollary 1 is vacuous here: lambda = {theory.weight:g} is not below {heaviest:.3g}, the largest weight "
            "that it admits for any R, so no learning rate is admitted."
        )
    else:
        admitted = [row.rounds for row in theory.bounds if theory.weight < row.weight_max]
        fastest = max(row.learning_rate_max for row in theory.bounds)
        lines.append(
            f"Corollary 1 admits lambda = {theory.weight:g} for R = {_list(admitted)}, with eta below {fastest:.3g} "
            f"at the most; it is {theory.learning_rate:g}."
        )
    if falling:
        lines.append(f"Theorem 1 promises a falling loss at eta = {theory.learning_rate:g} for R = {_list(falling)}.")
    else:
        least = min(row.variation for row in theory.bounds)
        lines.append(
            f"Theorem 1 is vacuous here: it only says that the loss of a round rises by no more than {least:.3g}, "
            "or for other R some larger number."
        )
    return [*lines, _second_verdict(theory)]


def _second_verdict(theory: Theory) -> str:
    asked = f"a mean squared gradient below chi = {theory.target:.3g}"
    if theory.rounds_limit is None:
        reach = (
            f"it needs chi above {theory.target_floor:.3g}"
            if math.isfinite(theory.target_floor)
            else f"eta = {theory.learning_rate:g} is not below 2 / L1 = {2 / theory.constants.smoothness:.3g}"
        )
        return f"Corollary 2 is vacuous here: it promises {asked} for no R; {reach}."
    reached = [row.rounds for row in theory.bounds if row.rounds > row.rounds_needed]
    where = f"R = {_list(reached)} reach it" if reached else "no feasible R reaches it"
    return f"Corollary 2 promises {asked} for R < {theory.rounds_limit:.3g}: {where}."


def _show_budget(
    console: Console,
    scenario: Scenario,
    budget: Budget,
    origins: tuple[str, str],
    planned: Sequence[PlannedRounds],
    left_out: Sequence[int],
) -> None:
    console.print(f"t_sum  {budget.total_s:g} s for all rounds together")
    console.print(f"alpha  {budget.iteration_s:g} s  ({origins[0]})")
    console.print(f"beta   {budget.mining_s:g} s  ({origins[1]})")
    table = _table(
        f"{scenario.method} on {scenario.dataset}: {counted(scenario.peers, 'peer')}", "R", "E", "β·R", "E·α·R", "t−β·R"
    )
    for row in planned:
        times = (f"{value:.4g}" for value in (row.mined_s, row.trained_s, row.left_s))
        table.add_row(str(row.rounds), str(row.local_steps), *times)
    console.print(Fitted(table))
    if left_out:
        console.print(f"left out: R = {_list(left_out)}, which leave no local step (E < 1)")


def _apply_theory(
    console: Console, scenario: Scenario, budget: Budget, planned: Sequence[PlannedRounds], options: PlanOptions
) -> Theory | None:
    """Compute the constants and the bounds and show them; None if they are not wanted or do not apply."""
    if not options.bounds:
        return None
    method = build_method(scenario.learning_config().method, scenario.hyperparameters)
    if not isinstance(method, Dfpl):
        console.print(f"no bounds: the corollaries are about dfpl's loss, not {scenario.method}'s")
        return None
    theory = apply_theory(scenario, budget, planned, options.chi)
    constants = _table("constants, estimated on the data", "", "value", "how")
    constants.columns[2].justify, constants.columns[2].no_wrap = "left", False
    texts = field_help(Constants)
    for item in fields(Constants):
        how = " ".join(texts[item.name].split())
        constants.add_row(item.name, f"{getattr(theory.constants, item.name):.4g}", how)
    console.print(constants)
    title = f"bounds at η = {theory.learning_rate:g}, λ = {theory.weight:g}, χ = {theory.target:.3g}"
    columns = ("R", "λ <\nEq. 24", "λ <\nEq. 26", "η <\nEq. 23", "η <\nEq. 25", "change ≤\nThm. 1", "R >\nEq. 29")
    table = _table(title, *columns)
    for row in theory.bounds:
        limits = (row.weight_max, row.weight_max_first, row.learning_rate_max, row.learning_rate_max_first)
        needed = f"{row.rounds_needed:.3g}" if math.isfinite(row.rounds_needed) else "none"
        table.add_row(str(row.rounds), *map(_limit, limits), f"{row.variation:.3g}", needed)
    console.print(Fitted(table))
    for line in verdicts(theory):
        console.print(line)
    if method.regularizer != "norm" or method.momentum > 0:
        console.print("All of it is proved for regularizer = norm without momentum; here it is only evaluated.")
    return theory


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, header_style="bold")
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _limit(value: float) -> str:
    """A limit as text; one that is not above zero admits nothing."""
    return f"{value:.3g}" if value > 0 else "none"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _list(numbers: Sequence[int]) -> str:
    """1 to 5, or 1, 3, 4."""
    if len(numbers) > 2 and list(numbers) == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers))
