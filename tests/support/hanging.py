"""A limit for tests of what used to hang: an error in its place."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def no_hang(limit_s: float = 180.0) -> Iterator[None]:
    """Raise TimeoutError in the main thread if the block takes so long, which it does only if it hangs."""

    def end(number: int, frame: FrameType | None) -> None:
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
