"""Settings by name: ``--set NAME=VALUE`` changes a field of a record, or else a hyper-parameter of the method.

Few settings have an option of their own; ``--settings`` lists the others.
"""

import inspect
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Annotated, Any

import typer

from fedchain.files.field_texts import field_texts

Row = tuple[str, Any, str]
"""Name, default and help of a setting."""

SET_HELP = "Any other setting, as `--settings` lists them, or a hyper-parameter of the method; repeat it."

SETTINGS_HELP = "List the settings that --set takes beside hyper-parameters, and stop."

Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help=SET_HELP, rich_help_panel="Settings")
]
"""The option that gives a setting."""

_KINDS: Mapping[type, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    str: ((str,), "a text"),
}


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


def typed(name: str, value: Any, default: Any, refuse: Callable[[str], Exception]) -> Any:
    """The value of a setting, if it is of its default's type; an integer may stand for a float."""
    kinds, words = _KINDS[type(default)]
    if type(value) not in kinds:
        raise refuse(f"{name} is {value!r}, it must be {words}")
    return float(value) if type(default) is float else value


def rows_of(kind: type, names: Container[str] | None = None) -> Iterator[Row]:
    """Fields of a record as rows of ``--settings``, their docstrings as help: all, or those of these names."""
    texts = field_texts(kind)
    for item in fields(kind):
        if names is None or item.name in names:
            yield item.name, item.default, texts[item.name]


def settings_option(rows: Callable[[], Iterable[Row]]) -> Any:
    """The option ``--settings``: it prints name, default and help of each row, and ends the command.

    It comes before all others, so that nothing else has to be given.
    """

    def show(is_asked: bool) -> None:
        if is_asked:
            for name, default, text in sorted(rows()):
                shown = str(default).lower() if isinstance(default, bool) else "-" if default == "" else str(default)
                typer.echo(f"{name:24}{shown:14}{' '.join(text.split())}")
            raise typer.Exit()

    show.rows = rows  # type: ignore[attr-defined]  # completion offers the same names
    return typer.Option("--settings", help=SETTINGS_HELP, rich_help_panel="Settings", is_eager=True, callback=show)


def listing(rows: Callable[[], Iterable[Row]]) -> inspect.Parameter:
    """The option ``--settings`` as a parameter of a command that is built."""
    kind, annotation = inspect.Parameter.KEYWORD_ONLY, Annotated[bool, settings_option(rows)]
    return inspect.Parameter("settings", kind, default=False, annotation=annotation)
