"""Work in a thread of its own that tells of rounds: whoever waits for it is told in its own thread, and can end it.

It is waited for in two ways: by a thread that does nothing else meanwhile, and in an asyncio loop, which goes on.
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
"""How often the work, while the caller looks at a round, looks whether it is to end."""

JOIN_S = 0.02
"""How often work that is ending is looked at by a loop."""

Row = TypeVar("Row")
Result = TypeVar("Result")

Work = Callable[[Callable[[Row], None], threading.Event], Result]
"""work(told, stop) -> result: tells of each round, and ends with an error soon after ``stop`` is set."""


@dataclass(frozen=True, slots=True)
class _Told(Generic[Row]):
    """A round that the caller is told of."""

    row: Row
    is_taken: threading.Event = field(default_factory=threading.Event)
    """Set when the caller has looked at it; the work waits for that."""


class _Working(Generic[Row, Result]):
    """Work that was started.

    Args:
        work: what is done.
        put: takes what is told to the caller's thread, from any; None when the work is over.
    """

    def __init__(self, work: Work[Row, Result], put: Callable[[_Told[Row] | None], None]) -> None:
        self._work, self._put = work, put
        self._result: list[Result] = []  # when it is done
        self._error: BaseException | None = None
        self.stop = threading.Event()
        """Set by the caller: the work is to end."""
        self.thread = threading.Thread(target=self._run, name="fedchain-simulation", daemon=True)
        self.thread.start()

    def result(self) -> Result:
        """What came of it, when it is over; asked once, since it is not kept any longer."""
        if self._error is not None:
            raise self._error
        return self._result.pop()

    def _run(self) -> None:
        try:
            self._result.append(self._work(self._tell, self.stop))
        except BaseException as error:  # whatever it is, it is the caller's
            self._error = error
        self._put(None)

    def _tell(self, row: Row) -> None:
        """Have the caller's thread look at a round."""
        told = _Told(row)
        self._put(told)
        while not told.is_taken.wait(POLL_S) and not self.stop.is_set():
            pass


def wait(work: Work[Row, Result], on_row: Callable[[Row], object]) -> Result:
    """Wait for the work, and end it if the waiting is interrupted; raises what it raises."""
    messages = SimpleQueue[_Told[Row] | None]()
    working = _Working(work, messages.put)
    try:
        while (told := messages.get()) is not None:
            on_row(told.row)
            told.is_taken.set()
        return working.result()
    finally:
        working.stop.set()
        working.thread.join()


async def wait_in_loop(work: Work[Row, Result], on_row: Callable[[Row], object]) -> Result:
    """The same in an asyncio loop, which goes on meanwhile; cancelling ends the work. ``on_row`` may be awaited."""
    loop = asyncio.get_running_loop()
    messages: asyncio.Queue[_Told[Row] | None] = asyncio.Queue()

    def put(told: _Told[Row] | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(messages.put_nowait, told)

    working = _Working(work, put)
    try:
        while (told := await messages.get()) is not None:
            answer = on_row(told.row)
            if inspect.isawaitable(answer):
                await answer
            told.is_taken.set()
        return working.result()
    finally:
        working.stop.set()
        while working.thread.is_alive():  # a cancelled task is not cancelled again while the processes end
            await asyncio.sleep(JOIN_S)
