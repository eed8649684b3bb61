"""A setting that would do nothing is refused by what its type says, and says why."""

from dataclasses import dataclass, replace
from typing import Annotated

import pytest

from fedchain.files.effects import Needs, validate_effects


@dataclass(frozen=True)
class Base:
    noise: float = 0.0
    clip: Annotated[float, Needs("noise")] = 1.0
    curve: str = "none"
    decay: Annotated[float, Needs("curve", ("step", "stairs"))] = 0.1
    late: Annotated[int, Needs("late_rounds")] = 0
    delta: "Annotated[float, Needs('hides', why='nothing is hidden')]" = 0.5

    @property
    def hides(self) -> bool:
        return self.noise > 1


@dataclass(frozen=True)
class Redeclared(Base):
    clip: float = 3.0
    decay: Annotated[float, Needs("noise")] = 0.2


@dataclass(frozen=True)
class Beside:
    late_rounds: int = 0


def said(record: object, *beside: object) -> str:
    """The reason for which a record is refused; empty if it is not."""
    try:
        validate_effects(record, beside, ValueError)
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (Base(), ""),
        (Base(clip=1.0), ""),
        (Base(clip=2.0), "clip is 2.0, which has no effect: it needs noise, which is 0.0"),
        (Base(clip=2.0, noise=0.1), ""),
        (Base(decay=0.5), "decay is 0.5, which has no effect: it is of curve step or stairs, not of none"),
        (Base(decay=0.5, curve="step"), ""),
        (Base(delta=0.1, noise=1.0), "delta is 0.1, which has no effect: nothing is hidden"),
        (Base(delta=0.1, noise=2.0), ""),
    ],
)
def test_a_setting_without_what_it_needs_is_refused(record: Base, expected: str) -> None:
    assert said(record) == expected


def test_what_a_setting_needs_may_be_of_a_record_beside_it_and_is_asked_only_if_there_is_one() -> None:
    late = Base(late=1)
    assert said(late) == said(late, Beside(late_rounds=2)) == ""
    assert said(late, Beside()) == "late is 1, which has no effect: it needs late_rounds, which is 0"


def test_a_class_that_declares_a_field_anew_keeps_what_it_needs_unless_it_says_otherwise() -> None:
    assert said(Redeclared()) == said(Redeclared(decay=0.3, noise=1.0)) == ""
    assert said(Redeclared(clip=1.0)) == "clip is 1.0, which has no effect: it needs noise, which is 0.0"
    assert said(replace(Redeclared(), decay=0.3)) == "decay is 0.3, which has no effect: it needs noise, which is 0.0"
