"""Options of a group: before and after a command's name, and only where a command takes them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner, Result

from fedchain.cli.common.shared import Sharing


def _options(
    level: Annotated[int, typer.Option(help="How much.")] = 1,
    names: Annotated[list[str] | None, typer.Option("--name")] = None,
    loud: Annotated[bool, typer.Option("--loud")] = False,
) -> None:
    """The options of several commands."""


app = Sharing(_options, help="A group.")


@app.command()
def say(
    word: str, end: Annotated[str, typer.Option()] = ".", *, level: int, names: list[str] | None, loud: bool
) -> None:
    typer.echo(f"{word}{end} {level} {list(names or ())} {loud}")


@dataclass(frozen=True)
class Voice:
    """Two of the options."""

    level: int
    loud: bool


@app.command()
def sing(word: str, *, voice: Voice, names: list[str] | None) -> None:
    typer.echo(f"{word} {voice.level} {list(names or ())} {voice.loud}")


@app.command()
def hear(*, loud: bool) -> None:
    typer.echo(str(loud))


def run(line: str) -> Result:
    return CliRunner().invoke(app, line.split())


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("say a", "a. 1 [] False"),
        ("say a --level 3 --name x --name y --loud", "a. 3 ['x', 'y'] True"),
        ("--level 3 --name x --name y --loud say a", "a. 3 ['x', 'y'] True"),
        ("--level 3 --loud say --level 0 a --end !", "a! 0 [] True"),
        ("say -- --loud", "--loud. 1 [] False"),
        ("--level 3 hear", "False"),
        ("--level 3 sing a --loud --name x", "a 3 ['x'] True"),
    ],
)
def test_an_option_stands_before_or_after_the_command(line: str, shown: str) -> None:
    result = run(line)
    assert (result.exit_code, result.stdout) == (0, f"{shown}\n"), result.output


def test_a_value_is_checked_wherever_it_stands() -> None:
    for line in ("--level much say a", "say a --level much"):
        assert run(line).exit_code == 2


def test_a_command_refuses_what_it_does_not_take() -> None:
    assert run("hear --level 3").exit_code == 2
    assert "--level" not in run("hear --help").stdout


def test_help_of_a_command_shows_what_it_takes() -> None:
    assert "How much." in run("say --help").stdout
    assert "How much." in run("--help").stdout


def _arguments(
    folder: Annotated[Path, typer.Argument(help="Where.")],
    kind: Annotated[Path, typer.Option(help="Which.")],
) -> None:
    """Arguments of several commands, and an option that has no default."""


table = Sharing(_arguments, help="A group.")


@table.command()
def put(word: Annotated[str, typer.Argument()], folder: Path) -> None:
    typer.echo(f"{word} {folder / 'a'}")


@table.command()
def get(folder: Path, kind: Path) -> None:
    typer.echo(f"{folder / 'a'} {kind / 'b'}")


@pytest.mark.parametrize(
    ("line", "shown"), [("put w x", "w x/a"), ("get x --kind y", "x/a y/b"), ("get --kind y x", "x/a y/b")]
)
def test_shared_arguments_come_in_the_order_of_the_function_s(line: str, shown: str) -> None:
    result = CliRunner().invoke(table, line.split())
    assert (result.exit_code, result.stdout) == (0, f"{shown}\n"), result.output


@pytest.mark.parametrize("line", ["put w", "get x", "get --kind y", "put w x y", "put w x --kind y"])
def test_what_a_command_needs_is_asked_for(line: str) -> None:
    assert CliRunner().invoke(table, line.split()).exit_code == 2
