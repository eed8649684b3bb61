"""Options of commands that found a federation: the fields of its learning task, with their docstrings as help."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, fields, make_dataclass
from typing import Annotated, Any, TypeVar

import typer

from fedchain.cli.common.command import METHOD_HELP, TASK_HELP, with_parameters
from fedchain.cli.common.settings import Row, Set, divide, listing, rows_of, settings_offered
from fedchain.files.field_texts import field_texts
from fedchain.files.tables import build
from fedchain.learning.config import OWN, LearningConfig

OTHERWISE = frozenset(
    {"clients", "data_dir", "dataset", "hyperparameters", "material", "method", "more_shapes", "shapes", "task"}
    | {"dataless", "weights_hash"}
)
"""Fields that have an option of another form, that each member sets for itself, or that follow from other fields."""

NAMED = ("partition",)
"""Fields on which members agree and that have an option of their own."""

SETTABLE = tuple(item.name for item in fields(LearningConfig) if item.name not in {*OTHERWISE, *NAMED})
"""Fields on which members agree and that have no option; ``--set`` takes them."""


Decorator = Callable[[Callable[..., None]], Callable[..., None]]

Others = TypeVar("Others")

Chosen = Callable[[], tuple[dict[str, Any], Others]]
"""Returns the fields of the learning task, and the other settings; raises ConfigurationError or NodeConfigError."""

_Agreed = make_dataclass(
    "_Agreed", [(item.name, item.type, item.default) for item in fields(LearningConfig) if item.name in SETTABLE]
)


def _words(
    *,
    method: Annotated[str, typer.Option(help=METHOD_HELP, rich_help_panel="Learning")] = "dfpl",
    setting: Set = None,
    dataset: Annotated[str, typer.Option(help="Data set [default: digits].", rich_help_panel="Data")] = "",
    task: Annotated[str, typer.Option(help=TASK_HELP, rich_help_panel="Data")] = "",
) -> None:
    """The options of another form."""


def with_learning_options(others: type[Others]) -> Decorator:
    """Give a command options for its learning task, and ``--set`` for everything else, in place of ``chosen``.

    Args:
        others: further settings that ``--set`` takes: the fields of this dataclass but ``rounds``, an option's.
    """
    asked = inspect.signature(_words).parameters
    texts, by_name = field_texts(LearningConfig), {item.name: item for item in fields(LearningConfig)}
    further = {item.name for item in fields(others)} - {"rounds"}  # type: ignore[arg-type]
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
        yield from rows_of(others, further)

    def read(words: Mapping[str, Any], named: dict[str, Any]) -> tuple[dict[str, Any], Others]:
        from fedchain.node.config import NodeConfigError

        given, hyperparameters = divide(words["setting"] or [], {*SETTABLE, *further})
        _validate_hyperparameters(words["method"], hyperparameters, {*SETTABLE, *further})
        learned = {name: value for name, value in given.items() if name in SETTABLE}
        agreed: Any = build(_Agreed, learned, "--set", NodeConfigError)
        task = {
            "method": words["method"],
            "hyperparameters": hyperparameters,
            "dataset": words["dataset"] or (OWN if words["task"] else LearningConfig().dataset),
            "task": words["task"],
        }
        rest = {name: value for name, value in given.items() if name in further}
        return task | named | asdict(agreed), build(others, rest, "--set", NodeConfigError)

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        def wrapped(**given: Any) -> None:
            words = {name: given.pop(name) for name in asked}
            named = {name: value for name in NAMED if (value := given.pop(name)) is not None}
            del given["settings"]  # it ends the command by itself
            command(**given, chosen=lambda: read(words, named))

        return with_parameters(command, wrapped, "chosen", [*asked.values(), *added, listing(rows)])

    return decorate


def _validate_hyperparameters(method: str, hyperparameters: Mapping[str, Any], settings: Iterable[str]) -> None:
    """Raise ConfigurationError for a name that is neither a setting nor a hyper-parameter, or for a wrong value."""
    from fedchain.learning.registry import build_method

    if hyperparameters:
        with settings_offered(hyperparameters, settings):
            build_method(method, hyperparameters)


def optional(name: str, kind: Any, option: Any) -> inspect.Parameter:
    """A parameter of a command that may be absent: None means that it was not given."""
    annotation = Annotated[kind | None, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def help_text(item: Any, texts: Mapping[str, str]) -> str:
    """The help of an option for a field: its docstring, and its default if it has one."""
    return f"{texts[item.name]} [default: {item.default}]" if item.default != "" else texts[item.name]
