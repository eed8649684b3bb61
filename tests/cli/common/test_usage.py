"""An error of a command line is one line, in the words of all others."""

import sys

import pytest
import typer

from fedchain.cli.common.usage import usage_line


class Told(typer.TyperException):
    """An error with a message of the library's."""

    def format_message(self) -> str:
        return self.message


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ("Invalid value for '--peers': 'x' is not a valid int.", "--peers is 'x', it must be a whole number; see"),
        ("Invalid value for '--lr': x is not a valid float.", "--lr is x, it must be a number; see"),
        ("Invalid value for '--port': 7 is not in the range 0<=x<=5.", "--port is 7, it must be between 0 and 5; see"),
        ("Invalid value for '--peers': 0 is not in the range x>=1.", "--peers is 0, it must be at least 1; see"),
        ("Invalid value for 'path': is empty", "path is empty; see"),
        ("Option '--peers' requires an argument.", "--peers needs a value; see"),
        ("No such option: --per. Did you mean --peers?", "there is no option --per; did you mean --peers? see"),
        ("Missing argument 'OUT'.", "argument 'OUT' is missing; see"),
        ("Got unexpected extra argument (y)", "nothing is known of y; see"),
        ("two\n  lines", "two lines; see"),
    ],
)
def test_the_librarys_words_are_replaced(said: str, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["fedchain", "simulate"])
    assert usage_line(Told(said), ["simulate"]) == f"fedchain: {line} fedchain simulate --help"


def test_a_command_without_words_is_answered_with_its_help(monkeypatch: pytest.MonkeyPatch) -> None:
    assert usage_line(Told("Usage: fedchain …\n\nOptions"), []) == "Usage: fedchain …\n\nOptions"
    monkeypatch.setattr(sys, "argv", ["fedchain", "nonsense"])
    assert usage_line(Told("odd"), ["simulate"]) == "fedchain: odd; see fedchain --help"
