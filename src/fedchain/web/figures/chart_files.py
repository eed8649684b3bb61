"""Charts as files: the picture as SVG with its text, and all values as CSV."""

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment
from starlette.datastructures import QueryParams

from fedchain.chain.exceptions import NotFound
from fedchain.web.charts import Chart
from fedchain.wording import printable

FILE = "file"
"""Name behind the question mark that asks for a file of a page's chart: the chart's name, and ``.svg`` or ``.csv``."""

CSV = "text/csv; charset=utf-8"

STROKES = (
    *(("#0072b2", ""), ("#d55e00", "9 5"), ("#009e73", "2 5"), ("#b5558c", "12 4 2 4")),
    *(("#56b4e9", ""), ("#c98600", "6 3"), ("#15202b", "2 3"), ("#7a5cc7", "10 3 2 3 2 3")),
)
"""Colours and dashes of the line styles, as ``explorer.css`` has them for light pages."""


def page_file(templates: Environment, context: Mapping[str, Any], question: QueryParams) -> tuple[bytes, str]:
    """A file of a page, most often of one of its charts, and its media type. Raises NotFound.

    Args:
        templates: the pages' templates.
        context: the values of the page.
        question: the end of the address: the file, and the parts of charts that are shown.
    """
    if (write := context.get("files", {}).get(question[FILE])) is not None:
        return write().encode(), CSV
    name, _, kind = question[FILE].rpartition(".")
    chart = next((chart.seen(question) for chart in _charts(context) if chart.name == name), None)
    if chart is None or kind not in ("svg", "csv"):
        raise NotFound(f"this page has no file {question[FILE]}")
    if kind == "csv":
        return chart_csv(chart).encode(), CSV
    text = templates.get_template("chart.svg").render(chart=chart, strokes=STROKES, height=150 + 20 * _entries(chart))
    return text.encode(), "image/svg+xml"


def chart_csv(chart: Chart) -> str:
    """The values of the part that is drawn: all points of all lines, and the limits of areas; none is left out."""
    part, unit = chart.values.within(chart.view), chart.values.unit
    noted = " (fraction)" if unit == "%" else f" ({unit})" if unit else ""
    columns = {f"{label}{noted}": dict(points) for label, points in part.series}
    for label, limits in part.areas:
        columns |= {f"{label}, lowest{noted}": {x: low for x, low, _ in limits}}
        columns |= {f"{label}, highest{noted}": {x: high for x, _, high in limits}}
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([chart.x_name, *map(_plain, columns)])
    for x in sorted({x for column in columns.values() for x in column}):
        writer.writerow([f"{x:.0f}", *(column.get(x, "") for column in columns.values())])
    return file.getvalue()


def _plain(name: str) -> str:
    """A name that no spreadsheet takes for a formula."""
    return printable(f"'{name}" if name.startswith(("=", "+", "-", "@")) else name)


def query_of(question: QueryParams, chart: Chart, file: str = "") -> str:
    """The end of an address: of the page with the whole of a chart, or of a file of the part that is shown."""
    if file:
        return f"?{urlencode([*question.multi_items(), (FILE, f'{chart.name}.{file}')])}"
    return f"?{urlencode(others_in(question, chart))}"


def others_in(question: QueryParams, chart: Chart) -> list[tuple[str, str]]:
    """Names and values behind the question mark that are not about the chart."""
    return [(name, value) for name, value in question.multi_items() if not name.startswith(f"{chart.name}.")]


def _charts(context: Mapping[str, Any]) -> Iterator[Chart]:
    for value in context.values():
        yield from (item for item in (value if isinstance(value, list) else [value]) if isinstance(item, Chart))


def _entries(chart: Chart) -> int:
    return len(chart.lines) + len(chart.bands)
