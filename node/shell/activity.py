"""Activity: the current work and the notices of a running node, for people and for metrics."""

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from fedchain.chain.exceptions import Refused
from fedchain.node.core.notices import Notice

NOTICES_MAX = 32
"""Most notices that are remembered; beyond it the oldest is dropped."""

SLOW_WRITE_S = 10.0
"""Seconds from which on a write to the disk takes long; nothing is sent before it has ended."""


@dataclass(slots=True)
class Activity:
    """Counters and the last events of one node."""

    started_s: float = field(default_factory=time.monotonic)
    """Time at which the node's service began, by the monotonic clock."""
    training: bool = False
    """Whether a contribution is being computed."""
    mining_since_s: float | None = None
    """Time at which the search for a nonce began, by the monotonic clock; None if nothing is being mined."""
    writing_since_s: float | None = None
    """Time at which the write to the disk began that lasts, by the monotonic clock; None if there is none."""
    accuracy: float | None = None
    """Accuracy of the model after its last training, as a fraction of the peer's own test set; None before it."""
    trained_round: int = 0
    """The round of that training; 0 if there was none."""
    epsilon: float | None = None
    """The privacy cost of all posts of this peer so far, from its privacy ledger; None if there is no epsilon."""
    training_s: float = 0.0
    """Total seconds of training."""
    mined_s: float = 0.0
    """Total seconds of the finished searches for nonces."""
    validation_s: float = 0.0
    """Total seconds in the state machine."""
    failure: str = ""
    """Why the last phase that asked for a contribution got none; empty if it got one."""
    is_failing: bool = False
    """Whether that is a fault, and not demanded by the method or the member's privacy budget."""
    training_failures: int = 0
    """Total number of contributions that were lost to faults."""
    stands_since_ms: int | None = None
    """When the federation came to a standstill, in milliseconds since 1970; None if it goes on."""
    stands_since_s: float = 0.0
    """The same time by the monotonic clock, which nobody sets; meaningless while the federation goes on."""
    refused: dict[str, int] = field(default_factory=dict)
    """Numbers of refused messages and blamed statements, by the name of the error."""
    notices: deque[Notice] = field(default_factory=lambda: deque(maxlen=NOTICES_MAX))
    """Notices to the operator, oldest first."""

    def refuse(self, error: Refused) -> None:
        """Count a refusal."""
        name = type(error).__name__
        self.refused[name] = self.refused.get(name, 0) + 1

    def notice(self, notice: Notice) -> None:
        """Remember a notice to the operator."""
        self.notices.append(notice)

    def train(self, round_number: int, accuracy: float | None, epsilon: float | None) -> None:
        """Note that a contribution was computed; a measurement that is None leaves the one before."""
        self.failure, self.is_failing = "", False
        self.accuracy = self.accuracy if accuracy is None else accuracy
        self.epsilon = self.epsilon if epsilon is None else epsilon
        self.trained_round = round_number

    def fail(self, reason: str, *, is_fault: bool) -> None:
        """Note that there is no contribution."""
        self.failure, self.is_failing = reason, is_fault
        self.training_failures += is_fault

    def stand(self, *, stands: bool) -> None:
        """Note whether the federation stands still now."""
        if not stands:
            self.stands_since_ms = None
        elif self.stands_since_ms is None:
            self.stands_since_ms, self.stands_since_s = time.time_ns() // 1_000_000, time.monotonic()

    def standing_s(self) -> float:
        """Seconds since the federation stands still, whatever was done to the calendar's clock; 0 while it goes on."""
        return 0.0 if self.stands_since_ms is None else time.monotonic() - self.stands_since_s

    def running_s(self) -> float:
        """Seconds since the service began."""
        return time.monotonic() - self.started_s

    def mining_s(self) -> float:
        """Total seconds of searching for nonces."""
        return self.mined_s + self.current_mining_s()

    def current_mining_s(self) -> float:
        """Seconds of the current search; 0 if there is none."""
        return 0.0 if self.mining_since_s is None else time.monotonic() - self.mining_since_s

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Note that inside, something is written to the disk; one write at a time."""
        self.writing_since_s = time.monotonic()
        try:
            yield
        finally:
            self.writing_since_s = None

    def slow_write_s(self) -> float:
        """Seconds of the write to the disk that lasts, if it takes long; otherwise 0."""
        lasts_s = 0.0 if self.writing_since_s is None else time.monotonic() - self.writing_since_s
        return lasts_s if lasts_s >= SLOW_WRITE_S else 0.0

    def mine(self, is_mining: bool) -> None:
        """Note that a search has begun or ended."""
        self.mined_s = self.mining_s()
        self.mining_since_s = time.monotonic() if is_mining else None
