"""The lookout: what this node sees at the open height, until a block of it is final."""

from collections.abc import Sequence

from fedchain.crypto.keys import PublicKey
from fedchain.node.core.effects import Effect
from fedchain.node.core.events import Event
from fedchain.node.core.node import Node
from fedchain.node.shell.sightings import Sightings, observe
from fedchain.node.shell.timeline import SeenBlock


class Lookout:
    """Keeps the sightings of one node.

    Args:
        node: the node.
        me: its key.
        now_ms: the current time in milliseconds, by a clock that nobody sets, as in all calls.
    """

    def __init__(self, node: Node, me: PublicKey, now_ms: int) -> None:
        self._node, self._me = node, me
        self.sightings = Sightings(node.head.height + 1, now_ms)
        """Those of the open height."""

    def on_event(self, event: Event, effects: Sequence[Effect], now_ms: int) -> None:
        """The node has handled an event."""
        number = self._node.head.roster.seats.get(self._me)
        observe(self._of, number, self._node, event, effects, now_ms)

    def on_head(self, now_ms: int) -> SeenBlock | None:
        """The head has moved: end the sightings of its block and return them; None if there are none."""
        head, before, settled, seen = self._node.head, self.sightings, self._node.ledger.settled, None
        if settled is not None and head.height == before.height:
            seen = before.end(head.block_hash, settled.block.senders, now_ms)
        self.sightings = Sightings(head.height + 1, now_ms)
        return seen

    def _of(self, height: int) -> Sightings | None:
        return self.sightings if height == self.sightings.height else None
