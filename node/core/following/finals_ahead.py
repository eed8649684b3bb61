"""Final blocks that came before those below them: kept until it is their turn."""

from collections.abc import Container, Iterator
from dataclasses import dataclass

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.exceptions import OutOfWindow, Refused
from fedchain.chain.far_final import validate_extent
from fedchain.chain.state import State
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.node.core.context import Context
from fedchain.node.core.effects import Refuse

AHEAD_MAX = 32
"""Blocks above the head that are kept."""


@dataclass(frozen=True, slots=True)
class HandedOut:
    """A final block, as a peer says."""

    peer: PublicKey
    """32 bytes: who handed it out."""
    block: Block
    certificate: Certificate


class FinalsAhead:
    """Blocks near the head, one of each peer and height. Whether they are final is judged when their turn comes."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._kept: dict[int, dict[PublicKey, HandedOut]] = {}  # by height, and by who handed it out

    def keep(self, found: HandedOut) -> None:
        """Keep a block that its peer was asked for. Raises OutOfWindow and InvalidBlock."""
        context, height = self._context, found.block.header.height
        if not 0 < height - context.head.height <= AHEAD_MAX:
            raise OutOfWindow("final block", f"height {height} found, our head is {context.head.height}")
        validate_extent(context.head.roster, found.block, found.certificate)  # the rest when its turn comes
        self._kept.setdefault(height, {})[found.peer] = found

    def next(self, state: State, unready: Container[Hash] = ()) -> tuple[HandedOut, State] | None:
        """Take the first of the blocks on ``state`` that is final, with the state after it.

        A peer that handed out one that is not final is to blame. ``unready`` are blocks that are not to be judged yet.
        """
        context, kept = self._context, self._kept.get(state.height + 1, {})
        for found in list(kept.values()):
            if found.block.hash in unready:
                continue
            del kept[found.peer]
            try:
                after = context.checks.final(state, found.block, found.certificate)
            except Refused as error:
                context.catch_up.failed(found.peer, context.now.ms)
                context.emit(Refuse(found.peer, error))
            else:
                self._settle(after)
                context.catch_up.delivered(found.peer, after.height, context.now.ms)
                return found, after
        return None

    def forget_up_to(self, height: int) -> None:
        """Our head is at ``height``."""
        self._settle(self._context.head)
        self._kept = {above: items for above, items in self._kept.items() if above > height}

    def sizes(self) -> Iterator[tuple[str, int]]:
        """How many of each kind are held, by the names that `Node.sizes` gives them."""
        yield "blocks ahead", sum(map(len, self._kept.values()))

    def _settle(self, state: State) -> None:
        """A block is final: other peers that handed it out have delivered, too, and other blocks are not needed."""
        for other in self._kept.pop(state.height, {}).values():
            if other.block.hash == state.block_hash:
                self._context.catch_up.delivered(other.peer, state.height, self._context.now.ms)
