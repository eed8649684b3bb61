"""Training that is remembered: a run that goes on is given its own answers again, as far as it had got.

What a client computes follows from the client and from what it is asked, and its questions come in the same order
whenever a run is repeated. So its answers are numbered. Up to the newest state that is left of the client they come
from the record, and it goes on from that state. Should none be left it begins again, and what it computes then must be
what the record says.
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
"""Phases that a client was asked for last. Who was restarted may be asked for one of them again."""


class RecordingPool(TrainingPool):
    """Worker processes as :class:`TrainingPool`, beside a record.

    Args:
        learner: with its data loaded, and no client built.
        workers: number of processes.
        record: of this run.
        clients_max: how many clients each process holds; None: all that it serves.
        together: see :class:`TrainingPool`.
        stop: set by another thread that waits for nothing any more.
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
        self._asked: dict[int, _Asked] = {}  # by call, until its answer is written down
        self._restoring: set[int] = set()  # calls that put a client back to a state
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
        """One of a client's answers, as who waits for it gets it. Calls that are held go out, as with any wait."""
        self._send_held()
        answer = self._record.answer(client, number)
        if isinstance(answer.made, NothingToPost):
            raise answer.made
        assert answer.payload is not None, "a contribution has one"
        return replace(answer.made, payload=self._record.read(answer.payload))

    def _made_before(self, client: int, key: tuple[str, int]) -> int:
        """Which answer is the client's last contribution, if it is the one to this question; else 0."""
        self._send_held()
        while any(asked.client == client for asked in self._asked.values()):
            self._receive()
        made, number = self._made.get(client, (None, 0))
        return number if made == key else 0

    def _repeat(self, client: int, number: int, question: Question) -> None:
        """Have an answer of the record do what it did when it was computed."""
        answer = self._record.answer(client, number)
        if answer.question != question:
            raise RecordError(
                f"the record has peer {client} asked for phase {answer.question.phase} of round "
                f"{answer.question.round} where it is asked for phase {question.phase} of round {question.round} now, "
                "or given something else: it was made by another program or machine"
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
        """Have a client's process put it back to what it was, before it is asked for anything."""
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
        """Write an answer down. When all that were computed with it are, nobody needs the states before them."""
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
        """SHA-256 of what peers in turn are given, once for all of them."""
        if self._known[0] is not knowledge:
            self._known = knowledge, sha256(knowledge)
        return self._known[1]


def _answered(record: Record, *, together: bool) -> dict[int, int]:
    """How many of each client's answers are taken from the record: those up to the newest state of it that is whole.

    What was computed together is taken together: then it is all of them, or none.
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
    """Which of the client's answers it will be."""
    question: Question
    batch: Sequence["_Asked"] = ()
    """All calls that were sent with it, and it."""
    is_answered: bool = False


@dataclass(frozen=True, slots=True)
class _Recorded:
    """A job that was done before."""

    pool: RecordingPool
    client: int
    number: int

    def result(self) -> Contribution:
        return self.pool.recorded(self.client, self.number)
