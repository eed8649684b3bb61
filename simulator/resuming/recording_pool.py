"""Training with a record: a resumed run gets its own answers again, up to the interruption.

A client's results follow from the client and its questions, and the questions come in the same order whenever a run is
replayed. So its answers are numbered. The answers up to the client's newest surviving state come from the record, and
the client goes on from that state. If no state is left, the client begins again, and its results must equal those in
the record.
"""

import threading
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedchain.crypto.hashing import Hash, sha256
from fedchain.learning.exceptions import NothingToPost
from fedchain.learning.payload.part_folder import PartFolder
from fedchain.learning.worker.learner import Contribution, Learner
from fedchain.simulator.engine.client_state import is_saved
from fedchain.simulator.engine.training_pool import Call, Job, Pending, Reply, TrainingPool
from fedchain.simulator.resuming.answers import Answer, Batch, Question
from fedchain.simulator.resuming.record import Record, RecordError

KEYS_KEPT = 4
"""Number of a client's latest phases to remember: a restarted peer may ask for one of them again."""


class RecordingPool(TrainingPool):
    """Worker processes as :class:`TrainingPool`, with a record.

    Args:
        learner: has its data loaded, and no client built.
        workers: number of processes.
        record: this run's record.
        clients_max: number of clients that each process holds; None if it holds all that it serves.
        together: see :class:`TrainingPool`.
        stop: see :class:`TrainingPool`.
    """

    def __init__(
        self,
        learner: Learner,
        workers: int,
        record: Record,
        clients_max: int | None = None,
        *,
        together: int = 0,
        stop: threading.Event | None = None,
    ) -> None:
        super().__init__(learner, workers, clients_max, together=together, stop=stop)
        self._record = record
        self._answered = _answered(record, together=together > 0)
        self._states = {
            client: record.state_path(client, number) for client, number in self._answered.items() if number
        }
        self._counts: dict[int, int] = defaultdict(int)  # questions of each client
        self._keys: dict[int, deque[tuple[str, int]]] = defaultdict(lambda: deque(maxlen=KEYS_KEPT))
        self._made: dict[int, tuple[tuple[str, int], int]] = {}  # each client's last contribution: phase, round, number
        self._asked: dict[int, _Asked] = {}  # by call, until its answer is written
        self._restoring: set[int] = set()  # calls that restore a client's state
        self._known: tuple[bytes, Hash] = b"", sha256(b"")

    def contribute(
        self, client: int, phase: str, round_number: int, knowledge: bytes, *, evaluate_test: bool
    ) -> Job[Contribution]:
        """See :class:`Compute`."""
        key = phase, round_number
        if key in self._keys[client] and (number := self._made_before(client, key)):
            return _Recorded(self, client, number)
        self._keys[client].append(key)
        self._counts[client] += 1
        number, question = self._counts[client], Question(phase, round_number, self._hash(knowledge), evaluate_test)
        if number <= self._answered.get(client, 0):
            self._repeat(client, number, question)
            return _Recorded(self, client, number)
        self._restore(client)
        self._asked[self._count + 1] = _Asked(client, number, question)  # by the number that the call now gets
        state = self._record.state_path(client, number)
        return self._call("contribute", client, (phase, round_number, knowledge), evaluate_test, state)

    def recorded(self, client: int, number: int) -> Contribution:
        """One of a client's answers, as the result of a job. Calls that are held are sent, as with any wait."""
        self._send_held()
        answer = self._record.answer(client, number)
        if isinstance(answer.made, NothingToPost):
            raise answer.made
        assert answer.payload is not None, "a contribution has one"
        return replace(answer.made, payload=self._record.read(answer.payload))

    def _made_before(self, client: int, key: tuple[str, int]) -> int:
        """Number of the client's last contribution if it is to this phase and round; otherwise 0."""
        self._send_held()
        while any(asked.client == client for asked in self._asked.values()):
            self._receive()
        made, number = self._made.get(client, (None, 0))
        return number if made == key else 0

    def _repeat(self, client: int, number: int, question: Question) -> None:
        """Replay an answer of the record, which must be to the same question: note it, and write its parts again."""
        answer = self._record.answer(client, number)
        if answer.question != question:
            raise RecordError(
                f"the record has peer {client} contribute to phase {answer.question.phase} of round "
                f"{answer.question.round}, and the run to phase {question.phase} of round {question.round} or from "
                "other knowledge: another program or machine made the record"
            )
        if isinstance(answer.made, Contribution):
            self._made[client] = (question.phase, question.round), number
            for part in answer.parts:
                self._parts_of(client).write(part.hash, self._record.read(part))

    def _call(
        self, method: str, client: int, arguments: tuple[Any, ...], evaluate_test: bool, state: Path | None = None
    ) -> Pending[Any]:
        self._restore(client)
        return super()._call(method, client, arguments, evaluate_test, state)

    def _restore(self, client: int) -> None:
        """Have a client's process restore its state before any other call."""
        path = self._states.pop(client, None)
        if path is not None:
            self._count += 1
            self._restoring.add(self._count)
            self._handed[self._count] = b""
            self._send(client, [Call(self._count, "restore", client, (path, b""), evaluate_test=False)])

    def _send(self, process: int, calls: Sequence[Call]) -> None:
        asked = [self._asked[call.number] for call in calls if call.number in self._asked]
        if asked:
            for item in asked:
                item.batch = asked
        super()._send(process, calls)

    def _on_reply(self, reply: Reply) -> None:
        """Write an answer. When the whole batch is written, older states of its clients are deleted."""
        if reply.number in self._restoring:
            self._restoring.remove(reply.number)
            self._done.pop(reply.number)
            if not reply.succeeded:
                raise reply.value
        asked = self._asked.get(reply.number)
        if asked is None or not (reply.succeeded or isinstance(reply.value, NothingToPost)):
            self._asked.pop(reply.number, None)
            return
        del self._asked[reply.number]
        first, size = asked.batch[0], len(asked.batch)
        batch = Batch(first.client, first.number, size)
        self._record.add(asked.client, asked.number, batch, self._answer(asked, reply))
        if reply.succeeded:
            self._made[asked.client] = (asked.question.phase, asked.question.round), asked.number
        asked.is_answered = True
        if all(other.is_answered for other in asked.batch):
            for other in asked.batch:
                self._record.forget_states(other.client, other.number)

    def _answer(self, asked: "_Asked", reply: Reply) -> Answer:
        if not reply.succeeded:
            return Answer(asked.question, reply.value, None)
        payload = self._record.put(reply.value.payload if reply.payload is None else reply.payload.path)
        parts = self._parts_of(asked.client)
        kept = tuple(self._record.put(parts.read(part_hash)) for part_hash in reply.value.parts)
        return Answer(asked.question, replace(reply.value, payload=b""), payload, kept)

    def _parts_of(self, client: int) -> PartFolder:
        return PartFolder(self.parts / str(client), is_durable=False)

    def _hash(self, knowledge: bytes) -> Hash:
        """SHA-256 of a knowledge; calculated once for consecutive peers with the same one."""
        if self._known[0] is not knowledge:
            self._known = knowledge, sha256(knowledge)
        return self._known[1]


def _answered(record: Record, *, together: bool) -> dict[int, int]:
    """Number of each client's answers to take from the record: those up to its newest whole state.

    If contributions were computed together, either all answers are taken or none.
    """
    answered = {}
    for client in record.clients():
        states = (number for number in record.states(client) if is_saved(record.state_path(client, number)))
        answered[client] = next(states, 0)
    if together and any(number < record.count(client) for client, number in answered.items()):
        return {}
    return answered


@dataclass(slots=True)
class _Asked:
    """A call whose answer goes into the record."""

    client: int
    number: int
    """Number of the answer among the client's."""
    question: Question
    batch: Sequence["_Asked"] = ()
    """All calls that were sent together, this one included."""
    is_answered: bool = False


@dataclass(frozen=True, slots=True)
class _Recorded:
    """A job that was done before."""

    pool: RecordingPool
    client: int
    number: int

    def result(self) -> Contribution:
        return self.pool.recorded(self.client, self.number)
