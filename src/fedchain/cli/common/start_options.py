"""Options of commands about one node: the fields of its settings, with their docstrings as help, in groups."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import typer

from fedchain.files.field_texts import field_texts
from fedchain.node.config import NodeConfig

GROUPS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "Federation": ("genesis", "key", "passphrase_file"),
        "Data": ("data", "data_dir", "task"),
        "Network": ("listen", "bootstrap", "announce"),
        "Start and end": ("wait_for", "stop_accuracy", "stop_patience", "exit_when_finished", "replay"),
        "Output": ("metrics", "log_format"),
        "Resources": ("recent_mib",),
    }
)
"""Settings by their heading in the help."""


def with_node_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the settings file and every setting; it gets both as ``file`` and ``overrides``."""

    def wrapped(**given: Any) -> None:
        chosen = {item.name: given.pop(item.name) for item in fields(NodeConfig)}
        command(**given, overrides={name: value for name, value in chosen.items() if value not in (None, "", [])})

    texts, by_name = field_texts(NodeConfig), {item.name: item for item in fields(NodeConfig)}
    file = inspect.Parameter(
        "file",
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[Path | None, typer.Argument(metavar="[NODE.toml]", help="Settings file.")],
    )
    asked = inspect.signature(command).parameters.values()
    own = [item.replace(kind=inspect.Parameter.KEYWORD_ONLY) for item in asked if item.name not in _GIVEN]
    added = [_option(by_name[name], texts[name], group) for group, names in GROUPS.items() for name in names]
    wrapped.__signature__ = inspect.Signature([file, *added, *own])  # type: ignore[attr-defined]
    wrapped.__doc__ = command.__doc__
    return wrapped


_GIVEN = frozenset({"file", "overrides"})


def _option(item: Any, text: str, group: str) -> inspect.Parameter:
    """A setting as a parameter; its value is None if it was not given."""
    words = " ".join(text.split())
    kind: Any = item.type
    if kind not in (str, bool, int, float):
        kind, words = list[str], f"{words.removesuffix('.')}; repeat it."
    elif item.default and isinstance(item.default, str | int):
        words = f"{words} [default: {item.default}]"
    names = [f"--{item.name.replace('_', '-')}"] if item.type is bool else []
    annotation = Annotated[kind | None, typer.Option(*names, help=words, rich_help_panel=group)]
    return inspect.Parameter(item.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
