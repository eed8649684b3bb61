"""Virtual time: an asyncio loop whose clock jumps to the next timer whenever nothing is left to do.

In addition every peer has a wall clock, which may be wrong.
"""

import asyncio
import heapq
import selectors
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from typing import Any

from fedchain.node.core.events import Moment
from fedchain.simulator.disturbances import Clock

STEP_MAX_S = 86_400.0
"""Most virtual seconds by which the clock jumps at a time, as asyncio's loop waits at a time."""

CLEANED_FROM = 100
"""Number of timers from which cancelled ones are dropped once they are the majority, as asyncio drops them."""


class DeadlockError(RuntimeError):
    """Nothing is ready, no timer is set, and the loop would wait for ever."""


class _VirtualSelector(selectors.BaseSelector):
    """Never waits: it adds the time that it should have waited to the clock. No real I/O passes here."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.now_ms = 0
        self._real = selectors.DefaultSelector()  # holds the loop's own wake-up pipe

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Advance the clock by ``timeout`` seconds."""
        if timeout is None:
            raise DeadlockError(f"nothing left to do at virtual time {self.now_s:.3f} s")
        if timeout > 0.0:
            self.now_s += timeout
            self.now_ms = round(self.now_s * 1000)
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        mapping: Mapping[Any, selectors.SelectorKey] = self._real.get_map()
        return mapping

    def close(self) -> None:
        self._real.close()


class _Timer(asyncio.TimerHandle):
    """A timer, and whether it is in the heap, which asyncio asks when it is cancelled."""

    __slots__ = ()
    _scheduled: bool


class _Due(float):
    """The time of a timer, in virtual seconds, with the timer."""

    __slots__ = ("timer",)
    timer: _Timer


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop that starts at 0 s and reaches any later time without waiting for it.

    A turn is taken for each millisecond in which something arrives, so the timers are in a heap of numbers: asyncio's
    own compares them by a function of Python's, which took a twentieth of a run. Their order is the same.
    """

    _ready: deque[asyncio.Handle]
    _stopping: bool
    _timer_cancelled_count: int

    def __init__(self) -> None:
        self._clock = _VirtualSelector()
        self._timers: list[_Due] = []
        super().__init__(self._clock)
        # Timers this close are due: after a year of virtual time, a float cannot represent shorter spans.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._clock.now_s

    def now_ms(self) -> int:
        """Virtual time in whole milliseconds, the protocol's unit."""
        return self._clock.now_ms

    def call_at(  # type: ignore[override]  # the base class says it with type variables
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Have ``callback`` called with ``args`` at a virtual time, in seconds."""
        if self.is_closed():
            raise RuntimeError("the loop is closed")
        due = _Due(when)
        due.timer = timer = _Timer(when, callback, args, self, context)
        timer._scheduled = True
        heapq.heappush(self._timers, due)
        return timer

    def _run_once(self) -> None:
        """Take one turn, as the base class does: jump to the next timer if nothing is ready, and call what is."""
        timers, ready, clock = self._timers, self._ready, self._clock
        if len(timers) > CLEANED_FROM and 2 * self._timer_cancelled_count > len(timers):
            for due in timers:
                due.timer._scheduled = not due.timer.cancelled()
            timers = self._timers = [due for due in timers if due.timer._scheduled]
            heapq.heapify(timers)
            self._timer_cancelled_count = 0
        while timers and timers[0].timer.cancelled():
            self._timer_cancelled_count -= 1
            heapq.heappop(timers).timer._scheduled = False
        if not ready and not self._stopping:
            clock.select(min(max(0.0, timers[0] - clock.now_s), STEP_MAX_S) if timers else None)
        end_s = clock.now_s + self._clock_resolution
        while timers and timers[0] < end_s:
            timer = heapq.heappop(timers).timer
            timer._scheduled = False
            ready.append(timer)
        for _ in range(len(ready)):  # what these add is called in the next turn
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()


EPOCH_MS = 1_700_000_000_000
"""Reading of a correct wall clock when virtual time begins, in milliseconds since the Unix epoch."""


class WallClock:
    """The wall clock of a peer, or of all those whose clocks are correct: it is wrong according to its settings."""

    def __init__(self, settings: Sequence[Clock] = ()) -> None:
        self._settings = tuple(settings)
        self._moment = Moment(-1, 0)

    def moment(self, now_ms: int) -> Moment:
        """A moment of virtual time: one object for all events in it of all peers with this clock."""
        if self._moment.ms != now_ms:
            self._moment = Moment(now_ms, self.read_ms(now_ms))
        return self._moment

    def read_ms(self, now_ms: int) -> int:
        """Its reading at a moment of virtual time, in milliseconds since the Unix epoch."""
        if not self._settings:
            return EPOCH_MS + now_ms
        error_s = sum(self._error_s(setting, now_ms / 1000) for setting in self._settings)
        return EPOCH_MS + now_ms + round(1000 * error_s)

    @staticmethod
    def _error_s(setting: Clock, now_s: float) -> float:
        return setting.offset_s + setting.drift * (now_s - setting.at_s) if now_s >= setting.at_s else 0.0
