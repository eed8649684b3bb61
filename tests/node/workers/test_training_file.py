"""The trainer's file holds an answer and the state after it, or is damaged."""

from pathlib import Path

import pytest

from fedchain.crypto.hashing import Hash
from fedchain.node.workers.frames import PipeBroken, to_frame
from fedchain.node.workers.training_file import KeptTraining, read_training

KEPT = KeptTraining(
    chain_id=bytes(32),
    member=1,
    phase="update",
    round=3,
    knowledge=Hash(bytes(32)),
    answer=[b"payload", 2, '{"accuracy": 0.5}'],
    checkpoint=b"c",
)


def test_it_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "training"
    path.write_bytes(KEPT.to_frame())
    assert read_training(path) == KEPT
    assert read_training(path).measured == {"accuracy": 0.5}


@pytest.mark.parametrize("data", [KEPT.to_frame()[:-1], b"", to_frame(["something", "else"]), to_frame([])])
def test_what_is_no_answer_is_damaged(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "training"
    path.write_bytes(data)
    with pytest.raises(PipeBroken):
        read_training(path)


def test_a_file_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_training(tmp_path / "none")
