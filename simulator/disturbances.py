"""What a scenario lets go wrong: faults, wrong clocks, and peers that do not follow the protocol."""

from collections.abc import Mapping
from dataclasses import dataclass, field

FAULT_KINDS = ("crash", "kill", "restart", "partition", "heal", "slow")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that goes wrong, or right again, at a given time."""

    at_s: float
    """When, in virtual seconds."""
    kind: str
    """crash, kill, restart, slow (of ``peers``); partition (``peers`` against the others); heal.

    A crash is between two events, a kill between two effects of one: after something was stored and before it was sent.
    """
    peers: tuple[int, ...] = ()
    """Peer numbers, from 0."""
    factor: float = 1.0
    """For slow: how many times longer the peers' training and mining take; 1 ends it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Clocks on the wall that are wrong. What several tables say of a peer adds up; timeouts use another clock."""

    peers: tuple[int, ...]
    """Peer numbers, from 0."""
    offset_s: float = 0.0
    """How far ahead the clocks are, in seconds; negative: behind."""
    drift: float = 0.0
    """Seconds that they gain in each virtual second."""
    at_s: float = 0.0
    """From when on, in virtual seconds: later than 0 it is a jump."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traitors:
    """Peers that do not follow the protocol. All traitors of a scenario know each other's keys."""

    behaviour: str
    """What they do: one of the behaviours in ``fedchain.simulator.adversaries``."""
    peers: tuple[int, ...]
    """Peer numbers, from 0."""
    parameters: Mapping[str, float] = field(default_factory=dict)
    """What can be set of the behaviour."""
