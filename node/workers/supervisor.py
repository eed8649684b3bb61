"""The node's side of its worker processes: it starts them, asks them, and starts them again when they end."""

import logging
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from fedchain.chain.block import Header
from fedchain.crypto.keys import PublicKey
from fedchain.learning.exceptions import NothingToPost
from fedchain.learning.executors.executor import Answer, Question
from fedchain.node.core.jobs import Verified, VerifySignatures
from fedchain.node.core.mining import is_same_work
from fedchain.node.workers.frames import PipeBroken, hand_over, receive_frame, send_frame
from fedchain.node.workers.local import DEFAULTS, Local
from fedchain.node.workers.training_file import read_answer

log = logging.getLogger("fedchain.worker")

WITHOUT_INTERRUPTS = "/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh"
"""Has a command ignore Ctrl-C from its beginning on. A worker leaves the node's process group only when Python has
started, after a tenth of a second, and was ended by a Ctrl-C before, with a traceback."""

RESTART_PAUSE_S = 1.0
"""How long to wait before a worker that ended is started again."""

RESTART_PAUSE_MAX_S = 60.0
"""Most of that for the miner, which is waited for twice as long after each time that it did not run for so long: where
the machine has no memory for it, a line each second would fill the log."""

TRIES_MAX = 3
"""Attempts at a contribution in fresh processes before the node gives it up for this phase."""


VERIFIED_AT_ONCE = 8
"""Most blocks that the verifying process has at a time, so that it always has the next one when one is done."""

IDLE_S = 10.0
"""How long that process waits for more before it is ended: only a node that replays needs it."""


SAID_SIZE_MAX = 8192
"""Most bytes of a line on a worker's standard error that are logged as one line; longer ones are split."""

SAID_WAIT_S = 1.0
"""How long the end of a worker waits for its last output; a process that it left behind may keep the pipe open."""

SAID_LOOK_S = 0.002
"""How often it looks whether that has come."""


class WorkerFailed(Exception):
    """The worker could not fulfil a request; trying again at once would not change that."""


class WorkerStopped(WorkerFailed):
    """The worker could not go on: its processes died, or the disk is full, which may pass."""


@dataclass(slots=True)
class Seat:
    """A peer's place, which a newcomer gets while its node runs."""

    number: int
    """Its place among the members, from 0."""
    members: Sequence[PublicKey]
    """Public keys by place; empty for those of the founding document."""


class TrainingWorker:
    """A long-lived process that trains; one contribution at a time.

    It receives the secrets that the member was dealt through its pipe, which nobody else reads and nothing stores.

    Args:
        genesis_path: the founding document.
        folder: the node's.
        member: this peer's place, or that of a newcomer as soon as it has one.
        local: what the member chooses for itself.
        secrets: file of its private randomness.
        dealt: secrets that it was dealt.
    """

    def __init__(
        self,
        genesis_path: Path,
        folder: Path,
        member: "int | Seat",
        local: Local = DEFAULTS,
        secrets: Path | None = None,
        dealt: Mapping[str, bytes] = MappingProxyType({}),
    ) -> None:
        self._member = member if isinstance(member, Seat) else Seat(member, ())
        self._places = ["train", str(genesis_path), str(folder)]
        self._rest = [str(secrets or ""), *local]
        self._dealt = sorted(dealt.items())
        self._process: WorkerProcess | None = None
        self._lock = anyio.Lock()
        self._forecast: Question | None = None  # what waits for its turn: one holds a whole knowledge

    async def prepare(self) -> None:
        """Start the process and have it read its data; raises WorkerFailed if that is impossible."""
        await self._ask(None)

    async def ask(self, question: Question) -> Answer:
        """Have a question of this member answered. A process that dies of it is replaced by one that reads the state.

        Asked again, also after a restart, a member that contributed gives the same contribution.

        Raises:
            WorkerFailed: training itself failed, the process died of it every time, or its answer cannot be read.
        """
        kind, *answer = await self._ask(_order(question))
        if kind == "refused":
            return NothingToPost(*answer)
        try:
            return read_answer(answer)
        except PipeBroken as error:
            raise WorkerFailed(str(error)) from None

    async def foresee(self, question: Question) -> None:
        """Have the process begin with what may be its next question, if it runs; it is asked first for anything else.

        A process that dies of it is noticed, and replaced, when it is asked. The newest of those that wait goes.
        """
        is_next, self._forecast = self._forecast is None, question
        if not is_next:
            return
        async with self._lock:
            newest, self._forecast = self._forecast, None
            assert newest is not None, "this task takes it"
            if self._process is not None:
                with suppress(PipeBroken):
                    await self._process.send(_order(newest, is_ahead=True))

    async def close(self) -> None:
        """End the process."""
        if self._process is not None:
            process, self._process = self._process, None
            await process.close()

    async def _ask(self, request: list[Any] | None) -> list[Any]:
        """The answer to a request; without a request, wait until the process is ready. A dead process is replaced."""
        failure: PipeBroken | None = None
        async with self._lock:
            for _ in range(TRIES_MAX):
                try:
                    if self._process is None:
                        words = [*self._places, str(self._member.number), *self._rest]
                        self._process = await WorkerProcess.start(words)
                        await self._process.send([self._dealt, list(self._member.members)])
                        _result(await self._process.receive())
                    if request is None:
                        return []
                    await self._process.send(request)
                    return _result(await self._process.receive())
                except PipeBroken as error:
                    failure = error
                    log.warning("the training process ended and is started again: %s", error)
                    await self.close()
                    await anyio.sleep(RESTART_PAUSE_S)
        raise WorkerStopped(f"the training process died {TRIES_MAX} times: {failure}; its own words are in the log")


class MiningWorker:
    """A process that searches for nonces for the newest header it was given."""

    def __init__(self, function: str, on_sealed: Callable[[Header], None]) -> None:
        self._function = function
        self._on_sealed = on_sealed
        self._header: Header | None = None
        self._wanted = anyio.Event()

    def mine(self, header: Header) -> None:
        """Search for a nonce for ``header``, and no longer for any earlier header."""
        self._header = header
        self._wanted.set()

    def stop_unless(self, is_wanted: Callable[[Header], bool]) -> bool:
        """Stop the search if its header is not wanted any more; returns whether it was stopped."""
        if self._header is None or is_wanted(self._header):
            return False
        self._header = None
        self._wanted.set()
        return True

    async def run(self) -> None:
        """Keep a process running until cancelled; a replacement is given the newest header again."""
        pause_s = RESTART_PAUSE_S
        while True:
            process: WorkerProcess | None = None
            begun_s = anyio.current_time()
            try:
                process = await WorkerProcess.start(["mine", self._function])
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._send_orders, process)
                    while True:
                        self._on_answer(Header.from_record(await process.receive()))
            except* PipeBroken as group:
                log.warning("the mining process ended and is started again: %s", group.exceptions[0])
            finally:
                if process is not None:
                    await process.close()
            if self._header is not None:
                self._wanted.set()
            if anyio.current_time() - begun_s >= RESTART_PAUSE_MAX_S:
                pause_s = RESTART_PAUSE_S
            await anyio.sleep(pause_s)
            pause_s = min(2 * pause_s, RESTART_PAUSE_MAX_S)

    async def _send_orders(self, process: "WorkerProcess") -> None:
        while True:
            await self._wanted.wait()
            self._wanted = anyio.Event()
            await process.send([] if self._header is None else self._header.to_record())

    def _on_answer(self, sealed: Header) -> None:
        if self._header is not None and is_same_work(self._header, sealed):  # otherwise it came too late
            self._header = None
            self._on_sealed(sealed)


class VerifyingWorker:
    """A process that verifies signatures, started when they come and ended when none do.

    Args:
        on_verified: called with each job's result, in the order of the jobs; the count is 0 for a job whose process
            died.
    """

    def __init__(self, on_verified: Callable[[VerifySignatures, Verified], object]) -> None:
        self._on_verified = on_verified
        self._jobs: deque[VerifySignatures] = deque()  # the process has the oldest of them
        self._arrived = anyio.Event()

    def verify(self, job: VerifySignatures) -> None:
        """Queue a job behind those that wait."""
        self._jobs.append(job)
        self._arrived.set()

    async def run(self) -> None:
        """Serve until cancelled."""
        while True:
            await self._wait()
            process: WorkerProcess | None = None
            try:
                process = await WorkerProcess.start(["verify"])
                await self._serve(process)
            except PipeBroken as error:
                log.warning("the process that verifies signatures ended: %s", error)
                while self._jobs:
                    self._on_verified(self._jobs.popleft(), Verified(0))
            finally:
                if process is not None:
                    await process.close()

    async def _serve(self, process: "WorkerProcess") -> None:
        """Hand out jobs and take answers until there has been no job for a while."""
        handed_out = 0
        while True:
            while handed_out < min(len(self._jobs), VERIFIED_AT_ONCE):
                await process.send(self._jobs[handed_out].signed)
                handed_out += 1
            if handed_out:
                count = await process.receive()
                handed_out -= 1
                self._on_verified(self._jobs.popleft(), Verified(count))
                continue
            with anyio.move_on_after(IDLE_S) as idle:
                await self._wait()
            if idle.cancelled_caught:
                return

    async def _wait(self) -> None:
        """Wait for a job."""
        while not self._jobs:
            self._arrived = anyio.Event()
            await self._arrived.wait()


class WorkerProcess:
    """One worker process and its pipes. Its output, the user's own code's included, is logged line by line."""

    def __init__(self, process: Process, saying: threading.Thread) -> None:
        assert process.stdin is not None, "it was opened with a pipe"
        assert process.stdout is not None, "it was opened with a pipe"
        self._process, self._orders, self._saying = process, process.stdin, saying
        self._answers = BufferedByteReceiveStream(process.stdout)

    @classmethod
    async def start(cls, arguments: list[str]) -> Self:
        """Start ``python -m fedchain.node.workers.process`` with ``arguments``.

        Raises PipeBroken: the machine has no memory, process, thread or open file for it now.
        """
        command = [*WITHOUT_INTERRUPTS, sys.executable, "-m", "fedchain.node.workers.process", *arguments]
        # It stays in the node's session, where its niceness counts, and leaves the node's process group by itself.
        try:
            pipe, (reader, writer) = subprocess.PIPE, os.pipe()
            try:
                saying = _start_logging(arguments[0], reader)
                return cls(await anyio.open_process(command, stdin=pipe, stdout=pipe, stderr=writer), saying)
            finally:
                os.close(writer)
        except OSError as error:
            raise PipeBroken(f"it cannot be started: {error.strerror or error}") from None
        except RuntimeError as error:  # Python's word for a thread that the machine does not give
            raise PipeBroken(f"it cannot be started: {error}") from None

    async def send(self, value: Any) -> None:
        """Send one order; raises PipeBroken."""
        await self._while_it_runs(partial(send_frame, self._orders, value))

    async def receive(self) -> Any:
        """Wait for one answer; raises PipeBroken."""
        return await self._while_it_runs(partial(receive_frame, self._answers))

    async def _while_it_runs(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """The result of work on a pipe, which is broken off once the process is gone. Raises PipeBroken.

        A process that own code forked may hold the pipes open: what is read has no end then, and nobody reads.
        """
        result: Any = None
        failure: PipeBroken | None = PipeBroken("it is gone, and a process that it began holds its pipes open")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._leave_when_gone, tasks.cancel_scope)
            try:
                result, failure = await work(), None
            except PipeBroken as error:
                failure = error
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise await self._explained(failure)
        return result

    async def _explained(self, failure: PipeBroken) -> PipeBroken:
        """A failure with how the process has ended, if it has."""
        with anyio.move_on_after(SAID_WAIT_S):
            await self._process.wait()
        code = self._process.returncode
        if code is None:
            return failure
        if code >= 0:
            return PipeBroken(f"{failure}, and ended with exit code {code}")
        why = ", as for want of memory" if -code == signal.SIGKILL else ""
        return PipeBroken(f"{failure}, and was ended by signal {-code}{why}")

    async def _leave_when_gone(self, working: anyio.CancelScope) -> None:
        """Cancel work on a pipe once the process is gone, and its last words had time to come."""
        await self._process.wait()
        await anyio.sleep(SAID_WAIT_S)
        working.cancel()

    def _kill(self) -> None:
        """Kill the process, and what own code has forked in it, such as a pool, which would wait for work for ever."""
        with suppress(OSError):  # it has not left the node's group yet, or nothing is left of its own
            os.killpg(self._process.pid, signal.SIGKILL)
        if self._process.returncode is None:
            self._process.kill()

    async def close(self) -> None:
        """Kill the process, wait until it is gone, and close its pipes, without being cancelled half-way."""
        with anyio.CancelScope(shield=True):
            self._kill()
            await self._process.aclose()
            with anyio.move_on_after(SAID_WAIT_S):
                while self._saying.is_alive():  # to join it would take another thread, which there may not be now
                    await anyio.sleep(SAID_LOOK_S)


def _start_logging(worker: str, reader: int) -> threading.Thread:
    """Have a thread log a worker's standard error, which it closes; raises RuntimeError if there is no thread now."""
    saying = threading.Thread(target=_log_lines, args=(worker, reader), daemon=True)
    try:
        saying.start()
    except RuntimeError:
        os.close(reader)
        raise
    return saying


def _log_lines(worker: str, reader: int) -> None:
    """Log a worker's standard error, until no process holds it open any more."""
    with os.fdopen(reader, "rb") as said:
        while line := said.readline(SAID_SIZE_MAX):
            named = {"worker": worker, "line": line.decode(errors="replace").rstrip()}
            log.info("worker=%(worker)s %(line)s", named)


def _order(question: Question, *, is_ahead: bool = False) -> list[Any]:
    """The frame of a question."""
    amended = [list(pair) for pair in question.amended]
    knowledge = hand_over(question.knowledge)
    return [int(is_ahead), question.phase, question.round, knowledge, question.clients, amended]


def _result(answer: list[Any]) -> list[Any]:
    if answer[0] == "failed":
        raise WorkerFailed(answer[1])
    if answer[0] == "full":
        raise WorkerStopped(answer[1])
    return answer
