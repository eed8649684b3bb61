"""Bounds on the connections of a listening port, so that clients that send half a request take nothing from others."""

import os
import resource
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress

FILES_KEPT = 64
"""Open files that a process keeps for its own work: databases, logs, sockets to other processes."""

CONNECTIONS_MIN = 16
"""Fewest connections of a port, however few files the process may open."""


class Connections:
    """The open connections of one port. Beyond the bound, each new one closes another.

    Connections without a whole request go first, the oldest of them first. An honest client sends its request in
    milliseconds, so it is closed only if ``most`` others connect in these milliseconds. Connections that are being
    answered go only if there are no others.

    Args:
        most: largest number of connections.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: OrderedDict[object, Callable[[], None]] = OrderedDict()
        self._answered: OrderedDict[object, Callable[[], None]] = OrderedDict()

    def __len__(self) -> int:
        """Number of open connections."""
        return len(self._waiting) + len(self._answered)

    def opened(self, key: object, close: Callable[[], None]) -> None:
        """A client has connected; ``close`` ends the connection at once."""
        while len(self) >= self._most:
            _, close_other = (self._waiting or self._answered).popitem(last=False)
            close_other()
        self._waiting[key] = close

    def asked(self, key: object) -> None:
        """A whole request has come over a connection."""
        if key in self._waiting:
            self._answered[key] = self._waiting.pop(key)

    def answered(self, key: object) -> None:
        """The answer is sent, and the connection is open for another request."""
        if key in self._answered:
            self._waiting[key] = self._answered.pop(key)

    def closed(self, key: object) -> None:
        """A connection has ended."""
        self._waiting.pop(key, None)
        self._answered.pop(key, None)


def connections_max(most: int, under_way: int) -> int:
    """Connections that a port may hold so that the process never lacks files: ``most``, or what its limit leaves.

    Args:
        most: the number that would do if files were plenty.
        under_way: connections that may be open but not counted yet, or not any more.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return most
    return max(CONNECTIONS_MIN, min(most, limit - _open_files() - FILES_KEPT - under_way))


def _open_files() -> int:
    with suppress(OSError):
        return len(os.listdir("/dev/fd"))
    return 0
