"""Finals ahead: final blocks that came before the ones below them are kept until their turn."""

from collections.abc import Container, Iterator
from dataclasses import dataclass

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.exceptions import OutOfWindow, Refused
from fedchain.chain.light.far_final import validate_extent
from fedchain.chain.membership.change import CHANGES_MAX
from fedchain.chain.state import State
from fedchain.chain.transition import judge_final
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.node.core.context import Context
from fedchain.node.core.effects import Refuse

AHEAD_MAX = 32
"""Largest height above the head at which blocks are kept."""


@dataclass(frozen=True, slots=True)
class HandedOut:
    """A block that a peer handed out as final."""

    peer: PublicKey
    """32 bytes: the peer that handed it out."""
    block: Block
    certificate: Certificate


class FinalsAhead:
    """Blocks near the head, one for each peer and height. Whether they are final is judged when their turn comes."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._kept: dict[int, dict[PublicKey, HandedOut]] = {}  # by height and peer

    def keep(self, found: HandedOut) -> None:
        """Keep a block that its peer was asked for. Raises OutOfWindow and InvalidBlock."""
        context, height = self._context, found.block.header.height
        if not 0 < height - context.head.height <= AHEAD_MAX:
            raise OutOfWindow("final block", f"height {height} found, our head is {context.head.height}")
        # Each block between may have let so many members join.
        newcomers = CHANGES_MAX * (height - context.head.height - 1) if context.head.records else 0
        # The rest is judged when its turn comes.
        validate_extent(context.genesis, context.head.roster, found.block, found.certificate, newcomers)
        self._kept.setdefault(height, {})[found.peer] = found

    def next(self, state: State, unready: Container[Hash] = ()) -> tuple[HandedOut, State] | None:
        """Take the first final one of the blocks on ``state``, with the state after it; None if there is none.

        A peer that handed out a block that is not final is blamed. Blocks in ``unready`` are not to be judged yet.
        """
        context, kept = self._context, self._kept.get(state.height + 1, {})
        for found in list(kept.values()):
            if found.block.hash in unready:
                continue
            del kept[found.peer]
            try:
                after = judge_final(context.genesis, state, found.block, found.certificate, None, context.signatures)
            except Refused as error:
                context.catch_up.failed(found.peer, context.now.ms)
                context.emit(Refuse(found.peer, error))
            else:
                self._settle(after)
                context.catch_up.delivered(found.peer, after.height, context.now.ms)
                return found, after
        return None

    def forget_up_to(self, height: int) -> None:
        """Our head is at ``height``: drop the blocks up to it."""
        self._settle(self._context.head)
        self._kept = {above: items for above, items in self._kept.items() if above > height}

    def sizes(self) -> Iterator[tuple[str, int]]:
        """Numbers of held items, by the names that `Node.sizes` gives them."""
        yield "blocks ahead", sum(map(len, self._kept.values()))

    def _settle(self, state: State) -> None:
        """Drop the blocks of a decided height; peers that handed out the final one have delivered, too."""
        for other in self._kept.pop(state.height, {}).values():
            if other.block.hash == state.block_hash:
                self._context.catch_up.delivered(other.peer, state.height, self._context.now.ms)
