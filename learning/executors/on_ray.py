"""Workers on Ray: an actor for each core, or each graphics card, of the machines of a Ray cluster.

Nothing else knows Ray, which is an extra of the package.
"""

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from fedchain.learning.exceptions import RAY_IS_MISSING, ConfigurationError
from fedchain.learning.executors.workers import Gone, Work
from fedchain.learning.registry import use_current_folder

try:
    import ray
    from ray.exceptions import RayError, RayTaskError
except ImportError:
    raise ConfigurationError(RAY_IS_MISSING) from None

START_S = 60.0
"""How long actors have to start: they wait where somebody else has the cores, or where the machine is too busy."""

CLOSE_S = 5.0
"""How long workers have to delete their files."""


@dataclass(frozen=True, slots=True)
class InStore:
    """Bytes in the cluster's object store; they go when nobody has a reference to them any more."""

    reference: Any

    def read(self) -> bytes:
        """The bytes; each machine fetches them once."""
        data: bytes = ray.get(self.reference)
        return data


class RayWorkers:
    """Actors as :class:`fedchain.learning.executors.workers.SharingWorkers`.

    Args:
        build: makes what each actor has inside.
        count: their number at most; there are no more than cores, or cards, that nobody else uses.
        address: of the cluster; empty: the one that RAY_ADDRESS names, or else one on this machine, for as long as
            these workers are needed.
        cards: whether each gets a graphics card for itself.
        pieces: whether work is yielded piece by piece.
    """

    def __init__(
        self,
        build: Callable[[], Work],
        count: int,
        address: str = "",
        *,
        cards: bool = False,
        pieces: bool = False,
    ) -> None:
        self._build, self._pieces = build, pieces
        self._resource = "GPU" if cards else "CPU"
        _join(self, address)
        self._actors: list[Any] = self._started([self._start() for _ in range(min(count, self._room()))])
        self.count = len(self._actors)
        """See :class:`Workers`."""
        if not self.count:
            self.close()
            late = f"or began no actor on it in {START_S:.0f} s"
            raise ConfigurationError(f"the Ray cluster has no {self._resource} that nobody uses, {late}")
        self._unanswered: list[deque[Any]] = [deque() for _ in range(self.count)]

    def put(self, data: bytes) -> InStore:
        """See :class:`Workers`."""
        return InStore(ray.put(data))

    def send(self, worker: int, message: Any) -> None:
        """See :class:`Workers`."""
        actor = self._actors[worker]
        asked = actor.do_in_pieces.options(num_returns="streaming") if self._pieces else actor.do
        self._unanswered[worker].append(asked.remote(message))

    def receive(self, timeout_s: float) -> Any:
        """See :class:`Workers`."""
        first = {waiting[0]: worker for worker, waiting in enumerate(self._unanswered) if waiting}
        ready, _ = ray.wait(list(first), timeout=timeout_s) if first else ([], [])
        if not ready:
            return None
        worker = first[ready[0]]
        try:
            return ray.get(self._next(worker))
        except StopIteration:  # that was its last piece
            self._unanswered[worker].popleft()
            return self.receive(timeout_s)
        except RayTaskError as error:
            raise error.cause from error
        except RayError as error:
            return Gone(worker, str(error).strip().replace("\n", " "))

    def replace(self, worker: int) -> bool:
        """See :class:`Workers`. A machine that was lost has no room any more, though Ray counts it for a while."""
        with suppress(RayError):
            ray.kill(self._actors[worker])
        self._actors[worker] = None
        self._unanswered[worker].clear()
        others = sum(actor is not None for actor in self._actors)
        started = self._started([self._start()]) if self._room() > others else []
        if started:
            (self._actors[worker],) = started
        return bool(started)

    def close(self) -> None:
        """See :class:`Workers`."""
        actors = [actor for actor in self._actors if actor is not None]
        with suppress(RayError):
            if actors:
                ray.wait([actor.close.remote() for actor in actors], num_returns=len(actors), timeout=CLOSE_S)
            for actor in actors:
                ray.kill(actor)
        _leave(self)

    def _next(self, worker: int) -> Any:
        """The reference to what a worker has said."""
        waiting = self._unanswered[worker]
        return next(waiting[0]) if self._pieces else waiting.popleft()

    def _room(self) -> int:
        """Cores, or cards, of all machines of the cluster."""
        return int(ray.cluster_resources().get(self._resource, 0))

    def _started(self, actors: list[Any]) -> list[Any]:
        """The actors that have started; the others, whose place somebody else has, or is lost, are given up."""
        asked = {actor.is_ready.remote(): actor for actor in actors}
        answered, _ = ray.wait(list(asked), num_returns=len(asked), timeout=START_S) if asked else ([], [])
        started = []
        for reference in answered:
            with suppress(RayError):
                ray.get(reference)
                started.append(asked.pop(reference))
        for actor in asked.values():
            ray.kill(actor)
        return started

    def _start(self) -> Any:
        needs: dict[str, Any] = {"num_gpus": 1, "num_cpus": 0} if self._resource == "GPU" else {"num_cpus": 1}
        return ray.remote(_Actor).options(scheduling_strategy="SPREAD", **needs).remote(self._build, Path.cwd())


class _Actor:
    """A worker's process. Its work is built when it is first asked, as a fault in the start would not be told."""

    def __init__(self, build: Callable[[], Work], folder: Path) -> None:
        with suppress(OSError):  # of the user, whose own code may be there
            os.chdir(folder)
        use_current_folder()
        self._build = build
        self._work: Work | None = None

    def is_ready(self) -> bool:
        return True

    def do(self, message: Any) -> Any:
        self._work = self._work or self._build()
        return self._work.do(message)

    def do_in_pieces(self, message: Any) -> Iterator[Any]:
        yield from self.do(message)

    def close(self) -> None:
        if self._work is not None:
            self._work.close()


class _Connection:
    """This process's connection to a cluster, if it was made here: those that use it may be in several threads."""

    lock = threading.Lock()
    users: ClassVar[set[RayWorkers]] = set()


def _join(user: RayWorkers, address: str) -> None:
    """Use the connection that is there, or else join a cluster or begin one on this machine."""
    with _Connection.lock:
        if not ray.is_initialized():
            _Connection.users.clear()  # theirs was ended by somebody else
            _connect(address)
        elif not _Connection.users:
            return  # it is the caller's own, who ends it
        _Connection.users.add(user)


def _leave(user: RayWorkers) -> None:
    """End a connection that was made here when its last user leaves."""
    with _Connection.lock:
        if user in _Connection.users:
            _Connection.users.remove(user)
            if not _Connection.users:
                ray.shutdown()


def _connect(address: str) -> None:
    """Join a cluster, or begin one on this machine. SIGTERM is handled as before; Ray would abort the process."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address or None, log_to_driver=False, logging_level="ERROR", configure_logging=True)
    except Exception as error:  # of no class of its own where a node does not start in time
        raise ConfigurationError(f"no Ray cluster answers at {address or 'this machine'}: {error}") from None
    finally:
        if handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)
