"""The record of a run that keeps none: it answers like that of a run that has just begun, and stores nothing."""

from collections.abc import Mapping, Sequence

from fedchain.simulator.engine.measurement import Span
from fedchain.simulator.engine.sealing import Seal


class NoRecord:
    """See :class:`fedchain.simulator.resuming.record.Record`."""

    rounds: Sequence[bytes] = ()
    resumptions = 0
    rounds_before = 0

    def remembering(self, seal: Seal) -> Seal:
        """The search for nonces, unchanged."""
        return seal

    def close_round(self, round_number: int, trace: bytes, timeline: Mapping[tuple[int, int], Span]) -> None:
        """Do nothing: there is nothing to compare with."""

    def close(self) -> None:
        """Do nothing: no file was opened."""

    def delete(self) -> None:
        """Do nothing: there are no files."""


NO_RECORD = NoRecord()
"""The record of all runs that keep none."""
