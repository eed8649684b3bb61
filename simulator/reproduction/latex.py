"""The table of an experiment for a paper: booktabs, mean ± standard deviation, the best in bold, and a paired test."""

import math
import unicodedata
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedchain.simulator.reproduction.experiment import Experiment
from fedchain.simulator.reproduction.table import Entry

SEEDS_MIN = 6
"""Fewest seeds of the test: with five, no outcome of its 2^5 has a p below 0.05."""

EXACT_MAX = 14
"""Most seeds of which all 2^n signs are tried; above, so many are drawn."""

_COMMANDS = {
    "αβγδεζηθικλμ": "alpha beta gamma delta varepsilon zeta eta theta iota kappa lambda mu",
    "νξπρστυφχψω": "nu xi pi rho sigma tau upsilon varphi chi psi omega",
    "ΓΔΘΛΞΠΣΥΦΨΩ": "Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega",
    "ςϵϑϕ": "varsigma epsilon vartheta phi",
    "×÷±∓·∘∗√": "times div pm mp cdot circ ast surd",
    "≤≥≠≈≡∼∝≪≫": "leq geq neq approx equiv sim propto ll gg",
    "←→↑↓↔⇐⇒⇔↦": "leftarrow rightarrow uparrow downarrow leftrightarrow Leftarrow Rightarrow Leftrightarrow mapsto",
    "∞∂∇∑∏∫∈∉⊂⊆∩∪∅∀∃": "infty partial nabla sum prod int in notin subset subseteq cap cup emptyset forall exists",
}
"""Letters and signs of mathematics, and the names of their commands."""

_MATHS = {
    letter: f"$\\{name}$"
    for letters, names in _COMMANDS.items()
    for letter, name in zip(letters, names.split(), strict=True)
}

_SPECIAL = {
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    **{letter: f"{{{letter}}}" for letter in "[*"},  # else they are arguments of the end of the row before
    **{letter: f"${letter}$" for letter in "<>|"},  # in LaTeX's usual font they are other characters
    **_MATHS,
    **{"−": "$-$", "–": "--", "—": "---", "…": r"\ldots{}", "⁄": "/", "‘": "`", "’": "'", "“": "``", "”": "''"},
    **{"ß": r"\ss{}", "æ": r"\ae{}", "Æ": r"\AE{}", "ø": r"\o{}", "Ø": r"\O{}", "œ": r"\oe{}", "Œ": r"\OE{}"},
    **{"ł": r"\l{}", "Ł": r"\L{}", "ı": r"\i{}", "°": r"$^\circ$", "†": r"\dag{}", "§": r"\S{}", "\u00a0": "~"},
}

_ACCENTS = dict(
    zip("\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308\u030a\u030b\u030c\u0327", "`'^~=u.\"rHvc", strict=True)
)
"""Marks that a letter can have, and their commands."""


def to_latex(experiment: Experiment, entries: Sequence[Entry]) -> str:
    r"""A table to be \input: a row for each variant, and a number for each cell and column.

    The best is sought among the variants with a number for every seed that one of them has; of the others, the table
    says how many they have. Beside every mean but the best stands the p of a two-sided paired permutation test against
    it over the seeds that both have; the caption says so, or that there are too few seeds for it.
    """
    measured = {(entry.cell, entry.column) for entry in entries if entry.known}
    in_order = dict.fromkeys((entry.cell, entry.column) for entry in entries)
    places = [place for place in in_order if place in measured]
    variants = list(dict.fromkeys(entry.variant for entry in entries if entry.known))
    found = {(entry.variant, entry.cell, entry.column): entry for entry in entries if entry.known}
    of_place = {place: [found[v, *place] for v in variants if (v, *place) in found] for place in places}
    run = {place: len({seed for entry in of_place[place] for seed in entry.by_seed}) for place in places}
    best = {place: _best(experiment, of_place[place], run[place]) for place in places}
    several = [len({place[part] for place in places}) > 1 for part in (0, 1)]
    heads = [", ".join(name for name, is_told in zip(place, several, strict=True) if is_told) for place in places]
    if not any(several):
        heads = [": ".join(filter(None, place)) for place in places]
    rows = [[_escape(v), *(_number(found.get((v, *p)), best[p], run[p]) for p in places)] for v in variants]
    seeds = max((len(entry.by_seed) for entry in entries), default=0)
    return "\n".join(
        [
            r"% needs \usepackage{booktabs}",
            r"\begin{table}",
            r"\centering",
            f"\\caption{{{_escape(experiment.title)}. {_caption(seeds)}}}",
            f"\\begin{{tabular}}{{l{'r' * len(places)}}}",
            r"\toprule",
            _row(["", *map(_escape, heads)]),
            r"\midrule",
            *map(_row, rows),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def paired_p(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The p of the two-sided permutation test of paired numbers: how often random signs of the differences have a sum
    as far from 0 as theirs is.
    """
    from scipy.stats import permutation_test  # slow to import

    def mean(ours: NDArray[np.float64], theirs: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
        return np.asarray((ours - theirs).mean(axis=axis))

    rng = np.random.default_rng(0)
    found = permutation_test(
        (ours, theirs), mean, permutation_type="samples", n_resamples=2**EXACT_MAX, random_state=rng
    )
    return float(found.pvalue)


def _caption(seeds: int) -> str:
    if seeds < 2:
        return "One seed."
    told = (
        f"Mean $\\pm$ standard deviation of {seeds} seeds; in bold the best that has all, where more or less is better"
    )
    if seeds < SEEDS_MIN:
        return f"{told}. No test: a paired permutation test needs at least {SEEDS_MIN} seeds."
    kind = "an exact" if seeds <= EXACT_MAX else "a"
    return f"{told}; $p$ of {kind} paired two-sided permutation test against it over the seeds that both have."


def _best(experiment: Experiment, entries: Sequence[Entry], seeds: int) -> Entry | None:
    """The entry with the best mean of those with numbers for all ``seeds``.

    None if there is none, if neither more nor less is better, or less for some and more for others, or if there is no
    other entry.
    """
    seek = next(column.seek for column in experiment.columns if column.name == entries[0].column)
    is_less = {entry.is_less_better for entry in entries}
    if len(entries) < 2 or not (seek or is_less == {True} or {entry.kind for entry in entries} == {"accuracy"}):
        return None
    whole = [entry for entry in entries if len(entry.known) == seeds]
    pick = min if True in is_less else max
    return pick(whole, key=lambda entry: entry.mean or 0.0, default=None)


def _number(entry: Entry | None, best: Entry | None, seeds: int) -> str:
    if entry is None or entry.mean is None:
        return "--"
    text = f"{entry.mean:.{entry.decimals}f}"
    is_best = best is not None and (entry.mean, len(entry.known)) == (best.mean, len(best.known))
    if is_best:
        text = f"\\mathbf{{{text}}}"
    if entry.deviation is not None:
        text += f" \\pm {entry.deviation:.{entry.decimals}f}"
    if best is not None and not is_best:
        both = ((value, best.by_seed.get(seed)) for seed, value in entry.by_seed.items())
        pairs = [(ours, theirs) for ours, theirs in both if ours is not None and theirs is not None]
        if len(pairs) >= SEEDS_MIN and all(math.isfinite(ours - theirs) for ours, theirs in pairs):
            text += f"\\ (p = {paired_p(*zip(*pairs, strict=True)):.2g})"
    return f"${text}$" + (f" ({known} of {seeds})" if (known := len(entry.known)) < seeds else "")


def _row(cells: Sequence[str]) -> str:
    return f"{' & '.join(cells)} \\\\"


def _escape(text: str) -> str:
    """A text as LaTeX sets it without further packages; a letter that it has not is told by its number."""
    return "".join(map(_letter, unicodedata.normalize("NFC", text)))


def _letter(letter: str) -> str:
    if letter in _SPECIAL:
        return _SPECIAL[letter]
    if " " <= letter <= "~":
        return letter
    if letter.isspace():
        return " "
    parts = unicodedata.normalize("NFKD", letter)
    first, others = parts[0], parts[1:]
    if parts == letter:
        return f"U+{ord(letter):04X}"
    kind, _, _ = unicodedata.decomposition(letter).partition(" ")
    raised = parts.replace("−", "-")
    if kind in ("<super>", "<sub>") and raised.isascii():
        return f"${'^' if kind == '<super>' else '_'}{{{raised}}}$"
    found = _letter(first)
    for other in others:
        found = f"\\{_ACCENTS[other]}{{{found}}}" if other in _ACCENTS else found + _letter(other)
    return found
