"""Computing: the jobs of a node. Small ones are done at once; the others leave the loop, one after the other."""

import os
from collections import deque
from collections.abc import Callable

import anyio

from fedchain.learning.payload.part_folder import PartFolder
from fedchain.node.core.checks import Checks
from fedchain.node.core.events import Computed
from fedchain.node.core.jobs import CheckPost, Job, KeepPart, Recompute, Result, VerifySignatures
from fedchain.node.shell.parts import run_part
from fedchain.node.shell.threads import in_thread
from fedchain.node.workers.supervisor import VerifyingWorker

SMALL_JOB_SIZE = 256 * 2**10
"""Most bytes of payloads that a job may read on the loop; a larger or slow job would keep others waiting."""


class Computing:
    """Does jobs: signatures of replayed blocks in another process, the rest in a thread.

    Args:
        checks: the costly checks.
        parts: the folder of parts; None for a node that fetches none.
        handle: takes the results.
    """

    def __init__(self, checks: Checks, parts: PartFolder | None, handle: Callable[[Computed], object]) -> None:
        self._checks, self._parts, self._handle = checks, parts, handle
        self._verifier = VerifyingWorker(lambda job, result: handle(Computed(job, result)))
        self._jobs: deque[Job] = deque()
        self._job_arrived = anyio.Event()

    def leaves_loop(self, job: Job) -> bool:
        """Whether a job would keep the loop waiting, because of its bytes, the disk, or its method's check."""
        if isinstance(job, VerifySignatures):
            return (os.cpu_count() or 1) > 1
        return isinstance(job, KeepPart) or _size(job) > SMALL_JOB_SIZE or self._checks.is_slow(job)

    def run_at_once(self, job: Job) -> Computed:
        """Do a job that does not leave the loop."""
        return Computed(job, self._checks.run(job))

    def start(self, job: Job) -> None:
        """Have a job done off the loop."""
        if isinstance(job, VerifySignatures):
            self._verifier.verify(job)
        else:
            self._jobs.append(job)
            self._job_arrived.set()

    async def run(self) -> None:
        """Do jobs until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._verifier.run)
            while True:
                while self._jobs:
                    job = self._jobs.popleft()
                    result = await in_thread(self._run, job)
                    self._handle(Computed(job, result))
                self._job_arrived = anyio.Event()
                await self._job_arrived.wait()

    def _run(self, job: Job) -> Result:
        if isinstance(job, KeepPart):
            assert self._parts is not None, "only a node with a folder for parts fetches any"
            return run_part(self._checks, self._parts, job)
        return self._checks.run(job)


def _size(job: CheckPost | Recompute) -> int:
    """Bytes of payloads that a job reads."""
    return len(job.payload) if isinstance(job, CheckPost) else sum(map(len, job.contents.values()))
