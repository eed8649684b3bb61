"""Parts on a node's disk: an arrived part is judged and kept. Parts of simulated peers are kept in the same way."""

import logging
from dataclasses import replace
from typing import Protocol

from fedchain.chain.exceptions import LimitReached, Refused
from fedchain.learning.exceptions import PartMissing
from fedchain.learning.payload.part_folder import PartStore
from fedchain.node.core.jobs import Job, KeepPart, Result

log = logging.getLogger("fedchain.node")


class Judge(Protocol):
    """Judges a part; :class:`fedchain.node.core.checks.Checks` implements it."""

    def run(self, job: Job) -> Result:
        """Do a job."""


def run_part(judge: Judge, parts: PartStore, job: KeepPart) -> Refused | None:
    """Judge a part, and write it unless it is here; returns the refusal, or None.

    A part that the disk refuses, or has lost, counts as not posted; nobody is to blame for it.
    """
    try:
        data = parts.read(job.part_hash) if job.data is None else job.data
    except PartMissing as error:
        return LimitReached("disk", str(error))
    result = judge.run(replace(job, data=data))
    assert result is None or isinstance(result, Refused), "a part is good, or refused"
    if result is None and job.data is not None:
        try:
            parts.write(job.part_hash, data)
        except OSError as error:
            log.error("a part of %d bytes that another member posted cannot be kept: %s", len(data), error)
            return LimitReached("disk", str(error))
    return result
