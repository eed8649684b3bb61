"""How tables meet a terminal: nothing is markup, what is too wide goes on below, and a closed pipe is for others."""

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console as RichConsole
from rich.console import ConsoleOptions, RenderResult
from rich.table import Column, Table

GAP = 2
"""Blanks between columns."""


class Console(RichConsole):
    """A console for texts that others wrote: none of it is markup."""

    def __init__(self, *, quiet: bool = False) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, quiet=quiet)

    def on_broken_pipe(self) -> None:
        """Leave it to whoever runs the command: rich would exit with 1, which commands use for answers."""
        raise BrokenPipeError


class Fitted:
    """A table that loses nothing on a narrow terminal: columns that do not fit go on below, beside the first ones.

    Where rich makes a table fit, numbers are cut, or broken in the middle.
    """

    def __init__(self, table: Table, keys: int = 1) -> None:
        """Fit ``table``, whose first ``keys`` columns say which row it is; they are repeated in each part."""
        self._table = table
        self._keys = keys

    def __rich_console__(self, console: RichConsole, options: ConsoleOptions) -> RenderResult:
        """Yield the table, or several that show it."""
        groups = list(_groups([_width(column) for column in self._table.columns], self._keys, options.max_width))
        for place, group in enumerate(groups):
            if place:
                yield ""
            yield self._part(group, is_first=place == 0, is_last=place == len(groups) - 1)

    def _part(self, places: Sequence[int], *, is_first: bool, is_last: bool) -> Table:
        whole = self._table
        part = Table(
            title=whole.title if is_first else None,
            caption=whole.caption if is_last else None,
            title_justify="left",
            caption_justify="left",
            box=None,
            pad_edge=False,
            padding=(0, GAP, 0, 0),
            header_style=whole.header_style,
        )
        columns = [whole.columns[place] for place in places]
        for column in columns:
            part.add_column(column.header, justify=column.justify, style=column.style, no_wrap=True)
        for row, cells in zip(whole.rows, zip(*(column.cells for column in columns), strict=True), strict=True):
            part.add_row(*cells, style=row.style)
        return part


def _width(column: Column) -> int:
    lines = [line for text in (column.header, *column.cells) for line in str(text).splitlines()]
    return max(map(cell_len, lines), default=0) + GAP


def _groups(widths: Sequence[int], keys: int, width: int) -> Iterator[list[int]]:
    """Columns of each part: the first ``keys``, and as many of the others as fit beside them, but at least one."""
    first = [*range(min(keys, len(widths)))]
    group = first
    for place in range(len(first), len(widths)):
        if len(group) > len(first) and sum(widths[column] for column in (*group, place)) - GAP > width:
            yield group
            group = first
        group = [*group, place]
    yield group
