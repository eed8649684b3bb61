"""Answers as a record holds them."""

from pathlib import Path

import numpy as np
import pytest

from fedchain.learning.exceptions import DecryptionRefused, NothingToPost, ReleaseRefused, TrainingDiverged
from fedchain.simulator.engine.measurement import Span
from fedchain.simulator.resuming.answers import Batch, RecordedAnswer, read_answer, write_answer
from fedchain.simulator.resuming.record import Record, RecordError
from tests.support.simulator.recorded import IDENTITY, QUESTION, answer_of
from tests.support.simulator.recorded import record as record


@pytest.mark.parametrize(
    "refusal",
    [TrainingDiverged(1, 2, 3, float("inf"), "why"), DecryptionRefused("member 1"), ReleaseRefused("member 2")],
)
def test_answers_survive_the_record(refusal: Exception, record: Record) -> None:
    answer = answer_of(record)
    assert repr(read_answer(0, write_answer(answer))) == repr(answer)  # NaN is not itself
    record.add(0, 1, Batch(0, 1, 1), RecordedAnswer(QUESTION, refusal, None))  # type: ignore[arg-type]
    again = record.answer(0, 1).made
    assert (type(again), str(again)) == (type(refusal), str(refusal))


class TooFewExamples(DecryptionRefused):
    """A refusal of a user's own method."""


class Exploded(TrainingDiverged):
    """And one that no text alone can make again."""


@pytest.mark.parametrize(
    ("refusal", "kind"),
    [
        (TooFewExamples("member 1 has too few"), DecryptionRefused),
        (ReleaseRefused("member", 1.5 + 0j), ReleaseRefused),
        (NothingToPost("member", np.int64(1)), NothingToPost),
        (NothingToPost(ValueError("no")), NothingToPost),
        (Exploded(1, 1, 3, 0.5), NothingToPost),
    ],
    ids=["own class", "complex number", "number of numpy's", "error", "loss"],
)
def test_a_refusal_of_a_user_s_own_is_written_down_by_its_text(
    refusal: NothingToPost, kind: type[NothingToPost], record: Record
) -> None:
    """And stays what it is to the rules of a phase, with a record and without."""
    record.add(0, 1, Batch(0, 1, 1), RecordedAnswer(QUESTION, refusal, None))
    again = record.answer(0, 1).made
    assert (type(again), str(again)) == (kind, str(refusal))
    record.add(0, 1, Batch(0, 1, 1), RecordedAnswer(QUESTION, refusal, None))


def test_what_is_computed_again_must_be_what_it_was(record: Record) -> None:
    record.add(0, 1, Batch(0, 1, 1), answer_of(record))
    record.add(0, 1, Batch(0, 1, 1), answer_of(record))
    with pytest.raises(RecordError, match="peer 0's contribution to phase update of round 1 differs from the record"):
        record.add(0, 1, Batch(0, 1, 1), answer_of(record, b"other"))
    record.close_round(1, b"a" * 32, {(0, 1): Span(1.0, 2.0)})
    record.close_round(1, b"a" * 32, {})
    with pytest.raises(RecordError, match="round 1 differs from the record"):
        record.close_round(1, b"b" * 32, {})


def test_half_of_what_was_computed_together_is_nothing(record: Record, tmp_path: Path) -> None:
    for client in (0, 1):
        record.add(client, 1, Batch(0, 1, 2), answer_of(record))
    record.add(0, 2, Batch(0, 2, 2), answer_of(record))
    record.close()
    again = Record.open(tmp_path / "record", IDENTITY)
    assert [again.count(client) for client in (0, 1)] == [1, 1]
    again.close()
