"""Notifications to systemd: that a node is ready, its status, that its loop still runs, that it is stopping.

The protocol is a datagram of NAME=value lines to the socket that the environment names (sd_notify(3)). Without the
variable nothing is sent.
"""

import logging
import os
import socket
from collections.abc import Callable, Mapping
from typing import Any, Self

import anyio

log = logging.getLogger("fedchain.node")

SOCKET_VARIABLE, WATCHDOG_VARIABLE, PROCESS_VARIABLE = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"

STATUS_PAUSE_S = 5.0
"""Interval between status notifications, unless a watchdog asks for a shorter one."""

PATIENCE = 3
"""Notifications within a watchdog's timeout."""


class ServiceManager:
    """Notifies the service manager, if there is one.

    Args:
        place: path of its socket; a path that begins with @ is in the abstract namespace. Empty if there is none.
        watchdog_s: seconds of silence after which it restarts the node; 0 for never.
    """

    def __init__(self, place: str = "", watchdog_s: float = 0.0) -> None:
        self._place = "\0" + place[1:] if place.startswith("@") else place
        self.pause_s = min(STATUS_PAUSE_S, watchdog_s / PATIENCE) if watchdog_s else STATUS_PAUSE_S
        self.is_told = False
        """Whether it was told that the node is ready: from then on its watchdog waits."""

    @property
    def is_there(self) -> bool:
        """Whether there is a service manager."""
        return bool(self._place)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """The manager that started this process; a watchdog for another process is ignored."""
        is_ours = environment.get(PROCESS_VARIABLE, str(os.getpid())) == str(os.getpid())
        microseconds = environment.get(WATCHDOG_VARIABLE, "")
        watchdog_s = int(microseconds) / 1e6 if is_ours and microseconds.isdecimal() else 0.0
        return cls(environment.get(SOCKET_VARIABLE, ""), watchdog_s)

    def tell(self, **facts: str | int) -> None:
        """Send facts by name; there is no answer, and nothing depends on the delivery."""
        if not self.is_there:
            return
        lines = "\n".join(f"{name}={' '.join(str(value).split())}" for name, value in facts.items())
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto(lines.encode(), self._place)
        except OSError as error:
            log.warning("the service manager cannot be told: %s", error)

    async def follow(self, status: Callable[[], dict[str, Any]]) -> None:
        """Report that the node is ready, and then its status, until cancelled. This runs on the node's own loop, so a
        hanging loop is noticed."""
        self.tell(READY=1)
        self.is_told = True
        while self._place:
            self.tell(WATCHDOG=1, STATUS=one_line(status()))
            await anyio.sleep(self.pause_s)


def one_line(now: Mapping[str, Any]) -> str:
    """The state of a node in one line, for ``systemctl status``."""
    peers = f"{len(now['peers'])} of {now['members'] - 1} members connected"
    return f"height {now['height']}, round {now['round']}, {peers}; waiting for {now['waiting_for']}"
