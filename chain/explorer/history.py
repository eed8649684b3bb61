"""The stored chain for readers: each block with the certificate that counts on the chain, and its time.

A block does not hold its own time. The precommits that make it final do, and those that the next block carries are the
ones that count. A walk takes one block after the other and never holds the whole chain in memory; it computes no state.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from fedchain.chain.applying import apply_unjudged
from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.difficulty import is_canonical_bits
from fedchain.chain.genesis import Genesis
from fedchain.chain.state import State
from fedchain.chain.storage.sqlite import Store


@dataclass(frozen=True, slots=True)
class Entry:
    """A final block in its place."""

    block: Block
    certificate: Certificate
    """Precommits that made it final: those that the next block carries; for the head, those that are held."""
    time_ms: int
    """Its time, in milliseconds since the Unix epoch; if no stored state leads there, its certificate's clock."""


def walk(store: Store, first: int, last: int) -> Iterator[Entry]:
    """The final blocks from one height to another, oldest first; those that are not held are left out."""
    before_ms, found = None, store.final(first)
    for height in range(first, last + 1):
        following = store.final(height + 1)
        if found is None:
            before_ms = None
        else:
            block, certificate = found
            if following is not None and _carries(following[0], block):
                certificate = following[0].certificate or certificate
            if before_ms is None:
                before_ms = store.time_before(height)
            time_ms = certificate.clock_ms if before_ms is None else max(before_ms + 1, certificate.clock_ms)
            yield Entry(block, certificate, time_ms)
            before_ms = None if before_ms is None else time_ms
        found = following


def follow(genesis: Genesis, before: State | None, block: Block) -> State | None:
    """The state after ``block``, valid or not; None if it does not stand on ``before``, or no state follows."""
    if before is None or block.header.parent_hash != before.block_hash or not is_canonical_bits(block.header.bits):
        return None
    return apply_unjudged(genesis, before, block)


def _carries(block: Block, parent: Block) -> bool:
    return block.header.parent_hash == parent.hash
