"""The witness: observations of each block by all honest peers, before it was final, as nodes record them one by one."""

from collections.abc import Sequence, Set

from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.node.core.effects import Contribute, Effect
from fedchain.node.core.events import Contributed, Event
from fedchain.node.core.node import Node
from fedchain.node.shell.sightings import Sightings, observe
from fedchain.node.shell.timeline import SeenBlock


class Witness:
    """Observes nodes after each of their events. Times are virtual, in milliseconds.

    They count from the moment at which the first peer had the block before, so they are the same for all peers.
    """

    def __init__(self) -> None:
        self._heights = [Sightings(1, 0)]  # from height 1 to the open one
        # Each height's final block, whose posts it counts, and when it was first final.
        self._finals: list[tuple[Hash, Set[PublicKey], int] | None] = []
        self._told: dict[int, SeenBlock | None] = {}  # by height, what nobody has added to since
        self._began: dict[int, tuple[int, int]] = {}  # height and time of the last training, by peer

    def look(self, number: int, node: Node, event: Event, effects: Sequence[Effect], now_ms: int) -> None:
        """A peer's node handled an event with these effects."""
        observe(self._of, number, node, event, effects, now_ms)
        open_height = node.head.height + 1
        height, began_ms = self._began.pop(number, (0, 0)) if isinstance(event, Contributed) else (0, 0)
        if height == open_height and (found := self._of(height)) is not None:
            found.train(now_ms - began_ms)
        if any(isinstance(effect, Contribute) for effect in effects):
            self._began[number] = open_height, now_ms
        while len(self._heights) < open_height:
            final = node.ledger.final(len(self._heights))
            self._finals.append(None if final is None else (final[0].hash, final[0].senders, now_ms))
            self._heights.append(Sightings(len(self._heights) + 1, now_ms))

    def valid(self, height: int) -> frozenset[Hash]:
        """Blocks for a height that some honest peer found valid."""
        found = self._of(height)
        return frozenset() if found is None else found.valid

    def refused(self, height: int) -> frozenset[Hash]:
        """Blocks for a height that some honest peer refused, and none found valid."""
        found = self._of(height)
        return frozenset() if found is None else found.refused

    def blocks(self) -> list[SeenBlock]:
        """Observations of the final blocks, by ascending height."""
        for height, (sightings, final) in enumerate(zip(self._heights, self._finals, strict=False), 1):
            if height not in self._told:
                self._told[height] = None if final is None else sightings.end(*final)
        return [block for _, block in sorted(self._told.items()) if block is not None]

    def _of(self, height: int) -> Sightings | None:
        """The sightings of a height, to be added to."""
        self._told.pop(height, None)
        return self._heights[height - 1] if 0 < height <= len(self._heights) else None
