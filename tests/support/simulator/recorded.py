"""A record on the disk, and an answer in it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fedchain.learning.bulk import AddressedBytes
from fedchain.learning.executors.executor import QuestionId
from fedchain.learning.training.measured import Evaluation
from fedchain.learning.worker.contribution import Contribution
from fedchain.simulator.resuming.answers import RecordedAnswer
from fedchain.simulator.resuming.record import Record

IDENTITY = {"fedchain": "1"}
QUESTION = QuestionId(0, "update", 1, bytes(32), True)

MADE = Contribution(
    payload=b"",
    steps=3,
    local=Evaluation(0.5, float("nan"), test_accuracy=0.25),
    received=None,
    scalars=7,
    epsilon=0.1,
    parts=(b"p" * 32,),
    addressed=AddressedBytes(1, 2, 3, 4),
    skipped=((2, "part 00 is not here"),),
)


def answer_of(record: Record, payload: bytes = b"payload", part: bytes = b"part") -> RecordedAnswer:
    return RecordedAnswer(QUESTION, MADE, record.put(payload), (record.put(part),))


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Record]:
    record = Record.create(tmp_path / "record", IDENTITY)
    yield record
    record.close()
