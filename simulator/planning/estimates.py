"""A table of best numbers of rounds, as DFPL's Tables III and IV: each cell is a search under its own times.

The file says ``kind = "resources"``; otherwise it is written like the other experiments.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedchain.files.tables import build, read_toml
from fedchain.learning.convergence.theory import Budget
from fedchain.simulator.planning.search import CRITERIA, Trial, best_trial, draw_trials, search
from fedchain.simulator.scenario import Scenario, ScenarioError, scenario_from_dict
from fedchain.terminal import Console

KIND = "resources"
"""What the key ``kind`` of such a file holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceCell:
    """One entry of the table: a spread of the data and what training and mining take."""

    name: str
    """Names the curve; unique within its figure."""
    figure: str
    """Curves of one figure are drawn together; it is the picture's file name."""
    alpha: float
    """Seconds of a local step."""
    beta: float
    """Seconds of a block."""
    paper: int
    """The paper's best R; 0: it prints none."""
    scenario: Mapping[str, Any]
    """Scenario values of this cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceTable:
    """The searches behind one or more tables."""

    kind: str
    """``KIND``."""
    name: str
    title: str
    source: str
    """Where the paper's numbers stand."""
    scale: str = ""
    """What was reduced so that a CPU can run it; empty: nothing."""
    seeds: tuple[int, ...]
    total_s: float
    """t_sum of every cell."""
    rounds: tuple[int, ...]
    """Numbers of rounds to try, where they leave a local step."""
    expected: tuple[int, int]
    """The range in which the best R is expected, both ends included."""
    scenario: Mapping[str, Any]
    """Scenario values that all cells share."""
    cells: tuple[ResourceCell, ...]

    def scenario_of(self, cell: ResourceCell, overrides: Mapping[str, Any]) -> Scenario:
        """The scenario of a cell; raises ScenarioError or ConfigurationError if it is impossible."""
        scenario = scenario_from_dict({**self.scenario, **cell.scenario, **overrides})
        scenario.validate()
        return scenario

    def budget_of(self, cell: ResourceCell) -> Budget:
        """The times of a cell."""
        return Budget(total_s=float(self.total_s), iteration_s=float(cell.alpha), mining_s=float(cell.beta))


@dataclass(frozen=True, slots=True)
class ResourceEntry:
    """One cell, searched."""

    cell: ResourceCell
    trials: tuple[Trial, ...]

    def best(self, criterion: str) -> Trial:
        """The trial with the lowest mean in one of ``CRITERIA``."""
        return best_trial(self.trials, criterion)

    @property
    def at_paper(self) -> Trial | None:
        """The trial of the paper's best R, if it was tried."""
        return next((trial for trial in self.trials if trial.rounds == self.cell.paper), None)


def load_resources(path: Path) -> ResourceTable:
    """Read a file; raises ScenarioError with one clear line, ConfigurationError for impossible times."""
    table = build(ResourceTable, read_toml(path, ScenarioError), str(path), ScenarioError)
    if not table.seeds or min(table.rounds, default=0) < 1:
        raise ScenarioError(f"{path} seeds and rounds must hold numbers, those of rounds at least 1")
    for place, cell in enumerate(table.cells):
        if not re.fullmatch(r"[\w-]+", cell.figure):
            raise ScenarioError(f"{path} cells[{place}] figure is {cell.figure!r}, it must be the name of a file")
        table.budget_of(cell).validate()
    return table


def reproduce_resources(
    table: ResourceTable, folder: Path, jobs: int, overrides: Mapping[str, Any]
) -> list[ResourceEntry]:
    """Search every cell, resuming what ``folder`` holds; write ``table.md`` and one picture per figure."""
    console = Console()
    console.print(table.title)
    entries = []
    for cell in table.cells:
        console.print(f"{cell.figure}  {cell.name}")
        trials = search(
            table.scenario_of(cell, overrides),
            table.budget_of(cell),
            table.rounds,
            table.seeds,
            jobs,
            results=folder / "results",
            console=console,
        )
        entries.append(ResourceEntry(cell, tuple(trials)))
    text = to_markdown(table, entries)
    (folder / "table.md").write_text(text, encoding="utf-8")
    for figure in dict.fromkeys(cell.figure for cell in table.cells):
        curves = {entry.cell.name: entry.trials for entry in entries if entry.cell.figure == figure}
        draw_trials(curves, folder / f"{figure}.png")
    console.print(text, markup=False, soft_wrap=True)
    console.print(f"written to {folder}", soft_wrap=True)
    return entries


def to_markdown(table: ResourceTable, entries: Sequence[ResourceEntry]) -> str:
    """The paper's best R beside ours, with (t_sum − beta R, R) as the paper prints its entries."""
    low, high = table.expected
    lines = [
        f"# {table.title}",
        "",
        f"Paper: {table.source}. Ours: the R with the lowest mean over {len(table.seeds)} seed(s) of the loss "
        "(cross-entropy on the test sets) and of the objective (there too all that the method minimises).",
        *([f"Reduced: {table.scale}."] if table.scale else []),
        "",
        "| figure | cell | paper | by loss | loss | at the paper's R | by objective | objective | at the paper's R |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for entry in entries:
        cell, budget = entry.cell, table.budget_of(entry.cell)
        columns = [cell.figure, cell.name, _pair(budget, cell.paper)]
        for criterion in CRITERIA:
            best = entry.best(criterion)
            there = "–" if entry.at_paper is None else f"{getattr(entry.at_paper, criterion):.4f}"
            columns += [_pair(budget, best.rounds), f"{getattr(best, criterion):.4f}", there]
        lines.append(f"| {' | '.join(columns)} |")
    lines.append("")
    for criterion in CRITERIA:
        within = sum(low <= entry.best(criterion).rounds <= high for entry in entries)
        share = f"{100 * within / len(entries):.0f} %"
        lines.append(f"Best R by {criterion} between {low} and {high}: {within} of {len(entries)} cells, {share}.")
    return "\n".join(lines) + "\n"


def _pair(budget: Budget, rounds: int) -> str:
    return f"({budget.total_s - budget.mining_s * rounds:g}, {rounds})" if rounds else "–"
