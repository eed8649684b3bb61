"""The node's side of its worker processes: started, asked, and started again when they end."""

import json
import logging
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from fedchain.chain.block import Header
from fedchain.node.frames import receive_frame, send_frame

log = logging.getLogger("fedchain.worker")

RESTART_PAUSE_S = 1.0
"""How long to wait before a worker that ended is started again."""

TRIES_MAX = 3
"""Times in a row that a contribution is tried in a fresh process before the node gives it up for this phase."""


class WorkerFailed(Exception):
    """The worker could not do what it was asked, for a reason that trying again would not change."""


@dataclass(frozen=True, slots=True)
class Trained:
    """One contribution."""

    payload: bytes = field(repr=False)
    steps: int
    """Local steps taken."""
    measured: dict[str, Any]
    """What was measured of the trained model, as :class:`fedchain.learning.metrics.Evaluation` has it."""


class TrainingWorker:
    """A long-lived process that trains; one contribution at a time."""

    def __init__(self, genesis_path: Path, folder: Path, member: int, data_dir: str) -> None:
        self._command = ["train", str(genesis_path), str(folder), str(member), data_dir]
        self._process: Process | None = None
        self._answers: BufferedByteReceiveStream | None = None
        self._lock = anyio.Lock()

    async def contribute(self, phase: str, round_number: int, knowledge: bytes) -> Trained:
        """Have a contribution computed. A process that dies of it is replaced, and goes on from its checkpoint.

        Raises:
            WorkerFailed: training itself failed, or the process died of it every time.
        """
        async with self._lock:
            for _ in range(TRIES_MAX):
                try:
                    answer = await self._ask([phase, round_number, knowledge])
                except (anyio.IncompleteRead, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
                    log.warning("the training process ended (%r) and is started again", error)
                    self.close()
                    await anyio.sleep(RESTART_PAUSE_S)
                    continue
                if answer[0] == "failed":
                    raise WorkerFailed(answer[1])
                payload, steps, measured = answer[1:]
                return Trained(payload, steps, json.loads(measured))
        raise WorkerFailed(f"the training process died {TRIES_MAX} times in round {round_number}")

    def close(self) -> None:
        """End the process."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
        self._process = None

    async def _ask(self, request: Any) -> Any:
        if self._process is None or self._process.returncode is not None:
            self._process = await _open(self._command)
            assert self._process.stdout is not None, "it was opened with a pipe"
            self._answers = BufferedByteReceiveStream(self._process.stdout)
        assert self._process.stdin is not None, "it was opened with a pipe"
        assert self._answers is not None, "it was set with the process"
        await send_frame(self._process.stdin, request)
        return await receive_frame(self._answers)


class MiningWorker:
    """A process that searches nonces for the newest header it was given."""

    def __init__(self, function: str, on_sealed: Callable[[Header], None]) -> None:
        self._function = function
        self._on_sealed = on_sealed
        self._header: Header | None = None
        self._wanted = anyio.Event()

    def mine(self, header: Header) -> None:
        """Search a nonce for ``header``, and no longer for any header before it."""
        self._header = header
        self._wanted.set()

    async def run(self) -> None:
        """Keep a process running until cancelled; it is given the newest header again if it has to be replaced."""
        while True:
            try:
                await self._serve()
            except (anyio.IncompleteRead, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
                log.warning("the mining process ended (%r) and is started again", error)
            if self._header is not None:
                self._wanted.set()
            await anyio.sleep(RESTART_PAUSE_S)

    async def _serve(self) -> None:
        process = await _open(["mine", self._function])
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._send_orders, process)
                assert process.stdout is not None, "it was opened with a pipe"
                answers = BufferedByteReceiveStream(process.stdout)
                while True:
                    self._on_sealed(Header.from_record(await receive_frame(answers)))
        except* (anyio.IncompleteRead, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as group:
            raise group.exceptions[0] from None
        finally:
            process.kill()

    async def _send_orders(self, process: Process) -> None:
        assert process.stdin is not None, "it was opened with a pipe"
        while True:
            await self._wanted.wait()
            self._wanted = anyio.Event()
            if self._header is not None:
                await send_frame(process.stdin, self._header.to_record())


async def _open(arguments: list[str]) -> Process:
    command = [sys.executable, "-m", "fedchain.node.worker", *arguments]
    # A session of its own: Ctrl-C in the terminal is the node's to handle, and it ends its workers itself.
    return await anyio.open_process(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None, start_new_session=True
    )
