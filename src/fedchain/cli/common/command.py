"""Tools that all commands share: options under headings, and errors in one line."""

import inspect
import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import typer
from typer.core import TyperCommand

from fedchain.cli.common.exit_codes import EXIT_BAD_INPUT, EXIT_DIFFERENT, EXIT_INTERRUPTED
from fedchain.cli.common.hangup import drop_output, is_hung_up
from fedchain.wording import first_error, printable

METHOD_HELP = (
    "Learning method: a name that `fedchain methods` lists, or FILE.py:Class or module:Class. Nodes import it by the "
    "module's name."
)

TASK_HELP = "Members train on own data: FILE.py:FUNCTION that returns (model, train set, test set)."


class GroupedCommand(TyperCommand):
    """A command whose help shows options under headings, their ``rich_help_panel``, in the order in which they come.

    A path that is empty, as of a variable that is not set, is refused: it would be read as the current folder.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line."""
        rest = super().parse_args(ctx, args)
        for parameter in self.get_params(ctx):
            given = ctx.params.get(parameter.name)
            if parameter.type.name == "path" and "" in (given if isinstance(given, tuple | list) else (given,)):
                raise typer.BadParameter("is empty", ctx, parameter)
        return rest

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments, then the groups, then options without one."""
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        alone: list[tuple[str, str]] = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            if parameter.param_type_name == "argument":
                groups["Arguments"].append(record)
            elif heading := getattr(parameter, "rich_help_panel", None):
                groups.setdefault(heading, []).append(record)
            else:
                alone.append(record)
        for heading, records in (groups | {"Options": alone}).items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


def with_parameters(
    command: Callable[..., None], wrapped: Callable[..., None], name: str, added: Iterable[inspect.Parameter]
) -> Callable[..., None]:
    """Let ``wrapped`` stand for ``command``, with other parameters in place of the one called ``name``."""
    own = inspect.signature(command).parameters.values()
    places = ([item] if item.name != name else added for item in own)
    wrapped.__signature__ = inspect.Signature([*chain.from_iterable(places)])  # type: ignore[attr-defined]
    wrapped.__doc__ = command.__doc__
    return wrapped


@contextmanager
def clear_errors(*kinds: type[Exception], code_of_damage: int = EXIT_BAD_INPUT) -> Iterator["Complaints"]:
    """Turn errors that the user can mend into one line and exit code 2, or 1 where another try may do.

    Args:
        kinds: errors of a layer above this one; those of the layers below are known.
        code_of_damage: exit code for a damaged stored chain.

    Yields:
        The object that prints that line; the command may have it logged instead.
    """
    complaints = Complaints()
    try:
        yield complaints
    except BrokenPipeError:
        raise  # the reader of the output has seen enough: the command table handles that
    except OSError as error:
        if is_hung_up(error):
            complaints.say("interrupted")
            raise typer.Exit(EXIT_INTERRUPTED) from None
        complaints.say(f"{error.filename or 'input or output'}: {error.strerror or error}")
        raise typer.Exit(EXIT_BAD_INPUT) from None
    except (KeyboardInterrupt, typer.Abort):
        complaints.say("interrupted")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except Exception as error:
        # Imported only now: most commands need only one of these layers.
        from fedchain.chain.exceptions import ChainError, StoreCorrupt
        from fedchain.crypto.exceptions import CryptoError
        from fedchain.learning.exceptions import LearningError
        from fedchain.learning.executors.workers import WorkerDiedError
        from fedchain.node.config import NodeConfigError, NodeFailed

        if not isinstance(error, (NodeConfigError, ChainError, CryptoError, LearningError, *kinds)):
            if not complaints.are_logged:
                raise
            complaints.say_fault(error)
            raise typer.Exit(EXIT_DIFFERENT) from None
        complaints.say(" ".join(str(error).split()))
        if isinstance(error, StoreCorrupt):
            raise typer.Exit(code_of_damage) from None
        could_not_go_on = isinstance(error, NodeFailed | WorkerDiedError)
        raise typer.Exit(EXIT_DIFFERENT if could_not_go_on else EXIT_BAD_INPUT) from None


@dataclass(slots=True)
class Complaints:
    """Says why a command ends."""

    are_logged: bool = False
    """Whether the line goes to the log, for programs that read nothing else, and not to standard error alone."""

    def say(self, text: str) -> None:
        """Say it in one line."""
        if self.are_logged:
            logging.getLogger("fedchain.node").error("%s", text)
            return
        try:
            print(f"fedchain: {printable(text)}", file=sys.stderr)
        except OSError as error:
            if not is_hung_up(error):
                raise
            drop_output()

    def say_fault(self, error: Exception) -> None:
        """Log a fault of this program, with its traceback, which Python would print beside the log."""
        first = first_error(error)
        log = logging.getLogger("fedchain.node")
        log.critical("a fault of this program ends it: %s: %s", type(first).__name__, first, exc_info=error)
