"""Errors of learning name what was meant, and are one line."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from fedchain.files.spool import write_whole
from fedchain.learning.exceptions import (
    TEXT_SIZE_MAX,
    InvalidPayload,
    NothingToPost,
    OwnCodeFailed,
    TrainingDiverged,
    UnknownName,
    one_line,
    told,
)


def test_a_diverged_training_says_peer_round_and_loss() -> None:
    error = TrainingDiverged(2, 5, 7, float("nan"))
    assert type(error)(*error.args).loss is error.loss, "as it comes back from another process"
    assert str(error) == "peer 2, round 5: the loss is nan at step 7; try a smaller learning_rate"
    assert isinstance(error, NothingToPost)
    assert TrainingDiverged(2, 5, 7, 1.0, "too large").what == "too large"


def test_a_loss_that_is_not_finite_before_the_first_step_is_not_blamed_on_the_learning_rate() -> None:
    first = str(TrainingDiverged(2, 1, 0, float("nan")))
    assert first.startswith("peer 2, round 1: the loss is nan at step 0; ")
    assert "size of the inputs" in first
    assert "learning_rate" not in first
    for later in (TrainingDiverged(2, 1, 1, 1.0), TrainingDiverged(2, 2, 0, 1.0), TrainingDiverged(2, 1, 0, 1.0, "x")):
        assert str(later).endswith("; try a smaller learning_rate")


def test_a_misspelt_name_is_answered_with_what_was_meant_or_with_all() -> None:
    assert str(UnknownName("method", "fedag", ["solo", "fedavg"])).endswith("did you mean 'fedavg'?")
    assert str(UnknownName("method", "zzzz", ["b", "a"])).endswith("choose one of: a, b")
    assert str(UnknownName("method", "zzzz", [])).endswith("(there is none)")


def test_a_text_of_others_is_short_and_steers_no_terminal() -> None:
    text = one_line(ValueError("\x1b[2J" + "x" * 1_000 + "\nmore"))
    assert len(text) < TEXT_SIZE_MAX + 20
    assert text.isprintable()


class Unspeakable(ValueError):
    """An error of a user's own, whose text fails."""

    def __str__(self) -> str:
        return str(self.args[1])


def test_an_error_whose_text_cannot_be_made_is_told_all_the_same() -> None:
    def own() -> None:
        raise Unspeakable("alone")

    with pytest.raises(Unspeakable) as caught:
        own()
    result = told(caught.value, "peer 1")
    assert isinstance(result, OwnCodeFailed)
    assert str(result).startswith("peer 1: Unspeakable: its text cannot be made: IndexError (")


def test_what_own_code_raised_is_told_as_its_own_and_what_learning_raised_is_left() -> None:
    def own() -> None:
        raise KeyError("weights")

    with pytest.raises(KeyError) as caught:
        own()
    result = told(caught.value, "peer 1")
    assert isinstance(result, OwnCodeFailed)
    assert "KeyError" in result.__notes__[0]
    refused = InvalidPayload("x")
    assert told(refused, "peer 1") is refused


def told_of_own(own: Callable[[], object]) -> Exception:
    with pytest.raises((MemoryError, OSError)) as caught:
        own()
    return told(caught.value, "peer 1")


@pytest.mark.parametrize("error", [MemoryError("7 TiB"), FileNotFoundError(2, "No such file", "table.csv"), OSError()])
def test_memory_and_files_that_own_code_asks_for_itself_are_told_with_its_line(error: Exception) -> None:
    """They were a traceback, or a line that named no code."""

    def own() -> None:
        raise error

    assert str(told_of_own(own)).endswith(f"({__file__}, line {own.__code__.co_firstlineno + 1})")


def test_a_machine_that_has_too_little_is_no_fault_of_own_code(tmp_path: Path) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    assert type(told_of_own(full)) is OSError
    assert type(told_of_own(lambda: write_whole("x", tmp_path / "missing" / "x"))) is FileNotFoundError
