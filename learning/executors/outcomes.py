"""Forecasts by their outcome: whether work that was done ahead of its time was of use."""

from dataclasses import dataclass
from enum import Enum


class Outcome(Enum):
    """How a forecast ended."""

    READY = "ready"
    """It was the answer, and there before the question."""
    RUNNING = "running"
    """It was the answer, and under way when the question came."""
    OVERTAKEN = "overtaken"
    """It was not begun when the question came, or a newer forecast."""
    THROWN_AWAY = "thrown away"
    """Something else was asked, or the work failed."""
    REFUSED = "refused"
    """The work could not be taken back, so that no other of its phase is made."""


@dataclass(slots=True)
class Counts:
    """Forecasts of a run by their outcome."""

    foreseen: int = 0
    """Asked for."""
    ready: int = 0
    running: int = 0
    overtaken: int = 0
    thrown_away: int = 0
    refused: int = 0

    def add(self, outcome: Outcome) -> None:
        """A forecast has ended."""
        setattr(self, outcome.name.lower(), getattr(self, outcome.name.lower()) + 1)

    @property
    def open(self) -> int:
        """Those that have not ended: nobody has asked."""
        return self.foreseen - self.ready - self.running - self.overtaken - self.thrown_away - self.refused
