"""What systemd is told about a node: that it is ready, how it is, that its loop still turns, that it is stopping.

The protocol is a datagram of NAME=value lines to the socket that the environment names (sd_notify(3)). Without the
variable nobody is told anything.
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
"""How often the status is told where no watchdog asks for more."""

PATIENCE = 3
"""A watchdog is told so many times in the time that it waits."""


class ServiceManager:
    """Tells the service manager, if there is one.

    Args:
        place: path of its socket; one that begins with @ is in the abstract namespace. Empty: there is none.
        watchdog_s: after how many seconds of silence it restarts the node; 0: never.
    """

    def __init__(self, place: str = "", watchdog_s: float = 0.0) -> None:
        self._place = "\0" + place[1:] if place.startswith("@") else place
        self.pause_s = min(STATUS_PAUSE_S, watchdog_s / PATIENCE) if watchdog_s else STATUS_PAUSE_S

    @property
    def is_there(self) -> bool:
        """Whether there is one."""
        return bool(self._place)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """The one that started this process; a watchdog that waits for another process is not ours to feed."""
        is_ours = environment.get(PROCESS_VARIABLE, str(os.getpid())) == str(os.getpid())
        microseconds = environment.get(WATCHDOG_VARIABLE, "")
        watchdog_s = int(microseconds) / 1e6 if is_ours and microseconds.isdecimal() else 0.0
        return cls(environment.get(SOCKET_VARIABLE, ""), watchdog_s)

    def tell(self, **facts: str | int) -> None:
        """Send facts by their names; nobody waits for the answer, and nothing depends on it."""
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
        """Tell that the node is ready, and then how it is, until cancelled: from the node's own loop, so that a loop
        that hangs is noticed."""
        self.tell(READY=1)
        while self._place:
            self.tell(WATCHDOG=1, STATUS=one_line(status()))
            await anyio.sleep(self.pause_s)


def one_line(now: Mapping[str, Any]) -> str:
    """How a node is, for ``systemctl status``."""
    peers = f"{len(now['peers'])} of {now['members'] - 1} members connected"
    return f"height {now['height']}, round {now['round']}, {peers}; waiting for {now['waiting_for']}"
