"""Workers in this process, which can be killed: an executor of remote workers meets every loss without a cluster."""

from collections import deque
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from fedchain.learning.executors.remote_training import RemoteTraining
from fedchain.learning.executors.workers import Gone


@dataclass(frozen=True, slots=True)
class Put:
    """Bytes that all workers read."""

    data: bytes

    def read(self) -> bytes:
        return self.data


@dataclass
class WorkersHere:
    """A :class:`fedchain.learning.executors.workers.Workers` that works when somebody waits, one message at a time."""

    build: Callable[[], RemoteTraining]
    count: int = 2
    room: int = 9
    """Workers that can be started in place of others."""
    fatal: Callable[[Any], bool] = lambda message: False
    """Which messages a worker dies of."""
    puts: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.working: list[RemoteTraining | None] = [self.build() for _ in range(self.count)]
        self.waiting: deque[tuple[int, Any]] = deque()
        self.told: set[int] = set()

    def put(self, data: bytes) -> Put:
        self.puts.append(data)
        return Put(data)

    def send(self, worker: int, message: Any) -> None:
        self.waiting.append((worker, deepcopy(message)))

    def receive(self, timeout_s: float) -> Any:
        while self.waiting:
            worker, message = self.waiting.popleft()
            serving = self.working[worker]
            if serving is not None and not self.fatal(message):
                return deepcopy(serving.do(message))
            self.kill(worker)
            if worker not in self.told:
                self.told.add(worker)
                return Gone(worker, f"worker {worker} was killed")
        return None

    def kill(self, worker: int) -> None:
        """Lose a worker, with what it has not answered."""
        serving, self.working[worker] = self.working[worker], None
        if serving is not None:
            serving.close()

    def replace(self, worker: int) -> bool:
        if not self.room:
            return False
        self.room -= 1
        self.waiting = deque(item for item in self.waiting if item[0] != worker)
        self.told.discard(worker)
        self.working[worker] = self.build()
        return True

    def close(self) -> None:
        for worker in range(self.count):
            self.kill(worker)
