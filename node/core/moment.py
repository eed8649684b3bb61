"""A moment, on two clocks."""

from typing import NamedTuple


class Moment(NamedTuple):
    """The time of an event."""

    ms: int
    """The monotonic clock, in milliseconds since an arbitrary start; all durations are measured by it."""
    clock_ms: int
    """The wall clock, in milliseconds since the Unix epoch. Precommits show it, and nothing depends on it."""
