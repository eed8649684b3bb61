"""Activity: what a running node is doing and has noticed, for people and for metrics."""

import time
from collections import deque
from dataclasses import dataclass, field

from fedchain.chain.exceptions import Refused
from fedchain.node.core.notices import Notice

NOTICES_MAX = 32
"""Notices that are remembered; the oldest goes."""


@dataclass(slots=True)
class Activity:
    """Counters and the last events of one node."""

    started_s: float = field(default_factory=time.monotonic)
    """When the node's service began, by the monotonic clock."""
    training: bool = False
    """Whether a contribution is being computed."""
    mining_since_s: float | None = None
    """When the search for a nonce began, by the monotonic clock; None: nothing is being mined."""
    accuracy: float | None = None
    """Of the model after its last training, on the peer's own test set; a fraction."""
    trained_round: int = 0
    """The round of that training; 0: there was none."""
    epsilon: float | None = None
    """The cost of all posts of this peer so far, as its privacy ledger has it; None where there is no epsilon."""
    training_s: float = 0.0
    """Seconds spent training, in all."""
    mined_s: float = 0.0
    """Seconds of the searches that ended, in all."""
    validation_s: float = 0.0
    """Seconds spent in the state machine, in all."""
    failure: str = ""
    """Why there is no contribution of the last phase that asked for one; empty when there is."""
    is_failing: bool = False
    """Whether that is a fault, and not what the method or the member's privacy budget asks for."""
    training_failures: int = 0
    """Contributions that were lost to a fault, in all."""
    refused: dict[str, int] = field(default_factory=dict)
    """What was not taken, by the name of the error."""
    notices: deque[Notice] = field(default_factory=lambda: deque(maxlen=NOTICES_MAX))
    """What the operator was told, oldest first."""

    def refuse(self, error: Refused) -> None:
        """Something was not taken."""
        name = type(error).__name__
        self.refused[name] = self.refused.get(name, 0) + 1

    def notice(self, notice: Notice) -> None:
        """The operator was told something."""
        self.notices.append(notice)

    def fail(self, reason: str, *, is_fault: bool) -> None:
        """There is no contribution."""
        self.failure, self.is_failing = reason, is_fault
        self.training_failures += is_fault

    def running_s(self) -> float:
        """Seconds since the service began."""
        return time.monotonic() - self.started_s

    def mining_s(self) -> float:
        """Seconds spent searching nonces, in all."""
        return self.mined_s + self.current_mining_s()

    def current_mining_s(self) -> float:
        """Seconds spent in the search that goes on now; 0 if none does."""
        return 0.0 if self.mining_since_s is None else time.monotonic() - self.mining_since_s

    def mine(self, is_mining: bool) -> None:
        """A search has begun or ended."""
        self.mined_s = self.mining_s()
        self.mining_since_s = time.monotonic() if is_mining else None
