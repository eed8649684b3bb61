"""Threads: what would keep a node's loop waiting is done in one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar, TypeVarTuple

from anyio import to_thread

from fedchain.node.config import NodeFailed

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

REFUSED = "can't start new thread"
"""Python's words for a thread that the system does not give; it has no class of its own for that."""


async def in_thread(work: Callable[[*Ts], T], *arguments: *Ts) -> T:
    """The result of work that is done in a thread; raises what it raises, and NodeFailed where there is no thread."""
    with needs_thread():
        return await to_thread.run_sync(work, *arguments)


@contextmanager
def needs_thread() -> Iterator[None]:
    """What is done inside asks for a thread, maybe in a library; raises NodeFailed where the machine gives none."""
    try:
        yield
    except RuntimeError as error:
        if str(error) != REFUSED:
            raise
        raise NodeFailed("this machine gives the node no thread now: it has too many, or too little memory") from None
