"""Calls of learners' methods that travel to workers, wherever these are, and the jobs that wait for the replies."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic

from fedchain.learning.amended import Amended
from fedchain.learning.executors.executor import Answer, Asked, InFile, Interrupted, Job, Question, Result
from fedchain.learning.executors.handover import Handing
from fedchain.learning.executors.inbox import CONTRIBUTE
from fedchain.learning.executors.packing import Reply
from fedchain.learning.executors.serving import Call
from fedchain.learning.training.measured import Evaluation
from fedchain.learning.worker.learner import Learner

POLL_S = 1.0
"""How often a wait for a result looks whether its process is still alive."""


class CallingExecutor(ABC):
    """A :class:`fedchain.learning.executors.executor.Backend` that sends calls to workers, which have the learners.

    Args:
        learner: of the same plan, in this process; it plans steps, and no more.
        workers: their number, at least 1; client k is served by worker k mod ``workers``.
        outgoing: hands knowledge to them.
        together: contributions are held until this many are asked for, or somebody waits for one; then the learner
            computes as many of them together as it can, with the same results but for rounding. 0: each at once, alone.
        stop: set by another thread that waits for nothing any more: whoever waits for a result then gets Interrupted.
    """

    def __init__(
        self, learner: Learner, workers: int, outgoing: Handing, *, together: int, stop: threading.Event | None
    ) -> None:
        self._learner, self._outgoing = learner, outgoing
        self._handed: dict[int, Any] = {}  # the knowledge of calls that are not answered
        self._under_way: dict[int, Pending[Any]] = {}  # those calls
        self._together, self._stop = together, stop
        self._held: list[list[Call]] = [[] for _ in range(workers)]  # by worker
        self._count = 0

    def planned_steps(self, client: int, phase: str, round_number: int, amended: Amended = ()) -> int:
        """See :class:`Clients`."""
        self._learner.amend(amended)
        return self._learner.planned_steps(client, phase, round_number)

    def compute(self, question: Question, state: Path | None = None) -> Asked:
        """See :class:`Backend`."""
        pending: Pending[Answer | InFile] = Pending(self, question)
        self._hold(
            self._call(pending, CONTRIBUTE, question.client, arguments_of(question), question.evaluate_test, state)
        )
        return pending

    def evaluate_received(
        self, client: int, round_number: int, knowledge: bytes, *, evaluate_test: bool, amended: Amended = ()
    ) -> Job[Evaluation | None]:
        """See :class:`Clients`."""
        pending: Pending[Evaluation | None] = Pending(self)
        self._hold(self._call(pending, "evaluate_received", client, (round_number, amended, knowledge), evaluate_test))
        return pending

    def save_model(self, client: int, path: Path) -> Job[None]:
        """See :class:`Clients`."""
        pending: Pending[None] = Pending(self)
        self._hold(self._call(pending, "save_model", client, (path, b"")))
        return pending

    def restore(self, client: int, path: Path) -> Job[None]:
        """See :class:`Backend`. It is sent alone, so that what follows can be computed together."""
        pending: Pending[None] = Pending(self)
        worker = client % len(self._held)
        if any(call.client == client for call in self._held[worker]):
            self.flush()
        self._send_noted(worker, [self._call(pending, "restore", client, (path, b""))])
        return pending

    def flush(self) -> None:
        """See :class:`Backend`."""
        for worker, held in enumerate(self._held):
            if held:
                self._send_noted(worker, list(held))
                held.clear()

    def receive(self) -> None:
        """Wait for the next reply, whoever waits for it, and see now and then whether one can still come."""
        if not self._hear(POLL_S) and self._stop is not None and self._stop.is_set():
            raise Interrupted

    @abstractmethod
    def _send(self, worker: int, calls: Sequence[Call]) -> None:
        """Give calls to a worker, to be answered in their order."""

    @abstractmethod
    def _hear(self, timeout_s: float) -> bool:
        """Take what workers have answered; False if nothing came in time. Raises WorkerDiedError if nothing can."""

    def _take(self, reply: Reply) -> None:
        """A reply has come."""
        self._outgoing.done(self._handed.pop(reply.number))
        self._under_way.pop(reply.number).finish(reply)

    def _hold(self, call: Call) -> None:
        """Put a call with those that go out together, and send these if they are enough."""
        self._held[call.client % len(self._held)].append(call)
        if sum(map(len, self._held)) >= self._together:
            self.flush()

    def _call(
        self,
        pending: "Pending[Any]",
        method: str,
        client: int,
        arguments: tuple[Any, ...],
        evaluate_test: bool = False,
        state: Path | None = None,
    ) -> Call:
        self._count += 1
        *others, knowledge = arguments
        handed = self._handed[self._count] = self._outgoing.hand(knowledge)
        self._under_way[self._count] = pending
        return Call(self._count, method, client, (*others, handed), evaluate_test, state)

    def _send_noted(self, worker: int, calls: Sequence[Call]) -> None:
        """Send calls, each of which knows which go out together."""
        sent = [self._under_way[call.number] for call in calls]
        together = tuple(pending.question for pending in sent if pending.question is not None)
        for pending in sent:
            pending.together = together
        self._send(worker, calls)


def arguments_of(question: Question) -> tuple[Any, ...]:
    """A question as the arguments of a call."""
    return question.phase, question.round, question.clients, question.amended, question.key, question.knowledge


class Pending(Generic[Result]):
    """A call under way.

    Args:
        executor: whose call it is.
        question: what is asked, if it is a question.
    """

    def __init__(self, executor: CallingExecutor, question: Question | None = None) -> None:
        self.question = question
        self.together: Sequence[Question] = ()
        self._executor = executor
        self._reply: Reply | None = None
        self._callbacks: list[Callable[[Job[Result]], object]] = []

    def result(self) -> Result:
        """See :class:`Job`."""
        self._executor.flush()
        while self._reply is None:
            self._executor.receive()
        reply = self._reply
        if not reply.succeeded:
            raise reply.value
        found: Result = reply.value
        return found

    def add_done_callback(self, call: Callable[[Job[Result]], object]) -> None:
        """See :class:`Job`."""
        if self._reply is None:
            self._callbacks.append(call)
        else:
            call(self)

    def finish(self, reply: Reply) -> None:
        """The reply has come."""
        self._reply = reply
        callbacks, self._callbacks = self._callbacks, []
        for call in callbacks:
            call(self)
