"""Simulations with real training beside bare loops that do the same work, and end with the same numbers."""

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from rich.table import Table

from tests.bench.processes import Cost, Mark, measure, warning

UNMEASURED = {"test_every": 0, "evaluate_every": 0}
"""No model is measured, as in the bare loops: on the whole test set that would be most of the work of both sides."""

CNN = {"dataset": "fashion-mnist", "peers": 20, "rounds": 20, **UNMEASURED}
"""A network of 21,840 parameters, 20 steps of 32 images an update."""

DIGITS = {"dataset": "digits", "method": "fedavg", "peers": 20, "rounds": 10, **UNMEASURED}
"""Training that is little work: what processes import weighs as much as their steps."""

LOGISTIC = {
    "dataset": "fashion-mnist",
    "method": "fedavg",
    "model": "logistic",
    "partition": "iid",
    "hyperparameters": {"local_steps": 10, "batch_size": 10},
    "peers": 1_000,
    "rounds": 105,
    "contributors_per_round": 10,
    "idle_sleep": True,
    "proof_function": "sha256d",
    "version": 2,
    **UNMEASURED,
}
"""Small models, of clients that are drawn from many, as the voters are; the others sleep."""

CARD_DISTANCE_MAX = 0.04
"""Largest relative distance between what two sides have learned on a card, whose kernels for one model and for a batch
of models differ in the last bit. The small network makes 0.015 of that within four rounds; other batches or other
dropout make 0.09."""

CARD = (
    ("20 clients", CNN | {"method": "fedavg", "rounds": 6}, True, CARD_DISTANCE_MAX),
    ("100 clients", CNN | {"method": "fedavg", "peers": 100, "rounds": 4}, False, CARD_DISTANCE_MAX),
    (
        "1,000 clients",
        CNN | {"method": "fedavg", "peers": 1_000, "rounds": 2, "committee_size": 32},
        False,
        CARD_DISTANCE_MAX,
    ),
    (
        "20 clients, ResNet-18",
        CNN | {"dataset": "cifar10", "method": "fedavg", "model": "resnet18", "rounds": 4},
        True,
        math.inf,  # its batch normalization makes 0.37 of a last bit in one round: steps and updates are compared alone
    ),
)
"""On a card: a label, the scenario, whether it is run with clients one by one, too, and the largest distance."""

WARM_FROM = 2
"""Rounds before those that count as warm. The last one always does."""

DISTANCE_MAX = 1e-3
"""Largest relative distance between what two sides have learned on processors, whose sums come in one order."""

Side = Callable[[], Cost]


@dataclass(frozen=True, slots=True)
class Rates:
    """Figures of one side in one turn; rates in updates a second."""

    wall_s: float
    cpu_s: float
    whole: float
    """From the start of the interpreter."""
    warm: float
    """From the third round on, or in the last one."""
    warm_cpu: float
    """CPU seconds of an update in those rounds, of all processes."""
    children_cpu: float
    """The same, of the processes that the first one started."""


class Disagreement(Exception):
    """Two sides did not do the same work."""


def bench_training(scenario: Mapping[str, Any], label: str, turns: int) -> list[Table | str]:
    """Run all sides in turns, and compare each with the bare loop in two processes of the same turn."""
    drawn: list[Any] = [None]  # who trained, which the chain draws where not all do
    chosen = dict(scenario)

    def simulated() -> Cost:
        cost = measure("training", chosen)
        drawn[0] = cost.printed["drawn"]
        return cost

    return _compare(
        {
            "fedchain": simulated,
            "fedchain, nothing shared": lambda: measure("training", chosen, False),
            "bare loop, two processes": lambda: measure("bare", chosen, 2, drawn[0]),
            "bare loop, one process": lambda: measure("bare", chosen, 1, drawn[0]),
        },
        "bare loop, two processes",
        label,
        turns,
    )


def bench_card(data_dir: str, turns: int) -> list[Table | str]:
    """Run the simulations and their bare loops on a graphics card, and compare each with the bare loop there."""
    tables: list[Table | str] = []
    for label, scenario, has_both, distance_max in CARD:
        plain: dict[str, Any] = scenario | {"data_dir": data_dir}
        on_card = plain | {"device": "cuda"}
        sides: dict[str, Side] = {
            "fedchain, cohorts": partial(measure, "training", on_card | {"vectorize_clients": True}),
            "bare loop on the card": partial(measure, "bare", plain, 1, None, "cuda"),
        }
        if has_both:
            sides["fedchain, one by one"] = partial(measure, "training", on_card)
        title = f"on a graphics card: {label}, FedAvg"
        tables += _compare(sides, "bare loop on the card", title, turns, distance_max)
    return tables


def _compare(
    sides: Mapping[str, Side], beside: str, label: str, turns: int, distance_max: float = DISTANCE_MAX
) -> list[Table | str]:
    """Run the sides in turns, the first one first, and compare each with one of them in the same turn."""
    costs: dict[str, list[Cost]] = {name: [] for name in sides}
    for _ in range(turns):
        for name, run in sides.items():
            costs[name].append(run())
            require_agreement(costs[next(iter(sides))][-1].printed, costs[name][-1].printed, distance_max)
    return [_table(label, beside, {name: [rates(cost) for cost in found] for name, found in costs.items()})] + [
        text for text in [warning([cost for found in costs.values() for cost in found])] if text
    ]


def rates(cost: Cost) -> Rates:
    """The figures of a turn."""
    marks, updates = [Mark(**item) for item in cost.printed["marks"]], cost.printed["updates"]
    before = min(WARM_FROM, len(marks) - 1)
    first, last, warm = marks[before - 1], marks[-1], updates * (len(marks) - before) / len(marks)
    return Rates(
        cost.wall_s,
        cost.cpu_s,
        updates / cost.wall_s,
        warm / (last.wall_s - first.wall_s),
        (last.cpu_s - first.cpu_s) / warm,
        (last.children_cpu_s - first.children_cpu_s) / warm,
    )


def require_agreement(ours: Mapping[str, Any], theirs: Mapping[str, Any], distance_max: float = DISTANCE_MAX) -> None:
    """Raise Disagreement unless both sides took as many steps, for as many updates, and learned the same numbers."""
    for name in ("steps", "updates"):
        if ours[name] != theirs[name]:
            raise Disagreement(f"{name}: {ours[name]:,} and {theirs[name]:,}")
    one, other = (np.frombuffer(base64.b64decode(side["result"]), dtype="<f4") for side in (ours, theirs))
    if one.shape != other.shape:
        raise Disagreement(f"numbers learned: {len(one):,} and {len(other):,}")
    distance = float(np.linalg.norm(one - other) / np.linalg.norm(one))
    if not distance <= distance_max:
        raise Disagreement(f"what was learned differs by {distance:.2g}, {distance_max:g} is allowed")


def _table(label: str, beside_name: str, found: Mapping[str, Sequence[Rates]]) -> Table:
    """Medians, and in brackets the median of the ratios to one of the sides in the same turn."""
    table = Table("side", "CPU", "wall", "updates/s whole", "warm", "CPU an update, warm", title=label, box=None)
    beside = found[beside_name]

    def cell(mine: Sequence[Rates], value: Callable[[Rates], float], form: str) -> str:
        ratio = median(value(one) / value(other) for one, other in zip(mine, beside, strict=True))
        return f"{median(map(value, mine)):{form}} ({ratio:.2f} ×)"

    for name, mine in found.items():
        children = median(one.children_cpu for one in mine)
        of_others = f", {1000 * children:.0f} of it in processes that it started" if children else ""
        table.add_row(
            name,
            cell(mine, lambda one: one.cpu_s, ".1f"),
            cell(mine, lambda one: one.wall_s, ".1f"),
            cell(mine, lambda one: one.whole, ".1f"),
            cell(mine, lambda one: one.warm, ".1f"),
            cell(mine, lambda one: 1000 * one.warm_cpu, ".0f") + of_others,
        )
    table.columns[1].header, table.columns[2].header = "CPU (s)", "wall (s)"
    table.columns[-1].header = "CPU of an update, warm (ms)"
    return table
