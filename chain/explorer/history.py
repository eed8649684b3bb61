"""The stored chain as people ask for it: each block with the certificate that the chain knows it by, and its time.

A block says nothing about its own time. The precommits that make it final do, and which of them count, the next block
says that carries them. Whole chains are walked block by block and never held.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from fedchain.chain.block import Block, Header
from fedchain.chain.certificate import Certificate
from fedchain.chain.difficulty import is_canonical_bits
from fedchain.chain.encoding import decode, encode, expect_record
from fedchain.chain.genesis import Genesis
from fedchain.chain.state import State, apply_block, block_time_ms
from fedchain.chain.storage.sqlite import Store
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.signatures import PublicKey


@dataclass(frozen=True, slots=True)
class Entry:
    """A final block in its place."""

    block: Block
    certificate: Certificate
    """Precommits that made it final: those that the next block carries, or of the head, those that are held."""
    before: State | None
    """What it stands on; None where no stored state leads there."""
    time_ms: int
    """Its time, in milliseconds since the Unix epoch."""


def walk(store: Store, first: int, last: int) -> Iterator[Entry]:
    """The final blocks from one height to another, oldest first; those that are not held are left out."""
    before, found = store.state_before(first), store.final(first)
    for height in range(first, last + 1):
        following = store.final(height + 1)
        if before is None:
            before = store.stored_state(height)
        after = None
        if found is not None:
            block, certificate = found
            if following is not None and _carries(following[0], block):
                certificate = following[0].certificate or certificate
            after = follow(store.genesis, before, block)
            time_ms = certificate.clock_ms if after is None else block_time_ms(after, certificate)
            yield Entry(block, certificate, before, time_ms)
        before, found = after, following


def follow(genesis: Genesis, before: State | None, block: Block) -> State | None:
    """The state after ``block``, whether it is valid or not; None where it does not stand on ``before``."""
    if before is None or block.header.parent_hash != before.block_hash or not is_canonical_bits(block.header.bits):
        return None
    return apply_block(genesis, before, block)


@dataclass(frozen=True, slots=True)
class Skimmed:
    """What of a block is counted over the whole chain, read without building the rest."""

    header: Header
    """What the proof of work seals."""
    posts: list[list[Any]]
    """The canonical fields of each post."""
    clocks_ms: dict[PublicKey, int]
    """The voters of the certificate that is held of it, and their clocks in milliseconds since the Unix epoch."""


def skim(store: Store, heights: Iterable[int]) -> Iterator[Skimmed]:
    """The final blocks at ``heights``, several times as fast as :func:`walk`; those that are not held are left out.

    Raises InvalidEncoding.
    """
    post_kinds, vote_kinds = (int, int, bytes, bytes, int, bytes), (bytes, int, int, bytes)
    for height in heights:
        found = store.encoded(height)
        if found is None:
            continue
        block, certificate = (decode(data, len(data)) for data in found)
        header, _, posts, _, _ = expect_record(block, "block", (list, bytes, list, list, list))
        votes = expect_record(certificate, "certificate", (int, int, int, bytes, list))[-1]
        entries = (expect_record(vote, "certificate vote", vote_kinds) for vote in votes)
        yield Skimmed(
            Header.from_record(header),
            [expect_record(post, "transaction", post_kinds) for post in posts],
            {voter: clock_ms for voter, clock_ms, _, _ in entries},
        )


def post_hash(fields: list[Any]) -> Hash:
    """The hash of a post from its canonical fields; see ``Transaction.hash``."""
    return sha256(encode(fields))


def _carries(block: Block, parent: Block) -> bool:
    return block.header.parent_hash == parent.hash
