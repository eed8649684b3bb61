"""Parts on disk: a bad part is refused and not written; a disk that fails is nobody's fault."""

from pathlib import Path

import pytest

from fedchain.chain.exceptions import InvalidPayload, LimitReached, Refused
from fedchain.chain.state import genesis_state
from fedchain.crypto.hashing import Hash, sha256
from fedchain.learning.payload.part_folder import PartFolder
from fedchain.node.core.jobs import Job, KeepPart, Result
from fedchain.node.shell.parts import run_part
from tests.support.chain.builders import genesis

DATA = b"a part"
PART = sha256(DATA)


class Judge:
    """Refuses parts or not, and remembers what it was shown."""

    def __init__(self, refusal: Refused | None = None) -> None:
        self.shown: list[bytes | None] = []
        self._refusal = refusal

    def run(self, job: Job) -> Result:
        assert isinstance(job, KeepPart)
        self.shown.append(job.data)
        return self._refusal


class FullDisk(PartFolder):
    """Takes nothing."""

    def write(self, part_hash: Hash, data: bytes) -> None:
        raise OSError("No space left on device")


def keep(data: bytes | None = DATA) -> KeepPart:
    return KeepPart(genesis_state(genesis()), None, b"", PART, data)


def test_a_good_part_is_written_and_later_judged_from_the_disk(tmp_path: Path) -> None:
    parts, judge = PartFolder(tmp_path), Judge()
    assert run_part(judge, parts, keep()) is None
    assert parts.read(PART) == DATA
    assert run_part(judge, parts, keep(None)) is None
    assert judge.shown == [DATA, DATA]


def test_a_bad_part_is_refused_and_not_written(tmp_path: Path) -> None:
    parts, refusal = PartFolder(tmp_path), InvalidPayload("part", "bad")
    assert run_part(Judge(refusal), parts, keep()) is refusal
    assert not parts.has(PART)


def test_a_part_that_the_disk_lost_counts_as_not_posted_and_is_not_judged(tmp_path: Path) -> None:
    judge = Judge()
    assert isinstance(run_part(judge, PartFolder(tmp_path), keep(None)), LimitReached)
    assert judge.shown == []


def test_a_full_disk_counts_as_not_posted_and_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert isinstance(run_part(Judge(), FullDisk(tmp_path), keep()), LimitReached)
    assert "a part of 6 bytes that another member posted cannot be kept: No space left on device" in caplog.text
