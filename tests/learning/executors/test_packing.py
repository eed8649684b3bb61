"""Replies travel as they are, and what cannot be packed travels as the nearest thing that can."""

import threading
from typing import Any, NoReturn

import pytest

from fedchain.learning.exceptions import InvalidPayload, NothingToPost, OwnCodeFailed, TrainingDiverged
from fedchain.learning.executors.packing import Reply, pack_reply, portable, unpack


class Locked(InvalidPayload):
    """An error that holds what cannot be packed."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


class OfTwo(KeyError):
    """An error that is packed, and cannot be read again."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second}")


class LockedDivergence(TrainingDiverged):
    """The class above it is not made of a text."""

    def __init__(self) -> None:
        super().__init__(1, 2, 3, 4.0)
        self.lock = threading.Lock()


@pytest.mark.parametrize("reply", [Reply(3, True, b"found"), Reply(4, False, TrainingDiverged(1, 2, 3, 4.0))])
def test_a_reply_arrives_as_it_is(reply: Reply) -> None:
    found = unpack(pack_reply(reply, "peer 1"))
    assert repr(found) == repr(reply)


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (Locked("a rule is broken"), InvalidPayload, "a rule is broken"),
        (OfTwo("one", "two"), KeyError, "one and two"),
        (LockedDivergence(), NothingToPost, "peer 1, round 2"),
    ],
)
def test_an_error_that_does_not_survive_becomes_one_of_the_nearest_class(
    error: Exception, kind: type[Exception], text: str
) -> None:
    error.add_note("where it was")
    found = unpack(pack_reply(Reply(1, False, error), "peer 1")).value
    assert type(found) is kind
    assert text in str(found)
    assert found.__notes__ == ["where it was"]


def test_an_error_that_survives_is_itself() -> None:
    error = ValueError("plain")
    assert portable(error) is error


def test_a_refusal_that_cannot_be_packed_stays_a_refusal() -> None:
    found = unpack(pack_reply(Reply(1, True, LockedDivergence()), "peer 1"))
    assert found.succeeded
    assert type(found.value) is NothingToPost


@pytest.mark.parametrize("value", [lambda: 0, threading.Lock(), [threading.Lock()]])
def test_a_result_that_cannot_be_packed_is_the_fault_of_its_code(value: Any) -> None:
    found = unpack(pack_reply(Reply(5, True, value), "peer 7"))
    assert (found.number, found.succeeded) == (5, False)
    assert isinstance(found.value, OwnCodeFailed)
    assert "peer 7: an answer cannot be sent to another process: " in str(found.value)


class Full:
    """A result for whose packing memory is missing."""

    def __reduce__(self) -> NoReturn:
        raise MemoryError


def test_a_result_that_memory_is_missing_for_is_no_fault_of_its_code() -> None:
    """The process ends, and another one goes on; a fault would end the run."""
    with pytest.raises(MemoryError):
        pack_reply(Reply(5, True, Full()), "peer 7")
