"""Disturbances of a scenario: faults, wrong clocks, and peers that do not follow the protocol."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from fedchain.files.tables import Range

FaultKind = Literal["crash", "kill", "restart", "partition", "heal", "slow"]

Time = Annotated[float, Range(0, 1e9)]
"""Virtual seconds since the run began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that goes wrong, or right again, at a given time."""

    at_s: Time
    """Time of the fault, in virtual seconds."""
    kind: FaultKind
    """crash, kill, restart, slow (of ``peers``); partition (``peers`` against the others); heal.

    A crash comes between two events. A kill comes between two effects of one event: after a write and before a send.
    """
    peers: tuple[int, ...] = ()
    """Peer numbers, from 0."""
    factor: Annotated[float, Range(0.001, 1e6)] = 1.0
    """For slow: factor by which the peers' training and mining take longer; 1 ends it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Wall clocks that are wrong. Errors from several tables add up for a peer; timeouts use another clock."""

    peers: tuple[int, ...]
    """Peer numbers, from 0."""
    offset_s: Annotated[float, Range(-1e8, 1e8)] = 0.0
    """Seconds by which the clocks are ahead; negative if they are behind."""
    drift: Annotated[float, Range(-1, 1e3)] = 0.0
    """Seconds that they gain in each virtual second."""
    at_s: Time = 0.0
    """Time from which the clocks are wrong, in virtual seconds; later than 0 the clocks jump."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traitors:
    """Peers that do not follow the protocol. All traitors of a scenario know each other's keys."""

    behaviour: str
    """Their behaviour: one of those in ``fedchain.simulator.adversaries``."""
    peers: tuple[int, ...]
    """Peer numbers, from 0."""
    parameters: Mapping[str, float] = field(default_factory=dict)
    """Parameters of the behaviour, by name."""
