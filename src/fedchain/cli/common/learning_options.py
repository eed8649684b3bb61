"""Options of commands that found a federation: the fields of its learning task, with their docstrings as help."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Annotated, Any

import typer

from fedchain.cli.common.command import METHOD_HELP, TASK_HELP, with_parameters
from fedchain.cli.common.settings import Row, Set, divide, listing, rows_of, typed
from fedchain.files.field_texts import field_texts
from fedchain.learning.config import OWN, LearningConfig

OTHERWISE = frozenset(
    {"clients", "data_dir", "dataset", "hyperparameters", "material", "method", "more_shapes", "shapes", "task"}
)
"""Fields that have an option of another form, that each member sets for itself, or that follow from other fields."""

NAMED = ("partition",)
"""Fields on which members agree and that have an option of their own."""

SETTABLE = tuple(item.name for item in fields(LearningConfig) if item.name not in {*OTHERWISE, *NAMED})
"""Fields on which members agree and that have no option; ``--set`` takes them."""


Decorator = Callable[[Callable[..., None]], Callable[..., None]]

Chosen = Callable[[], tuple[dict[str, Any], dict[str, Any]]]
"""Returns the fields of the learning task, and the other settings that were given; raises ConfigurationError or
NodeConfigError."""


def _words(
    *,
    method: Annotated[str, typer.Option(help=METHOD_HELP, rich_help_panel="Learning")] = "dfpl",
    setting: Set = None,
    dataset: Annotated[str, typer.Option(help="Data set [default: digits].", rich_help_panel="Data")] = "",
    task: Annotated[str, typer.Option(help=TASK_HELP, rich_help_panel="Data")] = "",
) -> None:
    """The options of another form."""


def with_learning_options(others: Mapping[str, tuple[Any, str]]) -> Decorator:
    """Give a command options for its learning task, and ``--set`` for everything else, in place of ``chosen``.

    Args:
        others: further settings that ``--set`` takes: default and help of each, by name.
    """
    asked = inspect.signature(_words).parameters
    texts, by_name = field_texts(LearningConfig), {item.name: item for item in fields(LearningConfig)}
    defaults = {name: by_name[name].default for name in SETTABLE} | {name: item[0] for name, item in others.items()}
    added = [
        optional(
            name,
            type(by_name[name].default),
            typer.Option(help=help_text(by_name[name], texts), rich_help_panel="Data"),
        )
        for name in NAMED
    ]

    def rows() -> Iterator[Row]:
        yield from rows_of(LearningConfig, SETTABLE)
        yield from ((name, *item) for name, item in others.items())

    def read(words: Mapping[str, Any], named: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        from fedchain.node.config import NodeConfigError

        given, hyperparameters = divide(words["setting"] or [], defaults)
        given = {name: typed(name, value, defaults[name], NodeConfigError) for name, value in given.items()}
        task = {
            "method": words["method"],
            "hyperparameters": hyperparameters,
            "dataset": words["dataset"] or (OWN if words["task"] else LearningConfig().dataset),
            "task": words["task"],
        }
        learned = {name: value for name, value in given.items() if name in SETTABLE}
        return task | named | learned, {name: value for name, value in given.items() if name in others}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        def wrapped(**given: Any) -> None:
            words = {name: given.pop(name) for name in asked}
            named = {name: value for name in NAMED if (value := given.pop(name)) is not None}
            del given["settings"]  # it ends the command by itself
            command(**given, chosen=lambda: read(words, named))

        return with_parameters(command, wrapped, "chosen", [*asked.values(), *added, listing(rows)])

    return decorate


def optional(name: str, kind: Any, option: Any) -> inspect.Parameter:
    """A parameter of a command that may be absent: None means that it was not given."""
    annotation = Annotated[kind | None, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def help_text(item: Any, texts: Mapping[str, str]) -> str:
    """The help of an option for a field: its docstring, and its default if it has one."""
    return f"{texts[item.name]} [default: {item.default}]" if item.default != "" else texts[item.name]
