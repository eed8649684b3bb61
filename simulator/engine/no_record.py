"""Where nothing is kept of a run: it answers as the record of a run that has just begun, and remembers nothing."""

from collections.abc import Mapping, Sequence

from fedchain.simulator.engine.measurement import Span
from fedchain.simulator.engine.sealing import Seal


class NoRecord:
    """See :class:`fedchain.simulator.resuming.record.Record`."""

    rounds: Sequence[bytes] = ()
    resumptions = 0
    rounds_before = 0

    def remembering(self, seal: Seal) -> Seal:
        """The search for nonces as it is."""
        return seal

    def close_round(self, round_number: int, trace: bytes, timeline: Mapping[tuple[int, int], Span]) -> None:
        """Nothing is written, and nothing is there to be compared with."""

    def close(self) -> None:
        """Nothing was opened."""

    def delete(self) -> None:
        """Nothing is there."""


NO_RECORD = NoRecord()
"""The one that all runs without a record have."""
