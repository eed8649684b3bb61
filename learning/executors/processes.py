"""Training in worker processes, one torch thread each, on the processor.

They work ahead of the caller that waits for them. A client stays with one process, which keeps its model. Its results
depend on nothing else, so the number of processes changes no bit of them, unless they are trained as one batch with
others of its process. Clients that a process cannot hold wait in files, in a folder that goes when the executor does.
"""

import multiprocessing
import os
import selectors
import signal
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from fedchain.files.scratch import Scratch
from fedchain.learning.device import use_threads
from fedchain.learning.executors.calling import CallingExecutor, arguments_of
from fedchain.learning.executors.executor import Question
from fedchain.learning.executors.handover import Outgoing
from fedchain.learning.executors.inbox import FORESEE
from fedchain.learning.executors.outcomes import Counts, Outcome
from fedchain.learning.executors.packing import pack, unpack
from fedchain.learning.executors.pipes import Inlet, Outlet
from fedchain.learning.executors.serving import ENDING_SIGNALS, Call, serve
from fedchain.learning.executors.workers import WorkerDiedError
from fedchain.learning.payload.part_folder import PARTS
from fedchain.learning.task.data_source import DataSource
from fedchain.learning.worker.building import build_learner
from fedchain.learning.worker.learner import Learner
from fedchain.learning.worker.plan import LearnerPlan, Named

CLIENTS_SIZE_MAX = 128 * 2**20
"""Bytes of the clients that a process holds where most peers are asleep; the others wait in files. Small clients are
built once, and not for each round that draws them."""

_FORKING = threading.Lock()
"""Held while a process is forked: that of another executor in another thread would inherit the ends of its pipes."""


class ProcessExecutor(CallingExecutor):
    """A :class:`fedchain.learning.executors.executor.Backend` of worker processes, each with a learner of one plan.

    They are forked after the data are loaded, so they share the data set's memory.

    Args:
        plan: of the learners. Parts are kept in this executor's folder where the plan does not say in which.
        workers: number of processes, at least 1; client k is served by process k mod ``workers``.
        clients_size_max: bytes of the clients that each process holds; None: all that it serves.
        together: contributions are held until this many are asked for, or somebody waits for one; then the learner
            computes as many of them together as it can, with the same results but for rounding. 0: each at once, alone.
        source: where examples come from, if a learner of the plan has loaded them in this process; None: they are
            loaded here.
        stop: set by another thread that waits for nothing any more: whoever waits for a result then gets Interrupted.
    """

    def __init__(
        self,
        plan: LearnerPlan,
        workers: int,
        clients_size_max: int | None = None,
        *,
        together: int = 0,
        source: DataSource | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        use_threads()
        self._temporary = Scratch()
        self.folder = Path(self._temporary.name)
        """Where its files are; it goes when the executor is closed."""
        here = Named("fedchain.learning.payload.part_folder:parts_of_each", (str(self.folder / PARTS),))
        learner = build_learner(replace(plan, parts=plan.parts or here), source=source)
        super().__init__(learner, workers, Outgoing(self.folder), together=together, stop=stop)
        if source is None:
            learner.histogram()
        if clients_size_max is not None:
            learner.limit_clients(clients_size_max, self.folder)
        self.forecasts = Counts()
        """Forecasts by their outcome."""
        self._ahead: dict[int, tuple[str, Any]] = {}  # phase and knowledge of forecasts that have not ended
        self._not_foreseen: set[str] = set()  # phases that a worker has refused to foresee
        self._processes: list[BaseProcess] = []
        self._calls: list[Outlet] = []
        self._replies: list[Inlet] = []
        self._unanswered = [0] * workers
        self._arrived: deque[tuple[int, bytes]] = deque()  # packed replies, each with its worker
        self._gone: dict[int, str] = {}  # workers that are gone, with the reason
        self._heard = selectors.PollSelector()
        try:
            for worker in range(workers):
                self._start(worker, learner)
        except BaseException:
            self.close()
            raise

    def foresee(self, question: Question) -> None:
        """See :class:`Foreseeing`. Alone a client's numbers are rounded in another way than among others."""
        if self._together or question.phase in self._not_foreseen:
            return
        self.forecasts.foreseen += 1
        number, handed = -self.forecasts.foreseen, self._outgoing.hand(question.knowledge)
        self._ahead[number] = question.phase, handed
        *others, _ = arguments_of(question)
        call = Call(number, FORESEE, question.client, (*others, handed), question.evaluate_test)
        self._calls[question.client % len(self._calls)].send(pack([call]))

    def close(self) -> None:
        """See :class:`Clients`."""
        for process in self._processes:
            process.kill()  # own code may have turned off any other signal
        for process in self._processes:
            process.join()
        for calls in self._calls:
            calls.close()
        for replies in self._replies:
            replies.close()
        self._heard.close()
        self._temporary.cleanup()

    def _start(self, worker: int, learner: Learner) -> None:
        """Start a process, which alone has its ends of its pipes: once it is gone, they are closed."""
        with _FORKING, ExitStack() as theirs:
            asked, calls = os.pipe()
            theirs.callback(os.close, asked)
            self._calls.append(Outlet(calls))
            replies, answered = os.pipe()
            theirs.callback(os.close, answered)
            self._replies.append(Inlet(replies))
            process = multiprocessing.get_context("fork").Process(
                target=serve, args=(learner, self.folder, asked, answered), daemon=True, name=f"train-{worker}"
            )
            # A signal that comes before a child has its own handlers would be handled in the parent's way.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING_SIGNALS)
            try:
                process.start()
                self._processes.append(process)
            except OSError as error:
                reason = error.strerror or error
                raise WorkerDiedError(f"training process {process.name} cannot be started: {reason}") from None
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._heard.register(replies, selectors.EVENT_READ, worker)

    def _send(self, worker: int, calls: Sequence[Call]) -> None:
        """See :class:`CallingExecutor`."""
        self._unanswered[worker] += len(calls)
        self._calls[worker].send(pack(calls))

    def _hear(self, timeout_s: float) -> bool:
        """See :class:`CallingExecutor`."""
        if not self._arrived:
            self._validate_alive()
            self._read(timeout_s)
        if not self._arrived:
            self._validate_alive()
            return False
        worker, packed = self._arrived.popleft()
        reply = unpack(packed)
        if reply.number in self._ahead:
            self._end(reply.number, reply.value)
        else:
            self._unanswered[worker] -= 1
            self._take(reply)
        return True

    def _end(self, number: int, outcome: Outcome) -> None:
        """A forecast has ended."""
        phase, handed = self._ahead.pop(number)
        self._outgoing.done(handed)
        self.forecasts.add(outcome)
        if outcome is Outcome.REFUSED:
            self._not_foreseen.add(phase)

    def _read(self, timeout_s: float) -> None:
        """Wait for something from any process, and take it. A process without a pipe is gone once its replies are."""
        found = self._heard.select(timeout_s)
        for key, _ in found:
            try:
                self._arrived += [(key.data, reply) for reply in self._replies[key.data].read()]
            except EOFError:
                self._lose(key.data)
        if not found:  # a process of a user's own code may hold the pipe of one that is gone
            for worker, process in enumerate(self._processes):
                if process.exitcode is not None and worker not in self._gone:
                    self._lose(worker)

    def _lose(self, worker: int) -> None:
        process, replies = self._processes[worker], self._replies[worker]
        self._heard.unregister(replies)
        process.join()
        when = " in the middle of a reply" if replies.is_in_a_message else ""
        self._gone[worker] = f"training process {process.name} ended with exit code {process.exitcode}{when}"

    def _validate_alive(self) -> None:
        """Raise WorkerDiedError if a process is gone that has not answered all that it was asked."""
        for worker, reason in self._gone.items():
            if self._unanswered[worker]:
                raise WorkerDiedError(reason)
