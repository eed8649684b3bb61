"""The cross-site matrix as a table."""

import io

from rich.console import Console

from fedchain.simulator.trained.measure import CrossSite
from fedchain.simulator.trained.table import cross_site_table


def test_each_model_has_its_own_and_the_mean_of_the_others() -> None:
    matrix = CrossSite(sites=(0, 1, 2), owners=(0, None), accuracies=((0.5, 0.25, 0.75), (1.0, 0.5, 0.0)))
    out = io.StringIO()
    Console(file=out, width=100).print(cross_site_table(matrix, "title"))
    lines = [line.split() for line in out.getvalue().splitlines()]
    assert ["0", "50.0", "25.0", "75.0", "50.00", "50.00"] in lines
    assert ["aggregate", "100.0", "50.0", "0.0", "–", "50.00"] in lines
