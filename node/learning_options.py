"""Options of commands that found a federation: the fields of its learning task, with their docstrings as help."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Annotated, Any

import typer

from fedchain.learning.config import LearningConfig
from fedchain.node.config import field_texts

OTHERWISE = frozenset(
    {"clients", "data_dir", "dataset", "hyperparameters", "material", "method", "more_shapes", "seed", "shapes", "task"}
)
"""Fields that commands ask for by words of their own, that each member has for itself, or that follow from others."""

LEARNING_OPTIONS = tuple(item.name for item in fields(LearningConfig) if item.name not in OTHERWISE)
"""What members agree on beside these."""


def with_learning_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command these options; it gets those that were used as a mapping, ``learning``."""

    def wrapped(**given: Any) -> None:
        chosen = {name: given.pop(name) for name in LEARNING_OPTIONS}
        command(**given, learning={name: value for name, value in chosen.items() if value is not None})

    texts, by_name = field_texts(LearningConfig), {item.name: item for item in fields(LearningConfig)}
    own = [item for item in inspect.signature(command).parameters.values() if item.name != "learning"]
    added = [
        optional(
            name,
            type(by_name[name].default),
            typer.Option(help=help_text(by_name[name], texts), rich_help_panel=panel_of(name)),
        )
        for name in LEARNING_OPTIONS
    ]
    wrapped.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]
    wrapped.__doc__ = command.__doc__
    return wrapped


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
