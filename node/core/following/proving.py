"""Proving: which light blocks a node keeps where members change, and which ones it hands out."""

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.light.held import held_light_block, light_block_between
from fedchain.chain.light.light_block import LightBlock
from fedchain.chain.membership.change import CHANGES_VERSION
from fedchain.chain.state import State, genesis_state
from fedchain.network.messages import GetLight, LightMessage
from fedchain.node.core.context import Context


class Proving:
    """Light blocks of this node's own chain."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def answer(self, question: GetLight) -> LightMessage | None:
        """The answer to a peer. It is read, not computed: four records at most, whatever is asked for.

        None where members are the same for ever: nobody asks there.
        """
        context, height = self._context, question.height
        if context.genesis.version < CHANGES_VERSION:
            return None
        gap = question.low, question.high
        return LightMessage(height, light_block_between(context.genesis, height, gap, self._final, context.storage))

    def of_head(self) -> LightBlock | None:
        """The light block of our head; None if there is no head, or the block below it is not held."""
        settled = self._context.ledger.settled
        if settled is None:
            return None
        light = held_light_block(self._context.genesis, self._context.head.height, self._final, self._context.storage)
        return light or light_block_of(self._context, settled.block, settled.certificate, settled.before)

    def _final(self, height: int) -> tuple[Block, Certificate] | None:
        return next(self._context.ledger.proven(height), None) if height > 0 else None


def newly_decided(context: Context, block: Block, certificate: Certificate, before: State) -> tuple[LightBlock, ...]:
    """The light block of a final block on our head, if another set decides it than the one below; it is to be kept."""
    if not before.records or before.height == 0:
        return ()
    named, last = before_last_named(context), context.ledger.settled
    if last is None or last.block.header.members_root == named:
        return ()
    light = light_block_of(context, block, certificate, before)
    return () if light is None else (light,)


def before_last_named(context: Context) -> bytes:
    """Root of the set that decided our head: the header below names it, or the founding document."""
    height = context.head.height
    found = context.ledger.final(height - 1)
    settled = context.ledger.settled
    assert settled is not None, "there is a head"
    if found is not None:
        return found[0].header.members_root
    before = genesis_state(context.genesis) if height == 1 else settled.before
    return before.member_set.root


def light_block_of(context: Context, block: Block, certificate: Certificate, before: State) -> LightBlock | None:
    """The light block of a block that stands on a state; None if the block below is not held."""
    found = context.ledger.final(before.height)
    if found is None and before.height > 0:
        return None
    below = None if found is None else found[0].header
    return LightBlock(context.genesis.chain_id, block.header, certificate, members=before.member_set, below=below)
