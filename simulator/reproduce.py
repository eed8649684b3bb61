"""``fedchain reproduce``: all runs of an experiment, in parallel and resumable, and the table that they make.

Every finished run leaves a JSON file named after what it computed; a second start runs only what is missing.
"""

import csv
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from fedchain.simulator.experiment import Cell, Experiment, Run, Variant
from fedchain.simulator.parallel import run_all, write_result


@dataclass(frozen=True, slots=True)
class Entry:
    """One number of the table."""

    variant: str
    cell: str
    paper: float | None
    """The paper's number, in percent."""
    values: tuple[float, ...]
    """Ours, one per seed, in percent."""

    @property
    def mean(self) -> float:
        """Mean over the seeds, in percent."""
        return statistics.mean(self.values)

    @property
    def deviation(self) -> float:
        """Standard deviation over the seeds (n − 1), in points; 0 for one seed."""
        return statistics.stdev(self.values) if len(self.values) > 1 else 0.0

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's, in points."""
        return None if self.paper is None else self.mean - self.paper


def reproduce(experiment: Experiment, folder: Path, jobs: int, overrides: Mapping[str, Any]) -> list[Entry]:
    """Run what is missing, ``jobs`` simulations at a time, and write ``table.md``, ``table.csv`` and ``table.png``."""
    runs = list(experiment.runs(overrides))
    results = folder / "results"
    results.mkdir(parents=True, exist_ok=True)
    missing = [run for run in runs if not (results / f"{run.key}.json").exists()]
    console = Console(highlight=False)
    console.print(f"{experiment.title}\n{len(runs)} runs, {len(runs) - len(missing)} of them done already")
    _run_all(missing, results, jobs, console)
    entries = tabulate(experiment, results, overrides)
    (folder / "table.md").write_text(to_markdown(experiment, entries), encoding="utf-8")
    _write_csv(folder / "table.csv", experiment, entries)
    draw_entries(experiment, entries, folder / "table.png")
    console.print((folder / "table.md").read_text(encoding="utf-8"))
    console.print(f"written to {folder}")
    return entries


def tabulate(experiment: Experiment, results: Path, overrides: Mapping[str, Any]) -> list[Entry]:
    """The numbers of the table, from the results of all runs."""
    return [
        Entry(
            variant.name,
            cell.name,
            variant.paper.get(cell.name),
            tuple(_value(experiment, results, cell, variant, seed, overrides) for seed in experiment.seeds),
        )
        for variant in experiment.variants
        for cell in experiment.cells
    ]


def to_markdown(experiment: Experiment, entries: Sequence[Entry]) -> str:
    """A table of "paper | ours mean ± sd | difference"."""
    seeds = f"{len(experiment.seeds)} seed" + ("s" if len(experiment.seeds) != 1 else "")
    lines = [
        f"# {experiment.title}",
        "",
        f"Paper: {experiment.source}. Ours: mean ± standard deviation of {seeds}.",
        "",
        "| variant | cell | paper | ours | difference |",
        "|---|---|--:|--:|--:|",
    ]
    for entry in entries:
        paper = "–" if entry.paper is None else f"{entry.paper:.2f}"
        difference = "–" if entry.difference is None else f"{entry.difference:+.2f}"
        ours = f"{entry.mean:.2f} ± {entry.deviation:.2f}"
        lines.append(f"| {entry.variant} | {entry.cell} | {paper} | {ours} | {difference} |")
    return "\n".join(lines) + "\n"


def draw_entries(experiment: Experiment, entries: Sequence[Entry], path: Path) -> None:
    """Ours as bars with their deviation, the paper's as marks."""
    from matplotlib.figure import Figure  # slow to import

    figure = Figure(figsize=(2.2 + 2.2 * len(experiment.cells), 4.2), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / len(experiment.variants)
    cells = [cell.name for cell in experiment.cells]
    for place, variant in enumerate(experiment.variants):
        own = [entry for entry in entries if entry.variant == variant.name]
        at = [cells.index(entry.cell) + (place + 0.5) * width - 0.4 for entry in own]
        axes.bar(at, [e.mean for e in own], 0.9 * width, yerr=[e.deviation for e in own], capsize=2, label=variant.name)
        known = [(x, entry.paper) for x, entry in zip(at, own, strict=True) if entry.paper is not None]
        axes.scatter([x for x, _ in known], [paper for _, paper in known], marker="_", s=160, color="black", zorder=3)
    axes.scatter([], [], marker="_", s=160, color="black", label="paper")
    lowest = min(min(entry.values) for entry in entries)
    axes.set_ylim(max(0.0, 5 * ((lowest - 5) // 5)), 100)
    axes.set_xticks(range(len(cells)), cells)
    axes.set_ylabel("accuracy (%)")
    axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=2, frameon=False)
    figure.savefig(path, dpi=130)


def _run_all(runs: Sequence[Run], results: Path, jobs: int, console: Console) -> None:
    def keep(place: int, result: dict[str, Any]) -> str:
        run = runs[place]
        write_result(results, run.key, result)
        best = max(row["taa"] for row in result["rows"])
        return f"{run.variant}  {run.cell}  seed {run.seed}: best TAA {100 * best:.2f} %"

    run_all([run.scenario for run in runs], jobs, keep, console)


def _value(
    experiment: Experiment, results: Path, cell: Cell, variant: Variant, seed: int, overrides: Mapping[str, Any]
) -> float:
    run = Run(cell.name, variant.name, seed, experiment.scenario_of(cell, variant, seed, overrides))
    result = json.loads((results / f"{run.key}.json").read_text(encoding="utf-8"))
    return experiment.value_of(result["rows"], variant.metric)


def _write_csv(path: Path, experiment: Experiment, entries: Sequence[Entry]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(
            ["variant", "cell", "paper", "mean", "sd", "difference", *(f"seed {s}" for s in experiment.seeds)]
        )
        for entry in entries:
            numbers = [entry.paper, entry.mean, entry.deviation, entry.difference, *entry.values]
            writer.writerow([entry.variant, entry.cell, *("" if n is None else f"{n:.4f}" for n in numbers)])
