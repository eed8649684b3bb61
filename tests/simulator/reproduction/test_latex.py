"""The table for a paper: what it says, and that LaTeX takes it."""

import itertools
import json
import math
import re
import shutil
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from fedchain.simulator.reproduction.experiment import Experiment
from fedchain.simulator.reproduction.latex import EXACT_MAX, SEEDS_MIN, paired_p, to_latex
from fedchain.simulator.reproduction.table import Entry, tabulate
from tests.support.simulator.tiny_experiment import TABLE, load

ODD = "*50 % of A_1 & B #2 {x} [α, λ] ~ ^ \\ $ <ρ> | σ×2 → Ω ≥ 1 ± … “é” ö² x₂ ﬁ µ ế 中 \u0323"

REACH = """
[[columns]]
statistic = "reach"
mark = 0.5
"""


def table(tmp_path: Path, seeds: int) -> tuple[Experiment, str]:
    experiment = load(tmp_path)
    better = tuple(60.0 + seed for seed in range(seeds))
    worse = tuple(value - 1 - seed % 2 for seed, value in enumerate(better))
    cells = ("few", ODD)
    entries = [
        Entry(name, cell, "", None, dict(enumerate(values)), "accuracy")
        for name, values in (("[DFPL]", better), (ODD, worse))
        for cell in cells
    ]
    return experiment, to_latex(experiment, entries)


@pytest.mark.parametrize("seeds", [1, 3, 8])
def test_latex_takes_the_table(tmp_path: Path, seeds: int) -> None:
    _, text = table(tmp_path, seeds)
    if shutil.which("pdflatex"):
        (tmp_path / "table.tex").write_text(text)
        page = r"\documentclass{article}\usepackage{booktabs}\begin{document}\input{table}\end{document}"
        (tmp_path / "page.tex").write_text(page)
        subprocess.run(["pdflatex", "-halt-on-error", "page"], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    assert not re.search(r"(\\\\|rule)\s*[\[*]", text), "a row that begins so is an argument of what is before it"
    plain = re.sub(r"\\[\\{}&%$#_]", "", text.partition("\n")[2])
    depth = list(itertools.accumulate({"{": 1, "}": -1}.get(letter, 0) for letter in plain))
    assert (min(depth), depth[-1]) == (0, 0)
    assert plain.count("$") % 2 == 0
    assert not set("%#~") & set(plain)
    assert re.findall(r"\\begin\{(\w+)\}", text) == re.findall(r"\\end\{(\w+)\}", text)[::-1]
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert [len(re.findall(r"(?<!\\)&", row)) for row in rows] == [2, 2, 2]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ρ → σ × Ω ≥ −1 ± ∞", r"$\rho$ $\rightarrow$ $\sigma$ $\times$ $\Omega$ $\geq$ $-$1 $\pm$ $\infty$"),
        ("a<b|c>d…", r"a$<$b$|$c$>$d\ldots{}"),
        ("Gómez, e\u0301, Łódź, ß, ế", r"G\'{o}mez, \'{e}, \L{}\'{o}d\'{z}, \ss{}, \'{\^{e}}"),
        ("10⁻² x² x₂ ½ ﬁ µ", r"10$^{-}$$^{2}$ x$^{2}$ x$_{2}$ 1/2 fi $\mu$"),
        ("“so” – 5\u00a0°\n中", r"``so'' -- 5~$^\circ$ U+4E2D"),
    ],
)
def test_names_are_told_in_letters_that_latex_has(name: str, text: str, tmp_path: Path) -> None:
    found = to_latex(load(tmp_path), [Entry(name, "", "", None, {0: 1.0}, "count")])
    assert f"\n{text} & $1$ \\\\\n" in found
    assert found.isascii()


def test_the_best_is_bold_and_the_others_have_a_p_if_there_are_seeds_enough(tmp_path: Path) -> None:
    _, text = table(tmp_path, 8)
    assert text.count(r"$\mathbf{63.50} \pm 2.45$") == 2
    assert text.count(r"\ (p = 0.0078)$") == 2  # all differences have one sign: 2 of 2^8
    assert "exact paired two-sided permutation test against it over the seeds that both have" in text
    _, least = table(tmp_path, SEEDS_MIN)
    assert least.count(r"\ (p = 0.031)$") == 2
    _, few = table(tmp_path, SEEDS_MIN - 1)
    assert "(p" not in few
    assert f"No test: a paired permutation test needs at least {SEEDS_MIN} seeds." in few


def reached(tmp_path: Path, *rows: Mapping[int, float | None]) -> str:
    """The table of two methods and the rounds in which they reached a mark, by seed."""
    experiment = load(tmp_path, TABLE.replace("[scenario]", REACH + "[scenario]", 1).replace("[50.0]", "[nan]"))
    named = ((f"m{place}", row) for place, row in enumerate(rows))
    return to_latex(experiment, [Entry(name, "", "", None, row, "count", is_less_better=True) for name, row in named])


def test_pairs_are_of_one_seed_where_results_lack(tmp_path: Path) -> None:
    """By position, the numbers of the second would be of another seed each, and larger and smaller in turn."""
    first = {seed: 10.0 * (seed % 2) for seed in range(9)}
    text = reached(tmp_path, first, {seed: first[seed] + 1 for seed in range(1, 9)})
    assert r"\ (p = 0.0078)$ (8 of 9)" in text  # all differences have one sign: 2 of 2^8


def test_infinite_numbers_have_no_deviation_and_no_p(tmp_path: Path) -> None:
    """Their differences from others are infinite or none at all, and every such test came out as certain."""
    text = reached(tmp_path, dict.fromkeys(range(8), 3.0), dict.fromkeys(range(8), math.inf))
    assert r"$\mathbf{3} \pm 0$" in text
    assert "$inf$" in text


def test_what_was_not_reached_under_all_seeds_is_not_the_best(tmp_path: Path) -> None:
    text = reached(tmp_path, dict.fromkeys(range(3), 9.0), {0: 2.0, 1: None, 2: 3.0})
    assert r"$\mathbf{9} \pm 0$" in text
    assert r"$2 \pm 1$ (2 of 3)" in text
    assert "mathbf" not in reached(tmp_path, {0: 9.0, 1: None}, {0: None, 1: 3.0})


def test_all_that_are_equally_good_are_bold(tmp_path: Path) -> None:
    """The first of them was, and a reader took the others for worse."""
    text = reached(tmp_path, {0: 2.0, 1: 3.0}, {0: 3.0, 1: 2.0}, {0: 4.0, 1: 3.0}, {0: 2.5, 1: None})
    assert text.count(r"$\mathbf{2} \pm 1$") == 2
    assert text.count("mathbf") == 2


@pytest.mark.parametrize("metric", ["", "taa_received"])
def test_the_lowest_of_a_loss_is_the_best_also_where_the_variants_name_it(tmp_path: Path, metric: str) -> None:
    """It was where the column does alone. A loss and an accuracy have no best between them."""
    text = TABLE.replace("[50.0]", "[nan]").replace('metric = "taa_received"', f'metric = "{metric or "tal"}"')
    experiment = load(
        tmp_path, text.replace('{ method = "fedavg" }\npaper', '{ method = "fedavg" }\nmetric = "tal"\npaper')
    )
    for run in experiment.runs({}):
        rows = [{"round": 1, "tal": 0.5, "taa_received": 0.75}]
        (tmp_path / f"{run.key}.json").write_text(json.dumps({"rows": rows}))
    assert ("mathbf" in to_latex(experiment, tabulate(experiment, tmp_path, {}))) is not bool(metric)


@pytest.mark.parametrize(("seek", "best"), [("lowest", 0.5), ("highest", 0.75), ("", 0.5)])
def test_what_a_column_seeks_is_the_best_as_on_the_page(tmp_path: Path, seek: str, best: float) -> None:
    column = f'[[columns]]\nmetric = "tal"\nseek = "{seek}"\n\n[scenario]'
    text = TABLE.replace("[scenario]", column, 1).replace(
        'after"\nscenario = { method = "fedavg"', 'after"\nscenario = { method = "solo"'
    )
    experiment = load(tmp_path, text.replace("[50.0]", "[nan]"))
    first = experiment.variants[0].name
    for run in experiment.runs({}):
        rows = [{"round": 1, "tal": 0.5 if run.variant == first else 0.75}]
        (tmp_path / f"{run.key}.json").write_text(json.dumps({"rows": rows}))
    found = re.findall(r"mathbf\{(.*?)\}", to_latex(experiment, tabulate(experiment, tmp_path, {})))
    assert set(map(float, found)) == {best}


def test_an_exact_test_is_told_from_one_of_drawn_signs(tmp_path: Path) -> None:
    assert "$p$ of an exact paired two-sided" in table(tmp_path, EXACT_MAX)[1]
    assert "$p$ of a paired two-sided" in table(tmp_path, EXACT_MAX + 1)[1]


def test_the_p_is_that_of_all_signs() -> None:
    ours, theirs = (1.0, 2.5, 3.0, 4.0, 5.5, 7.0), (1.5, 2.0, 1.0, 4.5, 4.0, 5.0)
    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
    flipped = [sum(map(float.__mul__, differences, signs)) for signs in itertools.product((1.0, -1.0), repeat=6)]
    assert paired_p(ours, theirs) == statistics.mean(abs(total) >= abs(sum(differences)) for total in flipped)
    assert paired_p(ours, ours) == 1.0


def test_of_many_seeds_signs_are_drawn_the_same_each_time() -> None:
    theirs = [float(seed % 7) for seed in range(EXACT_MAX + 1)]
    ours = [value + (0.5 if seed % 3 else -0.4) for seed, value in enumerate(theirs)]
    sums = np.zeros(1)
    for difference in np.subtract(ours, theirs):
        sums = np.concatenate((sums + difference, sums - difference))
    exact = np.mean(np.abs(sums) > abs(sum(ours) - sum(theirs)) - 1e-9)
    assert paired_p(ours, theirs) == pytest.approx(exact, abs=0.02)
    assert paired_p(ours, theirs) == paired_p(ours, theirs)
    assert paired_p(theirs, theirs) == 1.0


def test_a_method_alone_is_not_the_best_of_any(tmp_path: Path) -> None:
    assert "mathbf" not in reached(tmp_path, {0: 2.0, 1: 3.0})


def test_heads_say_what_tells_the_numbers_apart(tmp_path: Path) -> None:
    columns = '[[columns]]\nname = "a"\n\n[[columns]]\nname = "b"\n\n[scenario]'
    experiment = load(tmp_path, TABLE.replace("[scenario]", columns, 1).replace("[50.0]", "[nan, nan]"))

    def heads(cells: Sequence[str], names: Sequence[str]) -> list[str]:
        entries = [Entry("v", cell, name, None, {0: 1.0}, "count") for cell in cells for name in names]
        (head,) = re.findall(r"toprule\n & (.*) \\\\\n", to_latex(experiment, entries))
        return list[str](head.split(" & "))

    assert heads(["few"], ["a", "b"]) == ["a", "b"]
    assert heads(["few", "more"], ["a"]) == ["few", "more"]
    assert heads(["few", "more"], ["a", "b"]) == ["few, a", "few, b", "more, a", "more, b"]
    assert heads(["few"], ["a"]) == ["few: a"]


def test_a_measure_that_the_first_method_lacks_stands_where_it_was_asked_for(tmp_path: Path) -> None:
    """It came behind all cells, so that a cell's numbers stood in two places."""
    columns = '[[columns]]\nname = "a"\n\n[[columns]]\nname = "b"\n\n[[columns]]\nname = "c"\n\n[scenario]'
    experiment = load(tmp_path, TABLE.replace("[scenario]", columns, 1).replace("[50.0]", "[nan, nan, nan]"))
    entries = [
        Entry(variant, cell, name, None, {0: None if (variant, name) in lacks else 1.0}, "count")
        for lacks in [{("SOLO", "a"), ("SOLO", "c"), ("FedAvg", "c")}]
        for variant, cell, name in itertools.product(("SOLO", "FedAvg"), ("few", "more"), "abc")
    ]
    assert "\n & few, a & few, b & more, a & more, b \\\\\n" in to_latex(experiment, entries)
