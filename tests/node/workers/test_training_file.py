"""The trainer's file holds an answer and the state after it, or is damaged."""

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from fedchain.crypto.hashing import HASH_SIZE, Hash, sha256
from fedchain.files.spool import SpoolFolder, path_of, write_pieces
from fedchain.learning.executors.executor import QuestionId
from fedchain.learning.worker.contribution import Contribution
from fedchain.node.workers import training_file
from fedchain.node.workers.frames import PipeBroken, to_frame
from fedchain.node.workers.training_file import (
    KeptAnswer,
    KeptTraining,
    read_answer,
    read_training,
    repair_training,
    write_answer,
)

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
    path.write_bytes(KEPT.encode())
    assert read_training(path) == KEPT
    assert read_training(path).measured == {"accuracy": 0.5}


def test_a_file_of_a_version_that_wrote_no_hash_is_read(tmp_path: Path) -> None:
    path = tmp_path / "training"
    path.write_bytes(KEPT.encode()[:-HASH_SIZE])
    assert read_training(path) == KEPT


@pytest.mark.parametrize(
    "data",
    [
        KEPT.encode()[:-1],
        KEPT.encode()[: -HASH_SIZE - 1],
        KEPT.encode().replace(b"payload", b"paylobd"),
        bytes(len(KEPT.encode())),
        b"",
        to_frame(["something", "else"]),
        to_frame([]),
    ],
)
def test_what_is_no_answer_is_damaged(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "training"
    path.write_bytes(data)
    with pytest.raises(PipeBroken, match=f"^{path} is damaged: .*; .* run: fedchain node repair {tmp_path}$"):
        read_training(path)


def test_a_pipe_in_its_place_keeps_nobody_waiting(tmp_path: Path) -> None:
    path = tmp_path / "training"
    os.mkfifo(path)
    with pytest.raises(PipeBroken, match=f"^{path} is damaged: it is a pipe or a device, and no file; "):
        read_training(path)
    assert f"set aside as {path}.damaged-1; " in repair_training(path)


def test_a_damaged_file_is_set_aside_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "training"
    assert repair_training(path) == ""
    path.write_bytes(KEPT.encode())
    assert repair_training(path) == ""
    for number in (1, 2):
        path.write_bytes(bytes(9))
        assert f"set aside as {path}.damaged-{number}; " in repair_training(path)
        assert not path.exists()
    assert (tmp_path / "training.damaged-1").read_bytes() == bytes(9)


@pytest.mark.parametrize(("chain_id", "member"), [(bytes(32), 2), (b"\1" * 32, 1)])
def test_the_file_of_another_member_is_not_overwritten(tmp_path: Path, chain_id: bytes, member: int) -> None:
    """Nodes whose data folders were mixed up threw each other's models away, and said nothing."""
    path, beside = tmp_path / "training", tmp_path / "training.1.bytes"
    path.write_bytes(KEPT.encode())
    beside.write_bytes(b"of that member")
    said = f"^{path} has the model of peer 1 of chain 0000000000000000…, .* peer {member} "
    with pytest.raises(PipeBroken, match=said):
        KeptAnswer(path, Hash(chain_id), member, lambda: b"c")
    assert (read_training(path), beside.exists()) == (KEPT, True)
    assert KeptAnswer(path, KEPT.chain_id, KEPT.member, lambda: b"c").kept == KEPT


def test_a_file_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_training(tmp_path / "none")


PAYLOADS = [bytes([number]) * 5_000 for number in range(3)]


def keep(folder: Path, number: int) -> Contribution:
    """Have a trainer keep the answer to a round's question, which was put together in a file, as was its client."""
    spools = SpoolFolder(folder / "spool", size_min=1_000)
    answers = KeptAnswer(folder / "training", bytes(32), 1, lambda: write_pieces([PAYLOADS[number], b"c"], spools))
    made = Contribution(write_pieces([PAYLOADS[number]], spools), 2, None, None)
    kept = answers.keep(QuestionId(1, "update", number, bytes(32), False), made, ())
    answer = kept()
    assert isinstance(answer, Contribution)
    return answer


def test_what_is_large_lies_beside_it_and_outlives_the_process(tmp_path: Path) -> None:
    for number in (1, 2):
        made = keep(tmp_path, number)
        found = read_training(tmp_path / "training")
        assert (found.answer[0][:], found.checkpoint[:]) == (PAYLOADS[number], PAYLOADS[number] + b"c")
        assert path_of(found.answer[0]) == path_of(made.payload)
    assert (tmp_path / "training").stat().st_size < 500
    assert len([*tmp_path.glob("training.*.bytes")]) == 2, "those of the first round are gone"
    assert not [*(tmp_path / "spool").iterdir()]


def test_an_answer_to_one_phase_is_none_to_the_next_one_of_its_round(tmp_path: Path) -> None:
    answers = KeptAnswer(tmp_path / "training", bytes(32), 1, lambda: b"c")
    asked = QuestionId(1, "update", 1, bytes(32), False)
    answers.keep(asked, Contribution(b"payload", 2, None, None), ())
    assert answers.recall(asked) is not None
    for other in (replace(asked, phase="open"), replace(asked, round=2), replace(asked, knowledge=b"x" * 32)):
        assert answers.recall(other) is None


def test_large_bytes_are_on_the_disk_before_the_file_names_them_and_go_when_it_names_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = list[str]()
    keep(tmp_path, 1)
    monkeypatch.setattr(training_file, "sync_file", lambda path: done.append(f"sync {path.parent.name}"))
    monkeypatch.setattr(
        training_file, "write_file", lambda *_: done.append(f"write beside {len([*tmp_path.glob('*.bytes')])}")
    )
    keep(tmp_path, 2)
    assert done == ["sync spool", "sync spool", "write beside 4"]


def test_what_a_full_disk_left_half_done_goes_at_the_next_start(tmp_path: Path) -> None:
    made = keep(tmp_path, 1)
    spools = SpoolFolder(tmp_path / "spool", size_min=1_000)

    def refuse() -> bytes:
        raise OSError(errno.ENOSPC, "No space left on device")

    broken = KeptAnswer(tmp_path / "training", bytes(32), 1, refuse)
    large = Contribution(write_pieces([PAYLOADS[2]], spools), 2, None, None)
    with pytest.raises(OSError, match="No space"):
        broken.keep(QuestionId(1, "update", 2, bytes(32), False), large, ())
    again = KeptAnswer(tmp_path / "training", bytes(32), 1, refuse)
    assert again.kept is not None
    named = {path_of(again.kept.answer[0]), path_of(again.kept.checkpoint)}
    assert {*tmp_path.glob("training.*.bytes")} == named, "each failed round would fill the disk further"
    assert path_of(made.payload) in named


def test_a_node_reads_a_large_answer_where_its_trainer_left_it(tmp_path: Path) -> None:
    made = keep(tmp_path, 1)
    frame = write_answer(made)
    assert len(to_frame(frame)) < 500
    taken = read_answer(frame)
    assert (taken.payload[:], path_of(taken.payload)) == (PAYLOADS[1], path_of(made.payload))
    assert sha256(taken.payload) == sha256(PAYLOADS[1])
    keep(tmp_path, 2)
    assert taken.payload[:] == PAYLOADS[1], "it has it in its hands"
    with pytest.raises(PipeBroken, match=r"training\..* was handed over, but cannot be read"):
        read_answer(frame)


def test_a_trainer_that_starts_again_gives_the_same_large_answer(tmp_path: Path) -> None:
    made = keep(tmp_path, 1)
    again = KeptAnswer(tmp_path / "training", bytes(32), 1, lambda: b"")
    kept = again.recall(QuestionId(1, "update", 1, bytes(32), False))
    assert kept is not None
    answer = kept()
    assert isinstance(answer, Contribution)
    assert (answer.payload[:], answer.steps) == (PAYLOADS[1], made.steps)
    assert write_answer(answer) == write_answer(made)


@pytest.mark.parametrize("data", [None, PAYLOADS[0], PAYLOADS[1][:-1], b""])
def test_what_lies_beside_it_and_is_another_one_is_damage(tmp_path: Path, data: bytes | None) -> None:
    beside = path_of(keep(tmp_path, 1).payload)
    assert beside is not None
    beside.unlink()
    if data is not None:
        beside.write_bytes(data)
    with pytest.raises(PipeBroken):
        read_training(tmp_path / "training")
