"""Threads: what would keep a node's loop waiting is done in one."""

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

from anyio import to_thread

from fedchain.node.config import NodeFailed

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

REFUSED = "can't start new thread"
"""Python's words for a thread that the system does not give; it has no class of its own for that."""

NO_THREAD = "this machine gives the node no thread now: it has too many, or too little memory"


async def in_thread(work: Callable[[*Ts], T], *arguments: *Ts) -> T:
    """The result of work that is done in a thread; raises what it raises, and NodeFailed where there is no thread."""
    try:
        return await to_thread.run_sync(work, *arguments)
    except RuntimeError as error:
        if not is_refused(error):
            raise
        raise NodeFailed(NO_THREAD) from None


def is_refused(error: BaseException) -> bool:
    """Whether an error, maybe of a library, says that the system gives no thread."""
    return isinstance(error, RuntimeError) and str(error) == REFUSED
