"""Settings by name: ``--set NAME=VALUE`` changes a field of a record, or else a hyper-parameter of the method.

Few settings have an option of their own; ``--settings`` lists the others.
"""

import inspect
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import typer

from fedchain.files.field_texts import field_texts
from fedchain.files.tables import ranges_of


class Row(NamedTuple):
    """A setting."""

    name: str
    default: Any
    text: str
    """Its help, with its range if it has one."""
    choices: tuple[str, ...]
    """The values that it may have; empty if they are not counted."""


SET_HELP = "Any other setting, as `--settings` lists them, or a hyper-parameter of the method; repeat it."

SETTINGS_HELP = "List the settings that --set takes beside hyper-parameters, and stop."

NODE_SET_HELP = "Any other setting of the node, as `fedchain node start --settings` lists them; repeat it."

NODE_SETTINGS_HELP = "List the settings that --set takes, and stop."

Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help=SET_HELP, rich_help_panel="Settings")
]
"""The option that gives a setting or a hyper-parameter."""

NodeSet = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help=NODE_SET_HELP, rich_help_panel="Settings")
]
"""The option that gives a setting of a node."""


def divide(settings: Sequence[str], known: Container[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read ``NAME=VALUE`` settings.

    Args:
        settings: as they were given.
        known: names of fields; every other name is a hyper-parameter's.

    Returns:
        Values of fields, and hyper-parameters.

    Raises:
        ConfigurationError: one is not of that form.
    """
    from fedchain.node.founding.task import read_settings

    values = read_settings(settings)
    return (
        {name: value for name, value in values.items() if name in known},
        {name: value for name, value in values.items() if name not in known},
    )


@contextmanager
def settings_offered(
    given: Container[str], settings: Iterable[str], options: Container[str] = (), in_file: Container[str] = ()
) -> Iterator[None]:
    """Have an unknown hyper-parameter answered with the names of settings, too: ``--set`` may mean either.

    Args:
        given: names that ``--set`` gave.
        settings: names of the settings that it takes.
        options: names that it does not take, but which are options of the command.
        in_file: names that it does not take, but which the command's file may have.
    """
    from fedchain.learning.exceptions import ConfigurationError, UnknownName
    from fedchain.learning.registry import HYPERPARAMETER

    try:
        yield
    except UnknownName as error:
        if error.name not in given or not error.kind.startswith(HYPERPARAMETER):
            raise
        if error.name in options:
            raise ConfigurationError(f"--set {error.name}: it is an option of its own, --{error.name}") from None
        if error.name in in_file:
            raise ConfigurationError(f"--set {error.name}: it stands in a scenario's file alone") from None
        raise UnknownName(f"setting or {error.kind}", error.name, {*error.known, *settings}) from None


def rows_of(kind: type, names: Container[str] | None = None, texts: Mapping[str, str] | None = None) -> Iterator[Row]:
    """Fields of a record as rows of ``--settings``, by default all, with their docstrings as help."""
    texts = texts or field_texts(kind)
    for item in fields(kind):
        if names is None or item.name in names:
            choices = get_args(item.type) if get_origin(item.type) is Literal else ()
            ranges = [f" [{limits}]" for limits in ranges_of(item.type)]
            yield Row(item.name, item.default, "".join([texts[item.name], *ranges]), choices)


def settings_option(rows: Callable[[], Iterable[Row]], text: str = SETTINGS_HELP) -> Any:
    """The option ``--settings``, whose help is ``text``: it prints name, default and help of each row, and ends the
    command.

    It comes before all others, so that nothing else has to be given.
    """

    def show(is_asked: bool) -> None:
        if is_asked:
            for name, default, text, _ in sorted(rows()):
                shown = str(default).lower() if isinstance(default, bool) else str(default)
                shown = "-" if default in (MISSING, "", ()) else shown
                typer.echo(f"{name:23} {shown:13} {' '.join(text.split())}")
            raise typer.Exit()

    show.rows = rows  # type: ignore[attr-defined]  # the shell's completion asks for them
    return typer.Option("--settings", help=text, rich_help_panel="Settings", is_eager=True, callback=show)


def listing(rows: Callable[[], Iterable[Row]], text: str = SETTINGS_HELP) -> inspect.Parameter:
    """The option ``--settings`` as a parameter of a command that is built."""
    kind, annotation = inspect.Parameter.KEYWORD_ONLY, Annotated[bool, settings_option(rows, text)]
    return inspect.Parameter("settings", kind, default=False, annotation=annotation)
