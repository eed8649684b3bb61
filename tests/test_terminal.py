"""Lines where there is no terminal."""

import io

import pytest
from rich.table import Table

from fedchain.terminal import Console, Fitted, step


def test_what_is_done_meanwhile_is_said_in_a_line_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with step(Console(), "preparing [bold]digits"):
        assert capsys.readouterr().out == "preparing [bold]digits\n"
    assert capsys.readouterr().out == ""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("kind", ["dumb", "xterm"])
def test_a_terminal_that_moves_no_cursor_shows_lines(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It showed nothing: neither a panel nor the lines that stand in for one."""
    monkeypatch.setenv("TERM", kind)
    console = Console()
    console.file = Terminal()
    with step(console, "preparing digits"):
        assert (console.file.getvalue() == "preparing digits\n") == (kind == "dumb")


def test_a_table_without_columns_is_its_title(capsys: pytest.CaptureFixture[str]) -> None:
    Console().print(Fitted(Table(title="no rounds yet")))
    assert capsys.readouterr().out == "no rounds yet\n"
