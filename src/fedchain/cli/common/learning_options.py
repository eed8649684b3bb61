"""Options of commands that found a federation: the fields of its learning task, with their docstrings as help."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Annotated, Any

import typer

from fedchain.cli.common.command import ENCRYPTION_HELP, METHOD_HELP, TASK_HELP, with_parameters
from fedchain.files.field_texts import field_texts
from fedchain.learning.config import OWN, LearningConfig

OTHERWISE = frozenset(
    {"clients", "data_dir", "dataset", "hyperparameters", "material", "method", "more_shapes", "seed", "shapes", "task"}
)
"""Fields that have an option of another form, that each member sets for itself, or that follow from other fields."""

LEARNING_OPTIONS = tuple(item.name for item in fields(LearningConfig) if item.name not in OTHERWISE)
"""The other fields, on which members agree; each has an option of its name."""


def _words(
    *,
    method: Annotated[str, typer.Option(help=METHOD_HELP, rich_help_panel="Learning")] = "dfpl",
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Hyper-parameter of the method.", rich_help_panel="Learning"),
    ] = None,
    encryption: Annotated[str, typer.Option(help=ENCRYPTION_HELP, rich_help_panel="Learning")] = "",
    seed: Annotated[int, typer.Option(help="Root of the randomness of learning.", rich_help_panel="Learning")] = 0,
    dataset: Annotated[str, typer.Option(help="Data set [default: digits].", rich_help_panel="Data")] = "",
    task: Annotated[str, typer.Option(help=TASK_HELP, rich_help_panel="Data")] = "",
) -> dict[str, Any]:
    """The fields that have options of another form."""
    from fedchain.node.founding.task import read_settings

    return {
        "method": method,
        "hyperparameters": read_settings(setting or [], encryption),
        "seed": seed,
        "dataset": dataset or (OWN if task else LearningConfig().dataset),
        "task": task,
    }


def with_learning_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command these options, in place of its parameter ``learning``.

    The command gets a function there, which returns the task's fields by name. It raises ConfigurationError.
    """
    asked = inspect.signature(_words).parameters

    def wrapped(**given: Any) -> None:
        words = {name: given.pop(name) for name in asked}
        others = {name: value for name in LEARNING_OPTIONS if (value := given.pop(name)) is not None}
        command(**given, learning=lambda: _words(**words) | others)

    texts, by_name = field_texts(LearningConfig), {item.name: item for item in fields(LearningConfig)}
    added = [
        optional(
            name,
            type(by_name[name].default),
            typer.Option(help=help_text(by_name[name], texts), rich_help_panel=panel_of(name)),
        )
        for name in LEARNING_OPTIONS
    ]
    return with_parameters(command, wrapped, "learning", [*asked.values(), *added])


def panel_of(name: str) -> str:
    """The heading under which help shows a field of the task."""
    return "Learning" if name == "model" else "Data"


def optional(name: str, kind: Any, option: Any) -> inspect.Parameter:
    """A parameter of a command that may be absent: None means that it was not given."""
    annotation = Annotated[kind | None, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def help_text(item: Any, texts: Mapping[str, str]) -> str:
    """The help of an option for a field: its docstring, and its default if it has one."""
    return f"{texts[item.name]} [default: {item.default}]" if item.default != "" else texts[item.name]
