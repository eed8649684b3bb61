"""Tables on a terminal: nothing is markup, tables that are too wide go on below, and a closed pipe is an error."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from textwrap import wrap
from types import MappingProxyType

from rich.cells import cell_len
from rich.console import Console as RichConsole
from rich.console import ConsoleOptions, RenderResult
from rich.table import Column, Table
from rich.text import Text

GAP = 2
"""Blanks between columns."""


class Console(RichConsole):
    """A console for texts that others wrote: none of it is markup."""

    def __init__(self, *, quiet: bool = False) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, quiet=quiet)

    @property
    def is_terminal(self) -> bool:
        """Whether it is a terminal that moves its cursor. One that does not, as in an editor, shows lines alone."""
        return super().is_terminal and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")

    def on_broken_pipe(self) -> None:
        """Leave it to the caller of the command: rich would exit with 1, which commands use for answers."""
        raise BrokenPipeError


@contextmanager
def step(console: RichConsole, text: str) -> Iterator[None]:
    """Show ``text`` while the code inside runs: with a spinner on a terminal, as a line elsewhere."""
    if not console.is_terminal:
        console.print(text, soft_wrap=True)
        yield
        return
    with console.status(text):
        yield


class Facts:
    """Labels and texts, a line each; words that do not fit beside their labels go on below.

    A text without blanks, such as a hash, is never broken, so that it can be copied: it gets a line of its own.
    """

    def __init__(self, texts: Mapping[str, str], styles: Mapping[str, str] = MappingProxyType({})) -> None:
        """Show each of ``texts`` beside its label, in the label's style if ``styles`` has one."""
        self._texts = texts
        self._styles = styles

    def __rich_console__(self, console: RichConsole, options: ConsoleOptions) -> RenderResult:
        """Yield the lines; print them with ``crop=False``."""
        indent = max(map(cell_len, self._texts), default=0) + GAP
        for label, text in self._texts.items():
            lines, first = _words(text, options.max_width - indent), label
            style = self._styles.get(label, "")
            if any(cell_len(line) > options.max_width - indent for line in lines):
                yield _line(label, "", 0)
                lines, first = _words(text, options.max_width - GAP), ""
            for place, line in enumerate(lines):
                yield _line(first if place == 0 else "", line, indent if first else GAP, style)


class Fitted:
    """A table that loses nothing on a narrow terminal: columns that do not fit go on below, beside the first ones.

    If rich made the table fit, it would cut numbers, or break them in the middle.
    """

    def __init__(self, table: Table, keys: int = 1, gap: int = GAP) -> None:
        """Fit ``table``, whose first ``keys`` columns say which row it is; they are repeated in each part.

        The table keeps its title, caption, headings, cells and styles; ``gap`` blanks separate its columns.
        """
        self._table = table
        self._keys = keys
        self._gap = gap

    def __rich_console__(self, console: RichConsole, options: ConsoleOptions) -> RenderResult:
        """Yield the table, or several that show it."""
        if self._table.title:
            yield Text(str(self._table.title), style="bold")
        for place, group in enumerate(self._groups(options.max_width)):
            if place:
                yield ""
            part = self._part(group)
            keys, last = group[:-1], self._table.columns[group[-1]]
            needed = sum(_width(self._table.columns[key]) + self._gap for key in keys) + _width(last, by_words=True)
            part.width = needed if needed > options.max_width else None
            yield part
        if self._table.caption:
            yield Text(str(self._table.caption), style="dim")

    def _groups(self, width: int) -> Iterator[list[int]]:
        """Columns of each part: those that name the row, and as many others as fit, but at least one."""
        widths = [_width(column) + self._gap for column in self._table.columns]
        first = [*range(min(self._keys, len(widths)))]
        group = first
        for place in range(len(first), len(widths)):
            if len(group) > len(first) and sum(widths[column] for column in (*group, place)) - self._gap > width:
                yield group
                group = first
            group = [*group, place]
        if group:  # a table of no rows may have no columns
            yield group

    def _part(self, places: Sequence[int]) -> Table:
        whole = self._table
        part = Table(box=None, pad_edge=False, padding=(0, self._gap, 0, 0), header_style=whole.header_style)
        columns = [whole.columns[place] for place in places]
        for column in columns:
            # A text that is wider than the terminal is the last column of its part, and the only one broken, at blanks.
            is_text = column is columns[-1] and column.justify == "left"
            part.add_column(column.header, justify=column.justify, style=column.style, no_wrap=not is_text)
        for row, cells in zip(whole.rows, zip(*(column.cells for column in columns), strict=True), strict=True):
            part.add_row(*cells, style=row.style)
        return part


def _words(text: str, width: int) -> list[str]:
    """The lines of a text, broken at blanks if they are longer than ``width``; no word is broken."""
    parts = text.splitlines() or [""]
    width = max(1, width)
    return [
        line for part in parts for line in wrap(part, width, break_long_words=False, break_on_hyphens=False) or [""]
    ]


def _line(label: str, text: str, indent: int, style: str = "") -> Text:
    blanks = " " * (indent - cell_len(label))
    return Text.assemble((label, "dim"), blanks, (text, style), no_wrap=True, overflow="ignore")


def _width(column: Column, *, by_words: bool = False) -> int:
    """Width of a column as it is or, ``by_words``, the least width that breaks no word in it."""
    texts = map(str, (column.header, *column.cells))
    lines = (part for text in texts for part in (text.split() if by_words else text.splitlines()))
    return max(map(cell_len, lines), default=0)
