"""Virtual time: an asyncio loop whose clock jumps to the next timer whenever nothing is left to do.

In addition every peer has a wall clock, which may be wrong.
"""

import asyncio
import selectors
from collections.abc import Mapping, Sequence
from typing import Any

from fedchain.simulator.disturbances import Clock


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


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop that starts at 0 s and reaches any later time without waiting for it."""

    def __init__(self) -> None:
        self._clock = _VirtualSelector()
        super().__init__(self._clock)
        # Timers this close are due: after a year of virtual time, a float cannot represent shorter spans.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._clock.now_s

    def now_ms(self) -> int:
        """Virtual time in whole milliseconds, the protocol's unit."""
        return self._clock.now_ms


EPOCH_MS = 1_700_000_000_000
"""Reading of a correct wall clock when virtual time begins, in milliseconds since the Unix epoch."""


class WallClock:
    """One peer's wall clock: correct, or wrong according to its settings."""

    def __init__(self, settings: Sequence[Clock] = ()) -> None:
        self._settings = tuple(settings)

    def read_ms(self, now_ms: int) -> int:
        """Its reading at a moment of virtual time, in milliseconds since the Unix epoch."""
        if not self._settings:
            return EPOCH_MS + now_ms
        error_s = sum(self._error_s(setting, now_ms / 1000) for setting in self._settings)
        return EPOCH_MS + now_ms + round(1000 * error_s)

    @staticmethod
    def _error_s(setting: Clock, now_s: float) -> float:
        return setting.offset_s + setting.drift * (now_s - setting.at_s) if now_s >= setting.at_s else 0.0
