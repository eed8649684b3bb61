"""Work in a thread of its own that reports rounds. The caller gets them in its own thread, and can end the work.

There are two ways to wait for it: in a thread that does nothing else meanwhile, and in an asyncio loop, which goes on.
"""

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Generic, TypeVar

POLL_S = 0.5
"""How often the work checks whether it should end, while the caller handles a round."""

JOIN_S = 0.02
"""How often a loop checks whether work that is ending has ended."""

Row = TypeVar("Row")
Result = TypeVar("Result")

Work = Callable[[Callable[[Row], None], threading.Event], Result]
"""work(told, stop) -> result: calls ``told`` with each round, and ends with an error soon after ``stop`` is set."""


@dataclass(frozen=True, slots=True)
class _Told(Generic[Row]):
    """A round on its way to the caller."""

    row: Row
    is_taken: threading.Event = field(default_factory=threading.Event)
    """Set when the caller has handled it; the work waits for that."""


class _Working(Generic[Row, Result]):
    """Work in a thread that :meth:`start` starts.

    Args:
        work: the function to run.
        put: passes a round to the caller's thread, from any thread; None when the work is over.
    """

    def __init__(self, work: Work[Row, Result], put: Callable[[_Told[Row] | None], None]) -> None:
        self._work, self._put = work, put
        self._result: list[Result] = []  # when it is done
        self._error: BaseException | None = None
        self.stop = threading.Event()
        """Set by the caller to end the work."""
        self._thread = threading.Thread(target=self._run, name="fedchain-simulation", daemon=True)

    @property
    def goes_on(self) -> bool:
        """Whether the thread has not ended."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread. The caller has to :meth:`end` it in any case: an interrupted start may have started it."""
        self._thread.start()

    def end(self) -> None:
        """End the work, and wait for that."""
        self.stop.set()
        with contextlib.suppress(RuntimeError):  # it has not begun: if it still does, it ends at once
            self._thread.join()

    def result(self) -> Result:
        """The result when the work is over, or its error; call it once, since the result is not kept."""
        if self._error is not None:
            raise self._error
        return self._result.pop()

    def _run(self) -> None:
        if self.stop.is_set():
            return
        try:
            self._result.append(self._work(self._tell, self.stop))
        except BaseException as error:  # the caller raises it
            self._error = error
        self._put(None)

    def _tell(self, row: Row) -> None:
        """Pass a round to the caller's thread, and wait until it is handled."""
        told = _Told(row)
        self._put(told)
        while not told.is_taken.wait(POLL_S) and not self.stop.is_set():
            pass


def wait(work: Work[Row, Result], on_row: Callable[[Row], object]) -> Result:
    """Run the work and wait for it, and end it if the wait is interrupted; raises the work's errors."""
    messages = SimpleQueue[_Told[Row] | None]()
    working = _Working(work, messages.put)
    try:
        working.start()
        while (told := messages.get()) is not None:
            on_row(told.row)
            told.is_taken.set()
        return working.result()
    finally:
        working.end()


async def wait_in_loop(work: Work[Row, Result], on_row: Callable[[Row], object]) -> Result:
    """Like :func:`wait`, in an asyncio loop, which goes on; cancelling ends the work. ``on_row`` may be a coroutine."""
    loop = asyncio.get_running_loop()
    messages: asyncio.Queue[_Told[Row] | None] = asyncio.Queue()

    def put(told: _Told[Row] | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(messages.put_nowait, told)

    working = _Working(work, put)
    try:
        working.start()
        while (told := await messages.get()) is not None:
            answer = on_row(told.row)
            if inspect.isawaitable(answer):
                await answer
            told.is_taken.set()
        return working.result()
    finally:
        working.stop.set()
        while working.goes_on:  # a cancelled task is not cancelled again while the processes end
            await asyncio.sleep(JOIN_S)
