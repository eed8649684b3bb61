"""Training for many simulated peers: real, in worker processes, one torch thread each.

Virtual time determines when a result is due; the processes work ahead of it. A client stays with one process, which
keeps its model. A client's results depend on nothing else, so the number of processes changes no bit of them. Clients
and payloads beyond those that a process holds wait in files, in a folder that is deleted with the pool.
"""

import multiprocessing
import os
import signal
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from queue import Empty
from typing import Any, Generic, Protocol, TypeVar

import torch

from fedchain.learning.exceptions import LearningError, told
from fedchain.learning.payload.part_folder import PARTS, PartFolder
from fedchain.learning.training.evaluation import Evaluation
from fedchain.learning.worker.learner import Contribution, Learner
from fedchain.node.operating.allocator import TRAINING_MAPPED_SIZE, return_large_blocks
from fedchain.simulator.engine.client_state import restore_client, save_client
from fedchain.simulator.engine.handover import LARGE_SIZE, Handed, Incoming, Outgoing, hand_over, take_over

POLL_S = 1.0
"""Seconds between checks, during a wait for a result, that the processes are still alive."""

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Signals that end a process from outside."""

CLIENTS_MAX = 16
"""Number of clients that a process holds if most peers are asleep; the others wait in files."""

PAYLOADS_SIZE_MAX = 16 * 2**20
"""Bytes of small payloads that a process keeps in case they are requested again; others wait in files."""

Result = TypeVar("Result", covariant=True)


class WorkerDiedError(LearningError):
    """A training or simulating process ended unexpectedly."""


class Interrupted(Exception):
    """Another thread has stopped a simulation."""


class Job(Protocol[Result]):
    """Work under way."""

    def result(self) -> Result:
        """Wait for the result; raises the exception that the work raised."""


class Compute(Protocol):
    """Trains the simulated peers' models. Jobs of one client are done in the order in which they were given."""

    def planned_steps(self, client: int, phase: str, round_number: int) -> int:
        """Local steps that a contribution takes, known before it is made; 0 in a phase that does not train."""

    def contribute(
        self, client: int, phase: str, round_number: int, knowledge: bytes, *, evaluate_test: bool
    ) -> Job[Contribution]:
        """As :meth:`fedchain.learning.worker.learner.Learner.contribute`; the same call again gives the same result."""

    def evaluate_received(
        self, client: int, round_number: int, knowledge: bytes, *, evaluate_test: bool
    ) -> Job[Evaluation | None]:
        """As :meth:`fedchain.learning.worker.learner.Learner.evaluate_received`."""

    def close(self) -> None:
        """Stop at once; jobs under way are lost."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a learner's method, on its way to a process."""

    number: int
    method: str
    client: int
    arguments: tuple[Any, ...]
    """Arguments of the method; the last one is the knowledge, empty if none is needed."""
    evaluate_test: bool
    state: Path | None = None
    """File for the client's state after a contribution; None if it is not saved."""


@dataclass(frozen=True, slots=True)
class Reply:
    """Result of a call."""

    number: int
    succeeded: bool
    value: Any
    """The result, or the error."""
    payload: Handed | None = None
    """The payload of a contribution if it is large; the contribution itself then lacks it."""


class TrainingPool:
    """Worker processes around one learner. They are forked, so they share its data set's memory.

    Args:
        learner: has its data loaded, and no client built.
        workers: number of processes, at least 1; client k is served by process k mod ``workers``.
        clients_max: number of clients that each process holds; None if it holds all that it serves.
        together: number of contributions that are collected, unless a result is waited for before, and then computed
            as many at once as the learner can: the same results to rounding. 0 if each is computed at once, alone.
        stop: set by another thread to end all waiting: a wait for a result then raises Interrupted.
    """

    def __init__(
        self,
        learner: Learner,
        workers: int,
        clients_max: int | None = None,
        *,
        together: int = 0,
        stop: threading.Event | None = None,
    ) -> None:
        torch.set_num_threads(1)  # before the fork: a child cannot use the parent's OpenMP threads
        fork = multiprocessing.get_context("fork")
        self._learner = learner
        self._folder = tempfile.TemporaryDirectory(prefix="fedchain-")
        folder = Path(self._folder.name)
        self.parts = folder / PARTS
        """Folder of each client's parts, in a folder named by its number."""
        learner.keep_parts(lambda client: PartFolder(self.parts / str(client), is_durable=False))
        if clients_max is not None:
            learner.limit_clients(clients_max, folder)
        self._answers: Any = fork.Queue()
        self._calls: list[Any] = [fork.Queue() for _ in range(workers)]
        self._processes: list[BaseProcess] = [
            fork.Process(
                target=_serve, args=(learner, folder, calls, self._answers), daemon=True, name=f"train-{place}"
            )
            for place, calls in enumerate(self._calls)
        ]
        self._outgoing = Outgoing(folder)
        self._handed: dict[int, bytes | Handed] = {}  # the knowledge of unanswered calls
        self._together, self._stop = together, stop
        self._held: list[list[Call]] = [[] for _ in range(workers)]  # by process
        self._count = 0
        self._done: dict[int, Reply] = {}
        # A signal that arrives before a child has its own handlers would run the parent's.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING_SIGNALS)
        try:
            for process in self._processes:
                process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def planned_steps(self, client: int, phase: str, round_number: int) -> int:
        """See :class:`Compute`."""
        return self._learner.planned_steps(client, phase, round_number)

    def contribute(
        self, client: int, phase: str, round_number: int, knowledge: bytes, *, evaluate_test: bool
    ) -> Job[Contribution]:
        """See :class:`Compute`."""
        return self._call("contribute", client, (phase, round_number, knowledge), evaluate_test)

    def evaluate_received(
        self, client: int, round_number: int, knowledge: bytes, *, evaluate_test: bool
    ) -> Job[Evaluation | None]:
        """See :class:`Compute`."""
        return self._call("evaluate_received", client, (round_number, knowledge), evaluate_test)

    def save_model(self, client: int, path: Path) -> Job[None]:
        """Write a client's model after its earlier jobs: see `Learner.save_model`."""
        return self._call("save_model", client, (path, b""), False)

    def close(self) -> None:
        """See :class:`Compute`."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.join()
        for queue in (self._answers, *self._calls):
            queue.close()
            queue.cancel_join_thread()
        self._folder.cleanup()

    def _call(
        self, method: str, client: int, arguments: tuple[Any, ...], evaluate_test: bool, state: Path | None = None
    ) -> "Pending[Any]":
        self._count += 1
        *others, knowledge = arguments
        handed = self._handed[self._count] = self._outgoing.hand(knowledge)
        arguments = (*others, handed)
        self._held[client % len(self._held)].append(Call(self._count, method, client, arguments, evaluate_test, state))
        if sum(map(len, self._held)) >= self._together:
            self._send_held()
        return Pending(self, self._count)

    def _send_held(self) -> None:
        for process, held in enumerate(self._held):
            if held:
                self._send(process, list(held))
                held.clear()

    def _send(self, process: int, calls: Sequence[Call]) -> None:
        """Give calls to a process, to be answered in their order."""
        self._calls[process % len(self._calls)].put(calls)

    def _wait(self, number: int) -> Any:
        self._send_held()
        while number not in self._done:
            self._receive()
        answer = self._done.pop(number)
        if not answer.succeeded:
            raise answer.value
        return answer.value if answer.payload is None else replace(answer.value, payload=take_over(answer.payload))

    def _receive(self) -> None:
        """Wait for the next reply to any call, and check from time to time that one can still come."""
        try:
            reply: Reply = self._answers.get(timeout=POLL_S)
        except Empty:
            if self._stop is not None and self._stop.is_set():
                raise Interrupted from None
            self._check_alive()
        else:
            self._outgoing.done(self._handed.pop(reply.number))
            self._done[reply.number] = reply
            self._on_reply(reply)

    def _on_reply(self, reply: Reply) -> None:
        """Hook for a subclass that records replies as they arrive."""

    def _check_alive(self) -> None:
        for process in self._processes:
            if process.exitcode is not None:
                raise WorkerDiedError(f"training process {process.name} ended with exit code {process.exitcode}")


@dataclass(frozen=True, slots=True)
class Pending(Generic[Result]):
    """The pending result of a call."""

    pool: TrainingPool
    number: int

    def result(self) -> Result:
        """See :class:`Job`."""
        value: Result = self.pool._wait(self.number)
        return value


def _serve(learner: Learner, folder: Path, calls: Any, answers: Any) -> None:
    """Main loop of a process: take calls and answer them.

    A client's last contribution is kept, as a restarted peer asks for it again.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING_SIGNALS)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    return_large_blocks(TRAINING_MAPPED_SIZE)
    made, incoming = LastContributions(folder, PAYLOADS_SIZE_MAX), Incoming()
    while True:
        given = [_taken(call, incoming) for call in calls.get()]
        if len(given) > 1:
            _contribute_together(learner, given, made)
        for call in given:
            try:
                answers.put(_reply(learner, call, made))
            except Exception as error:  # it is raised where the result is waited for
                answers.put(Reply(call.number, False, told(error, f"peer {call.client}")))


def _reply(learner: Learner, call: Call, made: "LastContributions") -> Reply:
    """Carry out a call of one client."""
    match call.method:
        case "save_model":
            learner.save_model(call.client, call.arguments[0])
            return Reply(call.number, True, None)
        case "restore":
            restore_client(learner, call.client, call.arguments[0])
            return Reply(call.number, True, None)
        case "contribute":
            try:
                if not made.has(call.client, call.arguments[:2]):
                    contribution = learner.contribute(call.client, *call.arguments, evaluate_test=call.evaluate_test)
                    made.keep(call.client, call.arguments[:2], contribution)
            finally:
                if call.state is not None:
                    save_client(learner, call.client, call.state)
            return made.answer(call.client, call.number)
        case method:
            compute = getattr(learner, method)
            return Reply(call.number, True, compute(call.client, *call.arguments, evaluate_test=call.evaluate_test))


def _taken(call: Call, incoming: Incoming) -> Call:
    """The call with the knowledge itself in place of its file."""
    *others, handed = call.arguments
    return replace(call, arguments=(*others, incoming.take(handed)))


def _contribute_together(learner: Learner, given: Sequence[Call], made: "LastContributions") -> None:
    """Compute contributions together ahead of their calls: each client's first call, if it is a contribution."""
    alike: dict[tuple[Any, ...], list[int]] = {}
    seen: set[int] = set()
    for call in given:
        is_new = call.client not in seen and not made.has(call.client, call.arguments[:2])
        if call.method == "contribute" and is_new:
            alike.setdefault((*call.arguments, call.evaluate_test), []).append(call.client)
        seen.add(call.client)
    for (*arguments, evaluate_test), clients in alike.items():
        try:
            found = learner.contribute_together(clients, *arguments, evaluate_test=evaluate_test)
        except Exception:  # all clients are unchanged; computed alone, the one at fault raises it again
            continue
        for client, contribution in found.items():
            made.keep(client, tuple(arguments[:2]), contribution)


def _end_with_parent() -> None:
    """End this process when its parent is gone, since a killed parent could not end it."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "only a child waits for its parent"
    parent.join()
    os._exit(1)


class LastContributions:
    """Each client's last contribution; its payload is in memory or, if it is large or not among the newest, in a file.

    Args:
        folder: the folder of the files.
        size_max: bytes of small payloads in memory.
    """

    def __init__(self, folder: Path, size_max: int) -> None:
        self._folder, self._size_max = folder, size_max
        self._made: dict[int, tuple[tuple[Any, ...], Contribution]] = {}  # without the payloads
        self._payloads: OrderedDict[int, bytes] = OrderedDict()  # the oldest first
        self._size = 0  # bytes of those

    def keep(self, client: int, key: tuple[Any, ...], made: Contribution) -> None:
        """Keep a contribution as the answer to ``key`` in place of the client's last one."""
        self._made[client] = key, replace(made, payload=b"")
        self._size -= len(self._payloads.pop(client, b""))
        self._path(client).unlink(missing_ok=True)  # a link under another name may still wait for its reader
        if len(made.payload) >= LARGE_SIZE:
            self._path(client).write_bytes(made.payload)
            return
        self._payloads[client] = made.payload
        self._size += len(made.payload)
        while self._size > self._size_max:
            oldest, payload = self._payloads.popitem(last=False)
            self._size -= len(payload)
            self._path(oldest).write_bytes(payload)

    def has(self, client: int, key: tuple[Any, ...]) -> bool:
        """Whether the client's last contribution answers ``key``."""
        found = self._made.get(client)
        return found is not None and found[0] == key

    def answer(self, client: int, number: int) -> Reply:
        """The client's last contribution as the answer to call ``number``; a payload in a file is handed over."""
        _, made = self._made[client]
        held = self._payloads.get(client)
        if held is not None:
            return Reply(number, True, replace(made, payload=held))
        return Reply(number, True, made, hand_over(self._path(client), self._folder / f"answer-{number}"))

    def _path(self, client: int) -> Path:
        return self._folder / f"client-{client}.payload"
