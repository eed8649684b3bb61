"""A source: a provider that is sending parts of one content, and how it keeps up. Pure; no I/O."""

from dataclasses import dataclass, field

from fedchain.network.assembly import Assembly

STALL_MS = 2_000
"""How long an answer may take. A peer that has sent none of it by then makes way for others, or is asked again.
(Bitcoin: block stalling timeout)"""

RATE_MIN = 256 * 2**10
"""Bytes per second below which a provider makes way for another one."""

RATE_WINDOW_MS = 4_000
"""Time over which that is measured."""

TURN_MS = 8_000
"""Time after which a provider that sends a copy of its own makes way, unless it has sent the most."""


@dataclass(slots=True)
class Source:
    """A provider that is being asked for parts of one content.

    Times double, and the lowest rate halves, with each step of ``patience``.
    """

    parts: Assembly
    """Where its chunks go."""
    begun_ms: int
    """When it became one."""
    owed: set[int] = field(default_factory=set)
    """Numbers of chunks that it was asked for and has not sent."""
    heard_ms: int = 0
    """When its last chunk came, or it was asked while it owed none."""
    since_ms: int = 0
    """When the measurement of its rate began."""
    arrived: int = 0
    """Bytes that came since then."""

    def begin(self, now_ms: int) -> None:
        """It owed nothing until now."""
        self.heard_ms, self.since_ms, self.arrived = now_ms, now_ms, 0

    def note_arrival(self, size: int, now_ms: int) -> None:
        """So many bytes of it have come."""
        self.heard_ms = now_ms
        self.arrived += size

    def is_silent(self, now_ms: int, patience: int) -> bool:
        """Whether nothing has come for too long."""
        return now_ms - self.heard_ms >= STALL_MS << patience

    def is_slow(self, now_ms: int, patience: int) -> bool:
        """Whether too little has come."""
        passed_ms = now_ms - self.since_ms
        return self.is_measured(now_ms, patience) and self.arrived * 1_000 < (RATE_MIN >> patience) * passed_ms

    def is_measured(self, now_ms: int, patience: int) -> bool:
        """Whether its rate was measured long enough."""
        return now_ms - self.since_ms >= RATE_WINDOW_MS << patience

    def measure_again(self, now_ms: int) -> None:
        """Begin to measure its rate."""
        self.since_ms, self.arrived = now_ms, 0

    def has_had_turn(self, now_ms: int, patience: int) -> bool:
        """Whether it was asked long ago, however much has come."""
        return now_ms - self.begun_ms >= TURN_MS << patience
