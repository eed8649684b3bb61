"""The witness: one peer's observations of each block before it was final, as a node records them with its chain."""

from collections.abc import Sequence

from fedchain.chain.state import State
from fedchain.node.core.effects import Contribute, Effect
from fedchain.node.core.events import Contributed, Event
from fedchain.node.core.node import Node
from fedchain.node.shell.timeline import SeenBlock, Watch


class Witness:
    """Observes a peer's node after each of its events. Times are virtual, in milliseconds."""

    def __init__(self) -> None:
        self.blocks: list[SeenBlock] = []
        """Observations by ascending height."""
        self._head: State | None = None
        self._watch = Watch(0)
        self._began_training_ms = 0

    def look(self, node: Node, event: Event, effects: Sequence[Effect], now_ms: int) -> None:
        """The node handled an event with these effects."""
        open_phase = None if self._head is None else (self._head.round, self._head.phase)
        if isinstance(event, Contributed) and (event.round, event.phase) == open_phase:
            self._watch.train(now_ms - self._began_training_ms)
        if any(isinstance(effect, Contribute) for effect in effects):
            self._began_training_ms = now_ms
        if node.head is not self._head:
            self._end(node.head, now_ms)
        self._watch.look(node.ledger.entries.values())

    def _end(self, head: State, now_ms: int) -> None:
        """The head has moved, or the peer has restarted, perhaps with the same head."""
        old_height = self._head.height if self._head is not None else 0
        seen = self._watch.end(head.height, head.block_hash, now_ms) if head.height == old_height + 1 else None
        if seen is not None:
            self.blocks.append(seen)
        self._head, self._watch = head, Watch(now_ms)
