"""Workers: processes, on this machine or on others, each of which does what it is sent, in order.

An executor has them train clients; a comparison has them carry out whole runs.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from fedchain.learning.exceptions import LearningError


class WorkerDiedError(LearningError):
    """A training or simulating process ended without being told to."""


@dataclass(frozen=True, slots=True)
class Gone:
    """A worker ended without being told to; what it was sent and has not answered is lost."""

    worker: int
    reason: str


class Readable(Protocol):
    """Bytes that wait where a worker can read them."""

    def read(self) -> bytes:
        """The bytes."""


class Work(Protocol):
    """The work that a worker was made for."""

    def do(self, message: Any) -> Any:
        """Do what a message says; returns what is said about it, or yields it piece by piece."""

    def close(self) -> None:
        """End what it has begun, and delete its files."""


class Workers(Protocol):
    """Workers that have been started."""

    @property
    def count(self) -> int:
        """How many were started; they are numbered from 0."""

    def send(self, worker: int, message: Any) -> None:
        """Give a worker a message."""

    def receive(self, timeout_s: float) -> Any:
        """The next word of any worker; of one worker, in the order of its messages.

        Returns:
            what the worker says, or :class:`Gone`, once for each that died; None after the timeout.
        """

    def replace(self, worker: int) -> bool:
        """Start another worker in the place of one that is gone; False if there is no room for one."""

    def close(self) -> None:
        """End all workers at once."""


class SharingWorkers(Workers, Protocol):
    """Workers that read what is put before all of them."""

    def put(self, data: bytes) -> Readable:
        """Bytes for many messages: what is returned goes into a message in their place. They travel once to each
        machine, and are there as long as it is held."""
