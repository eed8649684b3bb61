"""A client's last answer is found again, in memory or in a file, until the client is asked something else."""

from pathlib import Path

import pytest

from fedchain.crypto.hashing import sha256
from fedchain.learning.exceptions import DecryptionRefused
from fedchain.learning.executors.executor import Answer, InFile, QuestionId
from fedchain.learning.executors.handover import LARGE_SIZE
from fedchain.learning.executors.last_answers import LastAnswers
from fedchain.learning.worker.contribution import Contribution


def question(client: int, round_number: int = 1, knowledge: bytes = bytes(32)) -> QuestionId:
    return QuestionId(client, "update", round_number, knowledge, False)


def contribution(filling: int, size: int = 10) -> Contribution:
    return Contribution(bytes([filling]) * size, 1, None, None)


def keep(answers: LastAnswers, asked: QuestionId, answer: Answer | InFile) -> Answer:
    """Keep an answer, and read it as who waits for it does."""
    return answers.keep(asked, answer, [asked])()


def test_a_last_answer_is_found_again_in_memory_or_in_a_file(tmp_path: Path) -> None:
    answers = LastAnswers(tmp_path, size_max=20)
    first = {client: contribution(client) for client in range(4)}
    assert {client: keep(answers, question(client), made) for client, made in first.items()} == first
    assert {path.name for path in tmp_path.iterdir()} == {"client-0.payload", "client-1.payload"}, "the oldest"
    for _ in range(2):
        found = {client: answers.recall(question(client)) for client in range(4)}
        assert {client: kept() for client, kept in found.items() if kept is not None} == first
    keep(answers, question(0, 2), contribution(9))
    assert answers.recall(question(0)) is answers.recall(question(9)) is None
    again = answers.recall(question(0, 2))
    assert again is not None
    assert again() == contribution(9)


def test_answers_that_were_replaced_take_no_room(tmp_path: Path) -> None:
    answers = LastAnswers(tmp_path, size_max=20)
    for number in range(1, 6):
        keep(answers, question(0, number), contribution(number))
    assert not [*tmp_path.iterdir()]


def test_another_knowledge_is_another_question_and_a_refusal_an_answer(tmp_path: Path) -> None:
    answers, refusal = LastAnswers(tmp_path), DecryptionRefused("member 1")
    assert keep(answers, question(1), refusal) is refusal
    assert answers.recall(question(1, knowledge=b"1" * 32)) is None
    again = answers.recall(question(1))
    assert again is not None
    assert again() is refusal


def test_a_large_payload_is_read_as_it_was_although_the_next_one_is_made_before(tmp_path: Path) -> None:
    answers = LastAnswers(tmp_path)
    first, second = (contribution(filling, LARGE_SIZE) for filling in (1, 2))
    waiting = answers.keep(question(0), first, [question(0)])
    later = answers.keep(question(0, 2), second, [question(0, 2)])
    assert (waiting(), later()) == (first, second)
    assert [path.name for path in tmp_path.iterdir()] == ["client-0.payload"]


def test_a_payload_that_came_in_a_file_is_not_written_again(tmp_path: Path) -> None:
    answers, (folder, payload) = LastAnswers(tmp_path), (tmp_path / "process", bytes(LARGE_SIZE))
    folder.mkdir()
    path = folder / "answer-1"
    path.write_bytes(payload)
    written = path.stat().st_ino
    assert keep(answers, question(0), InFile(contribution(0, 0), sha256(payload), path)) == contribution(0, LARGE_SIZE)
    assert not path.exists()
    assert (tmp_path / "client-0.payload").stat().st_ino == written


@pytest.mark.parametrize("size", [LARGE_SIZE, 30])
def test_a_file_that_finds_no_room_is_named(tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "full").symlink_to("/dev/full")
    monkeypatch.setattr(LastAnswers, "_path", lambda *_: tmp_path / "full")
    monkeypatch.setattr(Path, "unlink", lambda *_, **__: None)
    answers = LastAnswers(tmp_path, size_max=20)
    with pytest.raises(OSError, match="No space left") as error:
        answers.keep(question(0), contribution(1, size), [question(0)])
    assert error.value.filename == str(tmp_path / "full")
