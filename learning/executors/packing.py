"""Messages between an executor and its own processes as bytes; whatever a user's own code answers, something arrives.

They are packed as :mod:`multiprocessing` packs them, and nothing else is ever unpacked here.
"""

from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import Any

from fedchain.learning.exceptions import OwnCodeFailed, one_line


@dataclass(frozen=True, slots=True)
class Reply:
    """The outcome of a call."""

    number: int
    succeeded: bool
    value: Any
    """The result, or the error."""


def pack(value: Any) -> bytes:
    """A value as bytes; raises whatever its classes raise where they cannot be packed."""
    return bytes(ForkingPickler.dumps(value))


def unpack(data: bytes) -> Any:
    """The value that was packed."""
    return ForkingPickler.loads(data)


def pack_reply(reply: Reply, who: str) -> bytes:
    """Pack a reply. A result that cannot be packed becomes the report of it; errors become what :func:`portable` says.

    Args:
        reply: the outcome of a call.
        who: the report begins with it.
    """
    value = portable(reply.value) if isinstance(reply.value, Exception) else reply.value
    try:
        return pack(Reply(reply.number, reply.succeeded, value))
    except MemoryError:
        raise
    except Exception as error:
        report = OwnCodeFailed(f"{who}: an answer cannot be sent to another process: {one_line(error)}")
        return pack(Reply(reply.number, False, report))


def portable(error: Exception) -> Exception:
    """Return an error that another process can read: this one, or else one of the nearest class of Python's or of the
    project's above its own that can be made of a text, with its text and its notes."""
    if _survives(error):
        return error
    for kind in type(error).__mro__:
        if issubclass(kind, Exception) and kind.__module__.startswith(("builtins", "fedchain.")):
            try:
                found = kind(str(error))
            except Exception:  # it wants other arguments
                continue
            for note in getattr(error, "__notes__", ()):
                found.add_note(note)
            if _survives(found):
                return found
    raise AssertionError("an Exception can be made of a text")


def _survives(error: Exception) -> bool:
    """Whether an error arrives as one of its class."""
    try:
        return type(unpack(pack(error))) is type(error)
    except Exception:  # what a class's own constructor raises, too
        return False
