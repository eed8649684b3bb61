"""Training in workers that may be on other machines, and may be lost: another worker goes on with their clients.

Each answer brings its client's state along, which waits in a file here. When a worker is gone, its clients' states go
to another one, and so do the calls that it has not answered. The results are the same: they depend on nothing else.
"""

import threading
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedchain.crypto.hashing import Hash, sha256
from fedchain.files.scratch import Scratch
from fedchain.files.spool import write_named, write_whole
from fedchain.learning.executors.calling import CallingExecutor, Pending
from fedchain.learning.executors.executor import Job
from fedchain.learning.executors.packing import unpack
from fedchain.learning.executors.remote_training import Answered, Sent, Written
from fedchain.learning.executors.serving import Call
from fedchain.learning.executors.workers import Gone, Readable, SharingWorkers, WorkerDiedError
from fedchain.learning.payload.part_folder import PartFolder
from fedchain.learning.task.data_source import DataSource
from fedchain.learning.worker.building import build_learner
from fedchain.learning.worker.plan import LearnerPlan

SHARED_SIZE = 2**12
"""Size in bytes from which a knowledge is put where all workers read it, and not into each call."""

LOSSES_MAX = 4
"""Workers that may be lost at the same task of a client; the next loss is taken for the fault of the task."""


class RemoteExecutor(CallingExecutor):
    """A :class:`fedchain.learning.executors.executor.Backend` whose learners are in :class:`SharingWorkers`.

    Args:
        plan: of the learners. Parts that a contribution lists are written where it says, on this machine.
        workers: each does what :class:`fedchain.learning.executors.remote_training.RemoteTraining` does. They are
            closed with this executor.
        together: see :class:`CallingExecutor`.
        source: where examples come from, if a learner of the plan has loaded them in this process.
        stop: see :class:`CallingExecutor`.
    """

    def __init__(
        self,
        plan: LearnerPlan,
        workers: SharingWorkers,
        *,
        together: int = 0,
        source: DataSource | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        learner = build_learner(plan, source=source)
        super().__init__(learner, workers.count, _Shared(workers), together=together, stop=stop)
        self._workers, self._parts_of = workers, None if plan.parts is None else plan.parts.resolve()
        self._temporary = Scratch()
        self._states = Path(self._temporary.name)
        self._stated: set[int] = set()  # clients with a state there
        self._serving = list(range(workers.count))  # which worker serves in the place of each
        self._lost: set[int] = set()  # workers that are gone for good
        self._losses: Counter[tuple[str, int]] = Counter()  # by method and client, since its last answer
        self._sent: list[deque[tuple[int, Sequence[Call]]]] = [deque() for _ in range(workers.count)]
        self._arrived: deque[tuple[Call, bytes, Written]] = deque()
        self._parts_at: dict[int, set[Hash]] = {}  # by client: what its worker has
        self._put: dict[Hash, Readable] = {}

    def restore(self, client: int, path: Path) -> Job[None]:
        """See :class:`Backend`."""
        self._keep_state(client, path.read_bytes())
        return super().restore(client, self._state_of(client))

    def close(self) -> None:
        """See :class:`Clients`."""
        self._workers.close()
        self._temporary.cleanup()

    def _send(self, worker: int, calls: Sequence[Call]) -> None:
        """See :class:`CallingExecutor`."""
        serving = self._serving[worker]
        self._sent[serving].append((worker, calls))
        parts = {client: changed for client in {call.client for call in calls} if (changed := self._parts(client))}
        self._workers.send(serving, Sent(serving, [_portable(call) for call in calls], parts))

    def _hear(self, timeout_s: float) -> bool:
        """See :class:`CallingExecutor`. One reply at a time: whoever hears of it may raise an error."""
        if not self._arrived:
            heard = self._workers.receive(timeout_s)
            match heard:
                case None:
                    return False
                case Gone():
                    self._move(heard)
                    return True
                case Answered():
                    _, calls = self._sent[heard.worker].popleft()
                    for call, reply in zip(calls, heard.replies, strict=True):
                        self._losses.pop((call.method, call.client), None)
                        self._arrived.append((call, reply, heard.written[call.number]))
        call, reply, written = self._arrived.popleft()
        self._keep(call, written)
        self._take(unpack(reply))
        return True

    def _keep(self, call: Call, written: Written) -> None:
        """Write down here what a call has left at its worker."""
        if written.state is not None:
            self._keep_state(call.client, written.state)
            if call.state is not None:
                write_whole(written.state, call.state)
        if written.model is not None:
            write_named(written.model, call.arguments[0])
        if written.parts:
            assert self._parts_of is not None, "a method that lists parts has a place for them"
            for part in written.parts:
                self._parts_of(call.client).write(sha256(part), part)
            self._parts_at.setdefault(call.client, set()).update(map(sha256, written.parts))

    def _parts(self, client: int) -> dict[Hash, Readable | None]:
        """Changes of a client's parts since its worker was told."""
        if self._parts_of is None:
            return {}
        folder: PartFolder = self._parts_of(client)
        held, known = set(folder.hashes()), self._parts_at.get(client, set())
        if held == known:
            return {}
        self._parts_at[client] = held
        for part_hash in held - known - self._put.keys():
            self._put[part_hash] = self._workers.put(folder.read(part_hash))
        changed: dict[Hash, Readable | None] = {part_hash: self._put[part_hash] for part_hash in held - known}
        needed = set[Hash]().union(*self._parts_at.values())
        self._put = {part_hash: part for part_hash, part in self._put.items() if part_hash in needed}
        return changed | dict.fromkeys(known - held)

    def _move(self, gone: Gone) -> None:
        """Have others go on with what a worker that is gone was doing."""
        unanswered = list(self._sent[gone.worker])
        for call in unanswered[0][1] if unanswered else ():  # it was doing these, and had not begun with the others
            self._losses[call.method, call.client] += 1
            if (losses := self._losses[call.method, call.client]) > LOSSES_MAX:
                what = f"{losses} workers were lost at the same task, {call.method} of peer {call.client}"
                raise WorkerDiedError(f"{what}; the last one: {gone.reason}")
        self._sent[gone.worker].clear()
        moving = [place for place, worker in enumerate(self._serving) if worker == gone.worker]
        if not self._workers.replace(gone.worker):
            self._lost.add(gone.worker)
            left = [worker for worker in range(self._workers.count) if worker not in self._lost]
            if not left:
                raise WorkerDiedError(f"a worker was lost, and none is left: {gone.reason}")
            for turn, place in enumerate(moving):
                self._serving[place] = left[turn % len(left)]
        restored = {call.client for _, calls in unanswered for call in calls if call.method == "restore"}
        for place in moving:
            for client in [client for client in self._parts_at if self._place(client) == place]:
                del self._parts_at[client]
            left_here = sorted(client for client in self._stated - restored if self._place(client) == place)
            again = [self._restoring(client) for client in left_here]
            if again:
                self._send(place, again)
        for place, calls in unanswered:
            self._send(place, calls)

    def _restoring(self, client: int) -> Call:
        """A call that puts a client back to its newest state."""
        pending: Pending[None] = Pending(self)
        pending.add_done_callback(lambda job: job.result())
        return self._call(pending, "restore", client, (self._state_of(client), b""))

    def _place(self, client: int) -> int:
        return client % len(self._serving)

    def _state_of(self, client: int) -> Path:
        return self._states / str(client)

    def _keep_state(self, client: int, data: bytes) -> None:
        write_whole(data, self._state_of(client))
        self._stated.add(client)


class _Shared:
    """A :class:`fedchain.learning.executors.handover.Handing` by what workers share: a content is put there once."""

    def __init__(self, workers: SharingWorkers) -> None:
        self._workers = workers
        self._last: tuple[bytes, Readable] | None = None

    def hand(self, data: bytes) -> bytes | Readable:
        """See :class:`Handing`."""
        if len(data) < SHARED_SIZE:
            return data
        if self._last is None or self._last[0] is not data:
            self._last = data, self._workers.put(data)
        return self._last[1]

    def done(self, handed: bytes | Readable) -> None:
        """See :class:`Handing`: it goes when the last call that holds it does."""


def _portable(call: Call) -> Call:
    """A call as it travels: without paths of this machine."""
    if call.method == "restore":
        return replace(call, arguments=(call.arguments[0].read_bytes(), b""))
    if call.method == "save_model":
        return replace(call, arguments=(None, b""))
    return replace(call, state=None)
