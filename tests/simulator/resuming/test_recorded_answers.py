"""Answers in a record: given again up to the newest state, computed and compared behind it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fedchain.crypto.hashing import sha256
from fedchain.learning.exceptions import DecryptionRefused
from fedchain.learning.executors.executor import Answer, InFile, QuestionId
from fedchain.learning.payload.part_folder import PartFolder
from fedchain.learning.worker.contribution import Contribution
from fedchain.simulator.resuming.answers import Batch, RecordedAnswer
from fedchain.simulator.resuming.record import Record, RecordError
from fedchain.simulator.resuming.recorded_answers import QUESTIONS_KEPT, RecordedAnswers

IDENTITY = {"fedchain": "1"}
REFUSAL = DecryptionRefused("member 1")


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Record]:
    record = Record.create(tmp_path / "record", IDENTITY)
    yield record
    record.close()


def question(round_number: int, client: int = 1) -> QuestionId:
    return QuestionId(client, "update", round_number, bytes(32), False)


def contribution(filling: bytes) -> Contribution:
    return Contribution(filling, 1, None, None)


def compute(answers: RecordedAnswers, asked: QuestionId, answer: Answer, *, is_whole: bool = True) -> None:
    """Let a client answer, and leave its state where it is to be; a file that is not whole is none."""
    path = answers.begin(asked)
    assert path is not None
    path.write_bytes(sha256(b"state") + (b"state" if is_whole else b"st"))
    assert repr(answers.keep(asked, answer, [asked])()) == repr(answer)


def again(record: Record, tmp_path: Path) -> RecordedAnswers:
    """The answers of the run that goes on."""
    return RecordedAnswers(record, tmp_path / "parts", together=False)


def recalled(answers: RecordedAnswers, asked: QuestionId) -> Answer | None:
    kept = answers.recall(asked)
    return None if kept is None else kept()


def test_answers_are_given_again_and_the_client_goes_on_from_its_state(record: Record, tmp_path: Path) -> None:
    answers = again(record, tmp_path)
    assert answers.recall(question(1)) is None
    compute(answers, question(1), contribution(b"1"))
    compute(answers, question(2), REFUSAL)
    assert recalled(answers, question(1)) == contribution(b"1"), "it is kept while the run lasts, too"
    later = again(record, tmp_path)
    assert recalled(later, question(1)) == contribution(b"1")
    assert repr(recalled(later, question(2))) == repr(recalled(later, question(2))) == repr(REFUSAL)
    assert later.recall(question(3)) is None
    assert later.left(1) == record.state_path(1, 2)
    assert later.left(1) is None, "once"
    compute(later, question(3), contribution(b"3"))
    assert record.count(1) == 3
    assert record.states(1) == [3]


def test_it_is_known_whether_the_next_answer_is_kept_whatever_is_asked(record: Record, tmp_path: Path) -> None:
    """So nothing is computed ahead for a client whose answers come from the record."""
    answers = again(record, tmp_path)
    assert not answers.is_next_kept(1)
    compute(answers, question(1), contribution(b"1"))
    compute(answers, question(2), contribution(b"2"))
    assert not answers.is_next_kept(1)
    later = again(record, tmp_path)
    found = [later.is_next_kept(1), recalled(later, question(1)), later.is_next_kept(1), recalled(later, question(2))]
    assert found == [True, contribution(b"1"), True, contribution(b"2")]
    assert not later.is_next_kept(1)
    assert not later.is_next_kept(2), "another client"


def test_the_newest_answers_are_given_as_often_as_they_are_asked_for(record: Record, tmp_path: Path) -> None:
    """A peer that restarts asks again."""
    answers = again(record, tmp_path)
    for number in range(1, 7):
        compute(answers, question(number), contribution(b"%d" % number))
        for newest in range(max(1, number - QUESTIONS_KEPT + 1), number + 1):
            assert recalled(answers, question(newest)) == contribution(b"%d" % newest)


def test_the_parts_of_an_answer_that_is_given_again_are_there_again(record: Record, tmp_path: Path) -> None:
    part = b"a part"
    PartFolder(tmp_path / "parts" / "1").write(sha256(part), part)
    compute(again(record, tmp_path), question(1), replace(contribution(b"1"), parts=(sha256(part),)))
    later = RecordedAnswers(record, tmp_path / "elsewhere", together=False)
    assert later.recall(question(1)) is not None
    assert PartFolder(tmp_path / "elsewhere" / "1").read(sha256(part)) == part


@pytest.mark.parametrize("together", [False, True])
def test_what_is_computed_together_is_given_again_together_or_not_at_all(
    together: bool, record: Record, tmp_path: Path
) -> None:
    """Each client's answer has an effect on the last bits of the others'."""
    answers = again(record, tmp_path)
    for client in (0, 1):
        compute(answers, question(1, client), contribution(b"1"), is_whole=client == 0)
    later = RecordedAnswers(record, tmp_path / "parts", together=together)
    assert (later.recall(question(1, 0)) is None) == together
    assert later.recall(question(1, 1)) is None


def test_a_payload_that_came_in_a_file_is_moved_into_the_record_once(record: Record, tmp_path: Path) -> None:
    for client in (0, 1):
        answers, path = again(record, tmp_path), tmp_path / f"answer-{client}"
        path.write_bytes(b"large")
        written = path.stat().st_ino
        answers.begin(question(1, client))
        asked, answer = question(1, client), InFile(contribution(b""), sha256(b"large"), path)
        assert answers.keep(asked, answer, [asked])() == contribution(b"large")
        assert not path.exists()
        (kept,) = (tmp_path / "record" / "contents").iterdir()
        assert (kept.stat().st_ino == written) == (client == 0), "the same bytes are there once"


def test_what_has_no_state_is_computed_again_and_must_be_the_same(record: Record, tmp_path: Path) -> None:
    answers = again(record, tmp_path)
    compute(answers, question(1), contribution(b"1"), is_whole=False)
    later = again(record, tmp_path)
    assert later.recall(question(1)) is None
    assert later.left(1) is None
    with pytest.raises(RecordError, match="contribution to phase update of round 1 differs from the record"):
        compute(later, question(1), contribution(b"other"))


def test_another_question_than_before_is_noticed(record: Record, tmp_path: Path) -> None:
    compute(again(record, tmp_path), question(1), contribution(b"1"))
    with pytest.raises(RecordError, match=r"asked for phase update of round 1 where it is asked for .* round 2 now"):
        again(record, tmp_path).recall(question(2))


@pytest.mark.parametrize("taken", [1, 2, 3])
def test_a_refusal_that_an_older_version_numbered_twice_is_one_answer(
    taken: int, record: Record, tmp_path: Path
) -> None:
    """Wherever the newest state is: before the second number, at it, or behind it."""
    made: list[tuple[QuestionId, Contribution | DecryptionRefused]]
    made = [(question(1), REFUSAL), (question(1), REFUSAL), (question(2), contribution(b"2"))]
    for number, (asked, answer) in enumerate(made, 1):
        payload = record.put(answer.payload) if isinstance(answer, Contribution) else None
        whole = Contribution(b"", 1, None, None) if isinstance(answer, Contribution) else answer
        record.add(1, number, Batch(1, number, 1), RecordedAnswer(asked, whole, payload))
    record.state_path(1, taken).write_bytes(sha256(b"state") + b"state")
    answers = again(record, tmp_path)
    for _ in range(2):
        assert repr(recalled(answers, question(1))) == repr(REFUSAL)
    if taken < 3:
        assert answers.recall(question(2)) is None
        compute(answers, question(2), contribution(b"2"))
    assert recalled(answers, question(2)) == contribution(b"2")
    compute(answers, question(3), contribution(b"3"))
    assert record.count(1) == 4


def test_a_question_that_had_a_fault_keeps_its_number(record: Record, tmp_path: Path) -> None:
    answers = again(record, tmp_path)
    assert answers.recall(question(1)) is None
    first = answers.begin(question(1))
    assert answers.recall(question(1)) is None
    assert answers.begin(question(1)) == first
    compute(answers, question(1), contribution(b"1"))
    assert record.count(1) == 1


def test_states_go_when_all_that_was_computed_together_is_kept(record: Record, tmp_path: Path) -> None:
    answers = RecordedAnswers(record, tmp_path / "parts", together=True)
    for number in (1, 2):
        together = [question(number, client) for client in (0, 1)]
        for asked in together:
            assert answers.recall(asked) is None
            path = answers.begin(asked)
            assert path is not None
            path.write_bytes(sha256(b"state") + b"state")
        answers.keep(together[0], contribution(b"0"), together)
        assert record.states(0) == list(range(number, 0, -1))
        answers.keep(together[1], contribution(b"1"), together)
        assert record.states(0) == record.states(1) == [number]
