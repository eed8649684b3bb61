"""The table of an experiment as Markdown: the paper's numbers beside ours, their means, and the best cells."""

import math
import statistics
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from fedchain.simulator.reproduction.experiment import Column, Experiment
from fedchain.simulator.reproduction.table import Entry
from fedchain.wording import counted

NEAR = 2.0
"""Difference in percentage points up to which an accuracy counts as equal to the paper's."""

BAR = "\\|"
"""A bar within a cell of a Markdown table."""

NOTHING: Mapping[str, Any] = MappingProxyType({})


def to_markdown(
    experiment: Experiment,
    entries: Sequence[Entry],
    changed: Mapping[str, Any] = NOTHING,
    lacking: Mapping[str, str] = NOTHING,
    failed: Mapping[str, str] = NOTHING,
) -> str:
    """A table of "paper | ours mean ± sd | difference", or of ours alone if no paper has numbers.

    Args:
        experiment: the experiment that was run.
        entries: the numbers.
        changed: settings that differ from the file's.
        lacking: missing data sets, and the reasons.
        failed: runs that are not in the table, and the reasons.
    """
    seeds = _seeds(entries)
    what = "one seed" if seeds == 1 else f"mean ± standard deviation of {seeds} seeds"
    with_paper = any(entry.paper is not None for entry in entries)
    lines = [
        f"# {experiment.title}",
        "",
        f"Paper: {experiment.source}. Ours: {what}." if experiment.source else f"{what[0].upper()}{what[1:]}.",
        *([f"Reduced: {experiment.scale}."] if experiment.scale else []),
        *([f"Not as in the file: {', '.join(f'{name} = {changed[name]}' for name in changed)}."] if changed else []),
        "",
    ]
    is_wide = len(experiment.columns) > 1 and not experiment.source and not with_paper
    if is_wide:
        lines += _wide(experiment, entries)
    else:
        lines += _long(experiment, entries, with_paper=with_paper)
    if any(column.seek for column in experiment.columns):
        lines += _best(experiment, entries)
    elif len({entry.cell for entry in entries}) > 1:
        lines += _means(entries)
    if experiment.reference:
        lines += _drops(experiment, entries)
    for dataset, reason in lacking.items():
        lines += ["", f"Not run, because {dataset} is not here: {reason}."]
    for name, reason in failed.items():
        lines += ["", f"Not in the table: {name}: {reason}."]
    if experiment.note:
        lines += ["", experiment.note.strip()]
    return "\n".join(lines) + "\n"


def _wide(experiment: Experiment, entries: Sequence[Entry]) -> list[str]:
    """A line for each variant and cell, with a number for each column."""
    names, seeds = [column.name for column in experiment.columns], _seeds(entries)
    lines = [_row(["variant", "cell", *names]), f"|---|---|{'--:|' * len(names)}"]
    for variant, cell in dict.fromkeys((entry.variant, entry.cell) for entry in entries):
        own = {entry.column: entry for entry in entries if (entry.variant, entry.cell) == (variant, cell)}
        lines.append(_row([variant, cell, *(_ours(own[name], seeds) if name in own else "–" for name in names)]))
    return lines


def _long(experiment: Experiment, entries: Sequence[Entry], *, with_paper: bool) -> list[str]:
    """A line for each number, with the paper's beside it."""
    with_columns, seeds = len(experiment.columns) > 1, _seeds(entries)
    heads = ["variant", "cell", *(["column"] if with_columns else [])]
    numbers = ["paper", "ours", "difference"] if with_paper else ["ours" if experiment.source else "result"]
    lines = [_row([*heads, *numbers]), f"|{'---|' * len(heads)}{'--:|' * len(numbers)}"]
    for entry in entries:
        paper, difference = _shown(entry.paper, entry.decimals), _shown(entry.difference, entry.decimals, "+")
        of = [entry.variant, entry.cell, *([entry.column] if with_columns else [])]
        lines.append(_row([*of, *([paper, _ours(entry, seeds), difference] if with_paper else [_ours(entry, seeds)])]))
    return lines


def _seeds(entries: Sequence[Entry]) -> int:
    """How many seeds were run, of the entry that has most of them."""
    return max((len(entry.by_seed) for entry in entries), default=0)


def _row(cells: Sequence[str]) -> str:
    """A line of the table; a bar in a name, as in "p(x|y)", is none between two cells."""
    return f"| {' | '.join(cell.replace('|', BAR) for cell in cells)} |"


def _means(entries: Sequence[Entry]) -> list[str]:
    """Lines of means over the cells of each variant and column, for accuracies only: counts have no meaningful mean.

    Variants that lack a number in a cell have none.
    """
    rows = []
    accuracies = [entry for entry in entries if entry.kind == "accuracy"]
    with_paper = any(entry.paper is not None for entry in entries)
    for variant, column in dict.fromkeys((entry.variant, entry.column) for entry in accuracies):
        own = [entry for entry in accuracies if (entry.variant, entry.column) == (variant, column)]
        ours = [entry.mean for entry in own if entry.mean is not None]
        paper = [entry.paper for entry in own if entry.paper is not None]
        if len(ours) == len({entry.cell for entry in accuracies if entry.column == column}):
            printed = statistics.mean(paper) if len(paper) == len(own) else None
            near = sum(entry.difference is not None and abs(entry.difference) <= NEAR for entry in own)
            among = f"{near} of {len(own)}" if printed is not None else "–"
            mean = _shown(statistics.mean(ours), 2)
            rows.append(_row([variant, column, *([_shown(printed, 2), mean, among] if with_paper else [mean])]))
    if not rows:
        return []
    numbers = ["paper", "ours", f"cells within {NEAR:g} points"] if with_paper else ["mean"]
    head = _row(["variant", "column", *numbers])
    return ["", "Means over the cells:", "", head, f"|---|---|{'--:|' * len(numbers)}", *rows]


def _drops(experiment: Experiment, entries: Sequence[Entry]) -> list[str]:
    """Lines of each variant's numbers across the cells, and of the largest drop below the cell of reference."""
    cells = [experiment.reference, *(cell.name for cell in experiment.cells if cell.name != experiment.reference)]
    lines = []
    for variant, column in dict.fromkeys((entry.variant, entry.column) for entry in entries):
        own = {entry.cell: entry for entry in entries if (entry.variant, entry.column) == (variant, column)}
        shown = [_mean(own[cell]) if cell in own else "–" for cell in cells]
        drop = worst_drop(own, experiment.reference)
        lost = [entry for entry in own.values() if entry.diverged and entry.mean is None]
        worst = _ended(lost[0]) if lost else "–" if drop is None else f"{drop:.2f}"
        lines.append(_row([" ".join((variant, column)).strip(), *shown, worst]))
    head = ["", f"How far each falls behind its own number in “{experiment.reference}”, at worst:", ""]
    return [*head, _row(["variant", *cells, "worst drop"]), f"|---|{'--:|' * (len(cells) + 1)}", *lines]


def _best(experiment: Experiment, entries: Sequence[Entry]) -> list[str]:
    """Lines of each variant's best cell by each column that seeks one, beside the paper's."""
    columns = [column for column in experiment.columns if column.seek]
    run = dict.fromkeys(entry.variant for entry in entries)
    variants = [variant for variant in experiment.variants if variant.name in run]
    with_paper = any(variant.paper_best for variant in variants)
    heads = ["variant", *(["paper"] if with_paper else [])]
    rows = [[variant.name, *([variant.paper_best or "–"] if with_paper else [])] for variant in variants]
    counts = []
    for column in columns:
        heads += [f"best by {column.name}", column.name, *([f"{column.name} at the paper's"] if with_paper else [])]
        within = 0
        for row, variant in zip(rows, variants, strict=True):
            own = {e.cell: e for e in entries if (e.variant, e.column) == (variant.name, column.name)}
            best = best_entry(list(own.values()), column)
            row += ["–", "–"] if best is None else [best.cell, _mean(best)]
            row += [_mean(own[variant.paper_best]) if variant.paper_best in own else "–"] if with_paper else []
            within += best is not None and best.cell in experiment.expected
        expected = ", ".join(experiment.expected)
        counts.append(f"Best by {column.name} among {expected}: {within} of {counted(len(variants), 'variant')}.")
    aligned = "".join("--:|" if head in {column.name for column in columns} else "---|" for head in heads)
    lines = ["", "The best cells:", "", _row(heads), f"|{aligned}", *map(_row, rows)]
    return [*lines, "", *counts] if experiment.expected else lines


def best_entry(entries: Sequence[Entry], column: Column) -> Entry | None:
    """The first entry with the mean that a column seeks, among those without diverged seeds; None if there is none."""
    means = {place: entry.mean for place, entry in enumerate(entries) if entry.mean is not None and not entry.diverged}
    pick = min if column.seek == "lowest" else max
    return entries[pick(means, key=means.__getitem__)] if means else None


def worst_drop(entries: Mapping[str, Entry], reference: str) -> float | None:
    """Drop from the mean of ``reference`` to the worst mean of other cells; None if there is nothing to compare."""
    means = {cell: entry.mean for cell, entry in entries.items() if entry.mean is not None}
    start = means.pop(reference, None)
    if start is None or not means:
        return None
    drop = max(means.values()) - start if entries[reference].is_less_better else start - min(means.values())
    return None if math.isnan(drop) else drop  # of two that are infinite


def _mean(entry: Entry) -> str:
    return _ended(entry) if entry.diverged and entry.mean is None else _shown(entry.mean, entry.decimals)


def _ended(entry: Entry) -> str:
    return "privacy spent" if entry.spent == entry.diverged else "diverged"


def _ours(entry: Entry, seeds: int) -> str:
    if entry.lacks:
        return f"not run: no {entry.lacks}"
    known = len(entry.known)
    some = f" ({known} of {seeds})" if known < seeds else ""
    deviation = f" ± {entry.deviation:.{max(entry.decimals, 0)}f}" if entry.deviation is not None else ""
    counts = {"diverged": entry.diverged - entry.spent, "spent their privacy": entry.spent}
    counts |= {"with broken promises": entry.broken}
    ended = "".join(f" ({count} {how})" for how, count in counts.items() if count)
    return f"{_shown(entry.mean, entry.decimals)}{deviation}{some}{ended}"


def _shown(value: float | None, decimals: int, sign: str = "") -> str:
    return "–" if value is None else f"{value:{sign}.{decimals}f}"
