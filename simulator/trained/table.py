"""The cross-site matrix as a table."""

from rich.table import Table

from fedchain.simulator.trained.measure import CrossSite


def cross_site_table(matrix: CrossSite, title: str) -> Table:
    """A row for each model: its accuracy in percent on each test set, on its own, and on average over the others."""
    table = Table(title=title, box=None, padding=(0, 1), header_style="bold")
    table.add_column("model", no_wrap=True)
    for site in matrix.sites:
        table.add_column(str(site), justify="right", no_wrap=True)
    table.add_column("own", justify="right", no_wrap=True)
    table.add_column("others", justify="right", no_wrap=True)
    for owner, row in zip(matrix.owners, matrix.accuracies, strict=True):
        own = [value for site, value in zip(matrix.sites, row, strict=True) if site == owner]
        others = [value for site, value in zip(matrix.sites, row, strict=True) if site != owner]
        name = "aggregate" if owner is None else str(owner)
        table.add_row(name, *(_percent([value], 1) for value in row), _percent(own, 2), _percent(others, 2))
    return table


def _percent(values: list[float], decimals: int) -> str:
    return f"{100 * sum(values) / len(values):.{decimals}f}" if values else "–"
