"""Work in a thread of its own that tells of rounds: whoever waits for it is told in its own thread, and can end it.

It is waited for in two ways: by a thread that does nothing else meanwhile, and in an asyncio loop, which goes on.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
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


class _Working(Generic[Row, Result]):
    """Work that was started.

    Args:
        work: what is done.
        on_row: called by the caller's thread with each round; the work waits until it returns.
        put: takes a message to the caller's thread, from any.
    """

    def __init__(
        self,
        work: Work[Row, Result],
        on_row: Callable[[Row], object],
        put: Callable[[Callable[[], bool]], None],
    ) -> None:
        self._work, self._on_row, self._put = work, on_row, put
        self._result: list[Result] = []  # when it is done
        self._error: BaseException | None = None
        self.stop = threading.Event()
        """Set by the caller: the work is to end."""
        self.thread = threading.Thread(target=self._run, name="fedchain-simulation", daemon=True)
        self.thread.start()

    def result(self) -> Result:
        """What came of it, when a message has said that it is over; asked once, since it is not kept any longer."""
        if self._error is not None:
            raise self._error
        return self._result.pop()

    def _run(self) -> None:
        try:
            self._result.append(self._work(self._tell, self.stop))
        except BaseException as error:  # whatever it is, it is the caller's
            self._error = error
        self._put(lambda: True)

    def _tell(self, row: Row) -> None:
        """Have the caller's thread look at a round. A message says, when it is called there, whether all is over."""
        is_taken = threading.Event()

        def take() -> bool:
            self._on_row(row)
            is_taken.set()
            return False

        self._put(take)
        while not is_taken.wait(POLL_S) and not self.stop.is_set():
            pass


def wait(work: Work[Row, Result], on_row: Callable[[Row], object]) -> Result:
    """Wait for the work, and end it if the waiting is interrupted; raises what it raises."""
    messages = SimpleQueue[Callable[[], bool]]()
    working = _Working(work, on_row, messages.put)
    try:
        while not messages.get()():
            pass
        return working.result()
    finally:
        working.stop.set()
        working.thread.join()


async def wait_in_loop(work: Work[Row, Result], on_row: Callable[[Row], object]) -> Result:
    """The same in an asyncio loop, which goes on meanwhile; cancelling ends the work."""
    loop = asyncio.get_running_loop()
    messages: asyncio.Queue[Callable[[], bool]] = asyncio.Queue()

    def put(message: Callable[[], bool]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(messages.put_nowait, message)

    working = _Working(work, on_row, put)
    try:
        while not (await messages.get())():
            pass
        return working.result()
    finally:
        working.stop.set()
        while working.thread.is_alive():  # a cancelled task is not cancelled again while the processes end
            await asyncio.sleep(JOIN_S)
