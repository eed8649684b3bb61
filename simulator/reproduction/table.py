"""The table of an experiment: the paper's numbers beside ours, from the results of the runs."""

import csv
import itertools
import math
import re
import statistics
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fedchain.files.json_text import from_json
from fedchain.files.layout import read_found
from fedchain.files.spool import unfinished
from fedchain.simulator.reproduction.experiment import Cell, Column, Experiment, Variant, key_of
from fedchain.simulator.scenario import ScenarioError

PERCENT = 100.0

INTEGER_MAX = 2**63 - 1
"""The largest integer in a result, which a float can still hold."""

_LOWER = re.compile(r"tal|loss|bytes|scalars|epsilon|forgetting|_s$|not_taken")
"""Metrics of which less is better."""

Kind = Literal["accuracy", "count", "other"]
"""Kind of a number: accuracies are printed in percent and averaged over the cells."""

Rows = Sequence[Mapping[str, Any]]
"""Measurements of a run, one row a round."""


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a finished run."""

    rows: Rows
    diverged: bool = False
    """Whether they end early, because training diverged or privacy budgets were spent."""
    spent: bool = False
    """Whether that was because budgets were spent."""
    is_broken: bool = False
    """Whether the checker found that a promise of the protocol did not hold."""
    data: str = ""
    """The SHA-256 of the user's own data, in hexadecimal, if it is known."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One number of the table. Accuracies are in percent."""

    variant: str
    cell: str
    column: str
    paper: float | None
    """The paper's number; None if it has none."""
    by_seed: Mapping[int, float | None]
    """Our numbers, by seed that was run; None if the mark was not reached, or training diverged before."""
    kind: Kind
    diverged: int = 0
    """Number of seeds that ended early; their numbers come from the rounds before."""
    spent: int = 0
    """Number of these whose privacy budgets were spent, and whose training did not diverge."""
    broken: int = 0
    """Number of seeds in whose run a promise of the protocol did not hold."""
    lacks: str = ""
    """The missing data set for which nothing was run; empty if there is none."""
    is_less_better: bool = False
    """Whether the lowest number is the best."""

    @property
    def decimals(self) -> int:
        """Number of decimals to print."""
        return {"accuracy": 2, "count": 0, "other": 4}[self.kind]

    @property
    def known(self) -> tuple[float, ...]:
        """Our numbers that exist."""
        return tuple(value for value in self.by_seed.values() if value is not None)

    @property
    def mean(self) -> float | None:
        """Mean over the seeds; None if there is no number."""
        return statistics.mean(self.known) if self.known else None

    @property
    def deviation(self) -> float | None:
        """Standard deviation over the seeds; None for a single seed, and where a number is infinite."""
        return deviation_of(self.known)

    @property
    def difference(self) -> float | None:
        """Our mean minus the paper's number; None if one of them is missing."""
        return None if self.paper is None or self.mean is None else self.mean - self.paper


def deviation_of(values: Sequence[float]) -> float | None:
    """Standard deviation (n − 1); None of fewer than two numbers, and of any that is infinite, as an epsilon may be."""
    return statistics.stdev(values) if len(values) > 1 and all(map(math.isfinite, values)) else None


def tabulate(
    experiment: Experiment, results: Path, overrides: Mapping[str, Any], lacking: Collection[str] = ()
) -> list[Entry]:
    """The numbers of the table, from the results that exist; entries without results are left out.

    Entries whose data set is missing are kept: ``lacking`` holds these data sets.
    """

    def result(cell: Cell, variant: Variant, seed: int, column: Column) -> Result | None:
        scenario = experiment.scenario_of(cell, variant, seed, overrides, column.rounds)
        return read_result(results / f"{key_of(scenario)}.json")

    entries = []
    for variant in experiment.variants:
        for cell in experiment.cells:
            for place, column in enumerate(experiment.columns):
                own = [result(cell, variant, seed, column) for seed in experiment.seeds]
                values = dict(_values(experiment, cell, variant, column, own, result))
                paper = variant.paper.get(cell.name)
                number = None if paper is None or math.isnan(paper[place]) else float(paper[place])
                scenario = experiment.scenario_of(cell, variant, experiment.seeds[0], overrides, column.rounds)
                lacks = scenario.dataset if not values and scenario.dataset in lacking else ""
                if values or lacks:
                    kind = kind_of(column, variant)
                    diverged = sum(run is not None and run.diverged for run in own)
                    spent = sum(run is not None and run.spent for run in own)
                    broken = sum(run is not None and run.is_broken for run in own)
                    names, ended = (variant.name, cell.name, column.name), (diverged, spent, broken)
                    is_less = _is_less_better(column, variant)
                    entries.append(Entry(*names, number, values, kind, *ended, lacks=lacks, is_less_better=is_less))
    return entries


def _values(
    experiment: Experiment,
    cell: Cell,
    variant: Variant,
    column: Column,
    own: Sequence[Result | None],
    result: Callable[[Cell, Variant, int, Column], Result | None],
) -> Iterator[tuple[int, float | None]]:
    for seed, run in zip(experiment.seeds, own, strict=True):
        mark: float | None = column.mark
        if column.statistic == "reach" and not column.mark:
            reference = experiment.variant(column.of)
            others = result(cell, reference, seed, column)
            metric = column.metric or reference.metric
            mark = None if others is None else best_of(_counted(others, column), metric)
            mark = None if mark is None else mark * column.fraction
        if run is not None and mark is not None:
            yield seed, value_of(run, column, column.metric or variant.metric, mark)


def value_of(result: Result, column: Column, metric: str, mark: float = 0.0) -> float | None:
    """The reported number of one run; accuracies in percent.

    None if the mark was never reached, if an optional metric was not measured, or not in the last round where that is
    asked for, if training diverged before the first measurement, or if it diverged and the statistic takes the end or
    the mean of a run.

    Raises:
        ScenarioError: the run did not measure ``metric``, or what is to be summed.
    """
    counted = _counted(result, column)
    known = [(row["round"], float(row[metric])) for row in counted if row.get(metric) is not None]
    if result.diverged and column.statistic not in ("reach", "best"):
        return None
    if not known:
        if result.diverged or column.is_optional:
            return None
        raise ScenarioError(f"metric {metric} was not measured in any of {len(counted)} rounds")
    if column.statistic == "last" and column.is_optional and known[-1][0] != counted[-1]["round"]:
        return None
    values = [value for _, value in known]
    match column.statistic:
        case "reach":
            reached = next((float(number) for number, value in known if _reaches(value, mark, metric)), None)
            if reached is None or not column.spend:
                return reached
            return _spent([row for row in counted if row["round"] <= reached], column)
        case "best":
            chosen = min(values) if wants_less(metric) else max(values)
        case "last":
            chosen = values[-1]
        case "mean":
            chosen = statistics.mean(values)
        case _:
            chosen = statistics.mean(values[-5:])
    return chosen * scale_of(metric)


def _counted(result: Result, column: Column) -> Rows:
    """The first rounds of a run, which count in a column."""
    return result.rows[: column.rounds or None]


def _spent(rows: Rows, column: Column) -> float | None:
    """The sum of a column's expenses over some rounds; None if an optional one was not measured in one of them."""
    total = 0.0
    for row, name in itertools.product(rows, column.spend):
        value = row.get(name)
        if value is None and column.is_optional:
            return None
        if value is None:
            raise ScenarioError(f"metric {name} was not measured in round {row['round']}, and cannot be summed")
        total += value
    return total


def best_of(rows: Rows, metric: str) -> float | None:
    """The best value of a metric in any round; None if none measured it."""
    values = (row[metric] for row in rows if row.get(metric) is not None)
    return min(values, default=None) if wants_less(metric) else max(values, default=None)


def _reaches(value: float, mark: float, metric: str) -> bool:
    return value <= mark if wants_less(metric) else value >= mark


def _is_less_better(column: Column, variant: Variant) -> bool:
    """Whether fewer rounds, or less of the metric, are better in a variant's column, unless it says what it seeks."""
    if column.seek:
        return column.seek == "lowest"
    return column.statistic == "reach" or wants_less(column.metric or variant.metric)


def wants_less(metric: str) -> bool:
    """Whether less of a metric is better, as of a loss."""
    return bool(_LOWER.search(metric))


def read_result(path: Path) -> Result | None:
    """The result of a finished run; None if it was not run yet.

    Raises:
        ScenarioError: the file is damaged.
    """
    if not path.exists():
        return None
    try:
        kept = from_json(read_found(path))
        rows, diverged, spent = kept["rows"], "diverged" in kept, "spent" in kept
        is_broken, data = bool(kept.get("violations")), str(kept.get("data", ""))
    except (FileNotFoundError, ValueError, RecursionError, TypeError, KeyError):  # the first of a pipe
        rows, diverged, spent, is_broken, data = None, False, False, False, ""
    if not isinstance(rows, list) or not all(map(_is_row, rows)) or not (rows or diverged):
        raise ScenarioError(f"{path} is not the result of a run; delete it, and it is run again")
    return Result(rows, diverged, spent, is_broken, data)


def _is_row(row: Any) -> bool:
    """Whether a row names its round, and all that was measured is a number."""
    if not isinstance(row, dict) or type(row.get("round")) is not int:
        return False
    numbers = [value for value in row.values() if value is not None]
    return all(type(value) is float or (type(value) is int and abs(value) <= INTEGER_MAX) for value in numbers)


def scale_of(metric: str) -> float:
    """Factor of a metric in tables: accuracies are fractions, and printed in percent."""
    return PERCENT if metric.startswith(("taa", "test_accuracy")) else 1.0


def kind_of(column: Column, variant: Variant) -> Kind:
    """Kind of the numbers of ``variant`` in ``column``; counts are of rounds, or of sent or mined objects."""
    metric = column.metric or variant.metric
    if column.statistic == "reach" or metric in (
        "scalars_posted",
        "bytes_for_all",
        "bytes_for_aggregator",
        "bytes_for_next_aggregator",
        "bytes_for_one",
        "bytes_sent_per_peer",
        "bytes_received_per_peer",
        "bytes_received_aggregator",
        "posts",
        "late_posts",
        "members",
        "receivers",
        "quorum",
        "blocks",
        "not_taken",
    ):
        return "count"
    return "accuracy" if scale_of(metric) == PERCENT else "other"


def write_csv(path: Path, experiment: Experiment, entries: Sequence[Entry]) -> None:
    """Write all entries with the value of each seed."""
    with unfinished(path) as other, other.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        seeds = [f"seed {seed}" for seed in experiment.seeds]
        writer.writerow(["variant", "cell", "column", "paper", "mean", "sd", "difference", *seeds])
        for entry in entries:
            own = map(entry.by_seed.get, experiment.seeds)
            numbers = [entry.paper, entry.mean, entry.deviation, entry.difference, *own]
            shown = ["" if number is None else f"{number:.4f}" for number in numbers]
            writer.writerow([entry.variant, entry.cell, entry.column, *shown])


def write_rounds(path: Path, experiment: Experiment, results: Path, overrides: Mapping[str, Any]) -> None:
    """Write all measurements as tidy data: a line for each variant, cell, seed, round and measure.

    Settings of the cells have their own columns. Accuracies are fractions; missing measurements have no line. A run
    that several variants share appears under each of them; ``run`` is the name of its file among the results.
    """
    cells = itertools.product(experiment.cells, experiment.variants)
    settings = list(dict.fromkeys(name for cell, variant in cells for name in _set_by(cell, variant)))
    with unfinished(path) as other, other.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["variant", "method", "cell", *settings, "seed", "run", "round", "measure", "value"])
        for variant, cell, seed in itertools.product(experiment.variants, experiment.cells, experiment.seeds):
            scenarios = (experiment.scenario_of(cell, variant, seed, overrides, c.rounds) for c in experiment.columns)
            for key, scenario in {key_of(scenario): scenario for scenario in scenarios}.items():
                result = read_result(results / f"{key}.json")
                values = _set_by(cell, variant)
                head = [
                    variant.name,
                    scenario.method,
                    cell.name,
                    *(values.get(name, "") for name in settings),
                    seed,
                    key,
                ]
                for row in () if result is None else result.rows:
                    measures = ((name, value) for name, value in row.items() if name != "round" and value is not None)
                    writer.writerows([*head, row["round"], *measure] for measure in measures)


def _set_by(cell: Cell, variant: Variant) -> dict[str, Any]:
    """Settings of a cell, for all variants or for this one, that are single values."""
    found = {**cell.scenario, **cell.hyperparameters, **variant.in_cell.get(cell.name, {})}
    return {name: value for name, value in found.items() if isinstance(value, bool | int | float | str)}
