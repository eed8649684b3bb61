"""``members.csv`` of a simulated run: how good each member's model was after its training of each round."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fedchain.files.layout import MEMBERS_FILE, open_found

COLUMNS = ("round", "member", "accuracy", "test_accuracy")

NUMBER_END = 2**32
"""Rounds and members have lower numbers."""


@dataclass(frozen=True, slots=True)
class MemberAccuracy:
    """A member's model, measured after one round's training. Accuracies are fractions."""

    round: int
    """Round, from 1."""
    member: int
    """Number of the member, from 0."""
    accuracy: float
    """Accuracy on the member's own test set."""
    test_accuracy: float | None = None
    """Accuracy on the whole test set; None if it was not measured."""


def members_text(measured: Iterable[MemberAccuracy]) -> str:
    """The content of the file: a line for each member and round in which it trained."""
    lines = [
        f"{item.round},{item.member},{item.accuracy!r},{'' if item.test_accuracy is None else repr(item.test_accuracy)}"
        for item in measured
    ]
    return "\n".join([",".join(COLUMNS), *lines]) + "\n"


def read_members(folder: Path, size_max: int = -1) -> Iterator[MemberAccuracy]:
    """The measurements of a run in ``folder``, as they stand in the file; damaged lines are skipped.

    At most ``size_max`` bytes are read; -1: all. Raises OSError if the file cannot be read. A run that is not finished
    has none, and no measurements.
    """
    with suppress(FileNotFoundError), open_found(folder / MEMBERS_FILE) as file:
        text = file.read(size_max).decode("utf-8", errors="replace")
        for line in text.splitlines()[1:]:
            with suppress(ValueError):
                number, member, accuracy, tested = line.split(",")
                found = MemberAccuracy(int(number), int(member), float(accuracy), float(tested) if tested else None)
                is_sound = 0 <= found.accuracy <= 1 and 0 <= (found.test_accuracy or 0.0) <= 1
                if is_sound and min(found.round, found.member) >= 0 and max(found.round, found.member) < NUMBER_END:
                    yield found
