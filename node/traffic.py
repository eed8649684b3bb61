"""What a network counts, for metrics."""

from typing import Protocol


class Traffic(Protocol):
    """Counters of one network."""

    messages_in: int
    messages_out: int
    bytes_in: int
    bytes_out: int
    dropped: int
    """Messages that did not fit into a queue, or came over a peer's budget."""

    def bans(self) -> int:
        """Members that are kept out now."""
