"""Options of commands about one node: the fields of its settings, with their docstrings as help, in groups."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, get_origin

import typer

from fedchain.cli.common.settings import NODE_SETTINGS_HELP, NodeSet, divide, listing, rows_of
from fedchain.files.field_texts import field_texts
from fedchain.node.config import NodeConfig

GROUPS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"Federation": ("genesis", "key"), "Data": ("data", "task"), "Network": ("listen", "bootstrap")}
)
"""Settings that have an option, by their heading in the help; ``--set`` takes all."""


def with_node_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the settings file and every setting; it gets both as ``file`` and ``overrides``."""
    named = tuple(name for names in GROUPS.values() for name in names)

    def wrapped(setting: list[str] | None, settings: bool, **given: Any) -> None:
        chosen = {name: given.pop(name) for name in named}
        options = {name: value for name, value in chosen.items() if value not in (None, [])}
        command(**given, overrides=lambda: node_settings(setting or []) | options)

    texts, by_name = field_texts(NodeConfig), {item.name: item for item in fields(NodeConfig)}
    keyword = inspect.Parameter.KEYWORD_ONLY
    file = inspect.Parameter(
        "file",
        keyword,
        default=None,
        annotation=Annotated[Path | None, typer.Argument(metavar="[NODE.toml]", help="Settings file.")],
    )
    asked = inspect.signature(command).parameters.values()
    own = [item.replace(kind=keyword) for item in asked if item.name not in _GIVEN]
    added = [_option(by_name[name], texts[name], group) for group, names in GROUPS.items() for name in names]
    given = inspect.Parameter("setting", keyword, default=None, annotation=NodeSet)
    parameters = [file, *added, given, listing(partial(rows_of, NodeConfig), NODE_SETTINGS_HELP), *own]
    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapped.__doc__ = command.__doc__
    return wrapped


_GIVEN = frozenset({"file", "overrides"})


def node_settings(settings: Sequence[str]) -> dict[str, Any]:
    """Read ``NAME=VALUE`` settings of a node; lists of addresses have commas between them."""
    lists = {item.name for item in fields(NodeConfig) if get_origin(item.type) is tuple}
    _, values = divide(settings, ())
    return {
        name: [part.strip() for part in value.split(",")] if name in lists and isinstance(value, str) else value
        for name, value in values.items()
    }


def _option(item: Any, text: str, group: str) -> inspect.Parameter:
    """A setting as a parameter; its value is None if it was not given."""
    words = " ".join(text.split())
    kind: Any = item.type
    if kind is not str:
        kind, words = list[str], f"{words.removesuffix('.')}; repeat it."
    elif item.default and isinstance(item.default, str):
        words = f"{words} [default: {item.default}]"
    annotation = Annotated[kind | None, typer.Option(help=words, rich_help_panel=group)]
    return inspect.Parameter(item.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
