"""Options and arguments that several commands of a group have: declared once, by the group. Options with a default are
taken before or after the commands' names.

The group's callback declares them. A command takes those that its function has a parameter for, and no others. A
parameter whose annotation is a dataclass takes several: those of the names of its fields. Arguments come in the order
of the function's parameters.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from functools import update_wrapper
from pathlib import Path
from typing import Any, get_args

import typer
from typer.core import TyperGroup

from fedchain.cli.common.command import GroupedCommand


def _is_argument(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "argument")


class SharingCommand(GroupedCommand):
    """A command of a :class:`SharingGroup`."""

    shared: Sequence[Any] = ()
    """Options of the group that it takes."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its own parameters, those of the group, and ``--help``."""
        found, own = super().get_params(ctx), len(self.params)
        mine = [*found[:own], *self.shared]
        order = getattr(self.callback, "order", ())
        arguments = sorted((item for item in mine if _is_argument(item)), key=lambda item: order.index(item.name))
        return [*arguments, *(item for item in mine if not _is_argument(item)), *found[own:]]


class SharingGroup(TyperGroup):
    """A group whose own options are those of its commands."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        options = {item.name: item for item in self.params}
        for command in self.commands.values():
            if isinstance(command, SharingCommand):
                taken = getattr(command.callback, "takes", ())
                command.shared = [option for name, option in options.items() if name in taken]

    def get_params(self, ctx: Any) -> list[Any]:
        """Its parameters with defaults; all others stand behind the name of a command."""
        return [item for item in super().get_params(ctx) if not item.required]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """A value given before a command's name is the command's default."""
        rest = super().parse_args(ctx, args)
        given = {name: value for name, value in ctx.params.items() if value not in (None, (), "")}
        ctx.default_map = dict.fromkeys(self.commands, given)
        return rest


class Sharing(typer.Typer):
    """Commands of a group, with the options that they share.

    Args:
        options: a function that does nothing; its parameters are the shared options.
        given: what :class:`typer.Typer` takes.
    """

    def __init__(self, options: Callable[..., None], **given: Any) -> None:
        super().__init__(cls=SharingGroup, no_args_is_help=True, **given)
        shared = inspect.signature(options, eval_str=True).parameters
        self._names = frozenset(shared)
        self._paths = frozenset(name for name, item in shared.items() if get_args(item.annotation)[:1] == (Path,))
        self.callback()(options)

    def command(self, name: str | None = None, **given: Any) -> Callable[[Any], Any]:
        """Like ``Typer.command``; the function's parameters that bear the name of a shared option are that option."""
        add = super().command(name, cls=SharingCommand, **given)

        def added(function: Any) -> Any:
            asked = inspect.signature(function, eval_str=True)
            records: dict[str, Any] = {
                name: item.annotation for name, item in asked.parameters.items() if is_dataclass(item.annotation)
            }
            parts = {name: [item.name for item in fields(kind)] for name, kind in records.items()}
            own = [item for name, item in asked.parameters.items() if name not in {*records, *self._names}]

            def called(**given: Any) -> None:
                for name in self._paths & given.keys():  # typer converts those of the function itself alone
                    given[name] = Path(given[name])
                built = {name: records[name](**{part: given.pop(part) for part in parts[name]}) for name in records}
                function(**given, **built)

            command: Any = update_wrapper(called, function)
            command.takes = self._names & {part for name in asked.parameters for part in parts.get(name, [name])}
            command.order = tuple(asked.parameters)
            command.__signature__ = asked.replace(parameters=own)
            return add(command)

        return added
