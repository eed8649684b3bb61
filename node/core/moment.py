"""A moment, on two clocks."""

from typing import NamedTuple


class Moment(NamedTuple):
    """When something happens."""

    ms: int
    """The monotonic clock, in milliseconds since any start: what all durations are measured by."""
    clock_ms: int
    """The clock on the wall, in milliseconds since the Unix epoch: what a precommit shows, and nothing depends on."""
