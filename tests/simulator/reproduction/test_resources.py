"""Tables of best numbers of rounds: read, searched, and set beside the paper's."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedchain.learning.exceptions import ConfigurationError
from fedchain.simulator.planning.estimates import ResourceTable, load_resources, reproduce_resources
from fedchain.simulator.scenario import ScenarioError
from tests.simulator.planning.test_search import fake_results

SHIPPED = Path("experiments/dfpl_tables3_4_fmnist.toml")

TABLE = """
kind = "resources"
name = "tiny"
title = "A tiny table"
source = "Somebody, Table III"
seeds = [0, 1]
total_s = 100
rounds = [4, 6]
expected = [4, 5]

[scenario]
peers = 3

[[cells]]
name = "α = 1"
figure = "fig5"
alpha = 1
beta = 4
paper = 6
scenario = { classes_avg = 2 }

[[cells]]
name = "α = 20"
figure = "fig5"
alpha = 20
beta = 4
paper = 6
scenario = { classes_avg = 2 }
"""


def _load(tmp_path: Path, text: str = TABLE) -> ResourceTable:
    path = tmp_path / "tiny.toml"
    path.write_text(text, encoding="utf-8")
    return load_resources(path)


def test_the_table_counts_the_cells_within_the_expected_range(tmp_path: Path) -> None:
    table = _load(tmp_path)
    fast, slow = table.cells
    losses = {(4, 0): 0.3, (4, 1): 0.3, (6, 0): 0.1, (6, 1): 0.2}
    objectives = {(4, 0): 0.4, (4, 1): 0.5, (6, 0): 0.6, (6, 1): 0.7}
    fake_results(tmp_path / "results", table.scenario_of(fast, {}), table.budget_of(fast), losses, objectives)
    only = {which: loss for which, loss in losses.items() if which[0] == 4}
    fake_results(tmp_path / "results", table.scenario_of(slow, {}), table.budget_of(slow), only)
    entries = reproduce_resources(table, tmp_path, 1, {})
    assert [entry.best("loss").rounds for entry in entries] == [6, 4], "six rounds of 24 s do not fit"
    assert [entry.best("objective").rounds for entry in entries] == [4, 4]
    text = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert "| fig5 | α = 1 | (76, 6) | (76, 6) | 0.1500 | 0.1500 | (84, 4) | 0.4500 | 0.6500 |" in text
    assert "| fig5 | α = 20 | (76, 6) | (84, 4) | 0.3000 | – | (84, 4) | 0.3000 | – |" in text
    assert "Best R by loss between 4 and 5: 1 of 2 cells, 50 %." in text
    assert "Best R by objective between 4 and 5: 2 of 2 cells, 100 %." in text
    assert (tmp_path / "fig5.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("old", "new", "error", "message"),
    [
        ("total_s = 100\n", "", ScenarioError, "lacks the key 'total_s'"),
        ("alpha = 1\n", "alfa = 1\n", ScenarioError, "has no key 'alfa'; did you mean 'alpha'"),
        ("total_s = 100\n", 'total_s = "a"\n', ScenarioError, "total_s is 'a', it must be of type float"),
        ('figure = "fig5"', 'figure = "../fig5"', ScenarioError, "must be the name of a file"),
        ("expected = [4, 5]", "expected = [4]", ScenarioError, "must be an array of 2"),
        ("alpha = 1\n", "alpha = 0\n", ConfigurationError, "alpha is 0.0 s, it must be above 0"),
    ],
)
def test_a_mistake_in_the_file_is_one_clear_line(
    tmp_path: Path, old: str, new: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        _load(tmp_path, TABLE.replace(old, new))


def test_the_shipped_tables_are_the_papers() -> None:
    table = load_resources(SHIPPED)
    assert len(table.cells) == 24
    assert {cell.paper for cell in table.cells} == {5, 6}
    assert {(cell.alpha, cell.beta) for cell in table.cells if cell.figure.startswith("fig5")} == {
        (1, 4),
        (2, 4),
        (3, 4),
        (4, 4),
    }
    assert {(cell.alpha, cell.beta) for cell in table.cells if cell.figure.startswith("fig6")} == {
        (1, 4),
        (1, 5),
        (1, 6),
        (1, 7),
    }
    for cell in table.cells:
        scenario = table.scenario_of(cell, {})
        assert cell.figure.endswith(f"{scenario.classes_avg}-{scenario.classes_std}")
        assert table.budget_of(cell).local_steps(cell.paper) >= 1


def test_fewer_seeds_and_rounds_are_a_smaller_table(tmp_path: Path) -> None:
    table = replace(_load(tmp_path), seeds=(0,), rounds=(4,))
    cell = table.cells[0]
    fake_results(tmp_path / "results", table.scenario_of(cell, {}), table.budget_of(cell), {(4, 0): 0.25})
    (entry,) = reproduce_resources(replace(table, cells=(cell,)), tmp_path, 1, {})
    assert entry.best("loss").rounds == 4
    assert entry.at_paper is None
