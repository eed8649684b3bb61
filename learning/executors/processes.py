"""Training in worker processes, one torch thread each, on the processor.

They work ahead of the caller that waits for them. A client stays with one process, which keeps its model. Its results
depend on nothing else, so the number of processes changes no bit of them. Clients that a process cannot hold wait in
files, in a folder that goes when the executor does.
"""

import multiprocessing
import signal
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from queue import Empty
from typing import Any, Generic

from fedchain.learning.device import use_threads
from fedchain.learning.executors.executor import Answer, Asked, InFile, Interrupted, Job, Question, Result
from fedchain.learning.executors.handover import Handing, Outgoing
from fedchain.learning.executors.inbox import CONTRIBUTE, FORESEE
from fedchain.learning.executors.outcomes import Counts, Outcome
from fedchain.learning.executors.serving import ENDING_SIGNALS, Call, Reply, serve
from fedchain.learning.executors.workers import WorkerDiedError
from fedchain.learning.payload.part_folder import PARTS
from fedchain.learning.task.data_source import DataSource
from fedchain.learning.training.measured import Evaluation
from fedchain.learning.worker.building import build_learner
from fedchain.learning.worker.learner import Learner
from fedchain.learning.worker.plan import LearnerPlan, Named

POLL_S = 1.0
"""How often a wait for a result looks whether its process is still alive."""

CLIENTS_MAX = 16
"""Clients that a process holds where most peers are asleep; the others wait in files."""


class CallingExecutor(ABC):
    """A :class:`fedchain.learning.executors.executor.Backend` that sends calls to workers, which have the learners.

    Args:
        learner: of the same plan, in this process; it plans steps, and no more.
        workers: their number, at least 1; client k is served by worker k mod ``workers``.
        outgoing: hands knowledge to them.
        together: as so many contributions are asked for, or somebody waits for one, they are computed as many at once
            as the learner can: the same results to rounding. 0: each at once, and alone.
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

    def planned_steps(self, client: int, phase: str, round_number: int) -> int:
        """See :class:`Clients`."""
        return self._learner.planned_steps(client, phase, round_number)

    def compute(self, question: Question, state: Path | None = None) -> Asked:
        """See :class:`Backend`."""
        pending: Pending[Answer | InFile] = Pending(self, question)
        self._hold(pending, CONTRIBUTE, question.client, _arguments(question), question.evaluate_test, state)
        return pending

    def evaluate_received(
        self, client: int, round_number: int, knowledge: bytes, *, evaluate_test: bool
    ) -> Job[Evaluation | None]:
        """See :class:`Clients`."""
        pending: Pending[Evaluation | None] = Pending(self)
        self._hold(pending, "evaluate_received", client, (round_number, knowledge), evaluate_test)
        return pending

    def save_model(self, client: int, path: Path) -> Job[None]:
        """See :class:`Clients`."""
        pending: Pending[None] = Pending(self)
        self._hold(pending, "save_model", client, (path, b""))
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

    def _hold(
        self,
        pending: "Pending[Any]",
        method: str,
        client: int,
        arguments: tuple[Any, ...],
        evaluate_test: bool = False,
        state: Path | None = None,
    ) -> None:
        """Put a call with those that go out together, and send these if they are enough."""
        call = self._call(pending, method, client, arguments, evaluate_test, state)
        self._held[client % len(self._held)].append(call)
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


def _arguments(question: Question) -> tuple[Any, ...]:
    """A question as the arguments of a call."""
    return question.phase, question.round, question.clients, question.knowledge


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


class ProcessExecutor(CallingExecutor):
    """A :class:`fedchain.learning.executors.executor.Backend` of worker processes, each with a learner of one plan.

    They are forked after the data are loaded, so they share the data set's memory.

    Args:
        plan: of the learners. Parts are kept in this executor's folder where the plan does not say in which.
        workers: number of processes, at least 1; client k is served by process k mod ``workers``.
        clients_max: how many clients each process holds; None: all that it serves.
        together: as so many contributions are asked for, or somebody waits for one, they are computed as many at once
            as the learner can: the same results to rounding. 0: each at once, and alone.
        source: where examples come from, if a learner of the plan has loaded them in this process; None: they are
            loaded here.
        stop: set by another thread that waits for nothing any more: whoever waits for a result then gets Interrupted.
    """

    def __init__(
        self,
        plan: LearnerPlan,
        workers: int,
        clients_max: int | None = None,
        *,
        together: int = 0,
        source: DataSource | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        use_threads()
        fork = multiprocessing.get_context("fork")
        self._temporary = tempfile.TemporaryDirectory(prefix="fedchain-")
        self.folder = Path(self._temporary.name)
        """Where its files are; it goes when the executor is closed."""
        here = Named("fedchain.learning.payload.part_folder:parts_of_each", (str(self.folder / PARTS),))
        learner = build_learner(replace(plan, parts=plan.parts or here), source=source)
        super().__init__(learner, workers, Outgoing(self.folder), together=together, stop=stop)
        if source is None:
            learner.histogram()
        if clients_max is not None:
            learner.limit_clients(clients_max, self.folder)
        self.forecasts = Counts()
        """What was foreseen, and what came of it."""
        self._ahead: dict[int, tuple[str, Any]] = {}  # phase and knowledge of forecasts that have not ended
        self._not_foreseen: set[str] = set()  # phases that a worker has refused to foresee
        self._replies: Any = fork.Queue()
        self._calls: list[Any] = [fork.Queue() for _ in range(workers)]
        self._processes: list[BaseProcess] = [
            fork.Process(
                target=serve, args=(learner, self.folder, calls, self._replies), daemon=True, name=f"train-{place}"
            )
            for place, calls in enumerate(self._calls)
        ]
        # A signal that comes before a child has its own handlers would be handled in the parent's way.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING_SIGNALS)
        try:
            for process in self._processes:
                process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def foresee(self, question: Question) -> None:
        """See :class:`Foreseeing`. Alone a client's numbers are rounded in another way than among others."""
        if self._together or question.phase in self._not_foreseen:
            return
        self.forecasts.foreseen += 1
        number, handed = -self.forecasts.foreseen, self._outgoing.hand(question.knowledge)
        self._ahead[number] = question.phase, handed
        *others, _ = _arguments(question)
        call = Call(number, FORESEE, question.client, (*others, handed), question.evaluate_test)
        self._send(question.client % len(self._processes), [call])

    def close(self) -> None:
        """See :class:`Clients`."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.join()
        for queue in (self._replies, *self._calls):
            queue.close()
            queue.cancel_join_thread()
        self._temporary.cleanup()

    def _send(self, worker: int, calls: Sequence[Call]) -> None:
        """See :class:`CallingExecutor`."""
        self._calls[worker].put(calls)

    def _hear(self, timeout_s: float) -> bool:
        """See :class:`CallingExecutor`."""
        try:
            reply: Reply = self._replies.get(timeout=timeout_s)
        except Empty:
            for process in self._processes:
                if process.exitcode is not None:
                    died = f"training process {process.name} ended with exit code {process.exitcode}"
                    raise WorkerDiedError(died) from None
            return False
        if reply.number in self._ahead:
            self._end(reply.number, reply.value)
        else:
            self._take(reply)
        return True

    def _end(self, number: int, outcome: Outcome) -> None:
        """A forecast has ended."""
        phase, handed = self._ahead.pop(number)
        self._outgoing.done(handed)
        self.forecasts.add(outcome)
        if outcome is Outcome.REFUSED:
            self._not_foreseen.add(phase)
