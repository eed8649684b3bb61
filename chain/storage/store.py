"""What a node keeps across restarts: blocks, votes, its own posts, and content-addressed bytes.

Everything else, the tree, the head and the knowledge, follows from these records. ``MemoryStore`` serves simulated
peers and survives their simulated crashes; ``Store`` in ``sqlite.py`` is a folder on disk.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from fedchain.chain.block import Block
from fedchain.chain.difficulty import is_canonical_bits
from fedchain.chain.exceptions import LimitReached, StoreCorrupt
from fedchain.chain.fork_choice import BlockTree
from fedchain.chain.genesis import Genesis
from fedchain.chain.transaction import Transaction
from fedchain.chain.vote import Vote
from fedchain.crypto.hashing import Hash


@dataclass(frozen=True, slots=True)
class Content:
    """A payload or knowledge, kept under its hash."""

    hash: Hash
    """32 bytes: SHA-256 of ``data``."""
    data: bytes = field(repr=False)
    """The bytes themselves."""


Record = Block | Vote | Transaction | Content
"""What can be appended. A ``Transaction`` is the node's own post: after a crash the same bytes are sent again."""


PooledRecord = TypeVar("PooledRecord", Block, Vote)
"""What many storages have in common: everybody's blocks and votes."""


class Storage(Protocol):
    """Where a node persists. It does not judge validity: what is appended must have been validated."""

    def append(self, records: Sequence[Record]) -> None:
        """Keep all of ``records`` or none; they are durable on return. A known record changes nothing.

        Raises StoreError if the disk refuses.
        """

    def records(self) -> Iterator[Block | Vote | Transaction]:
        """Blocks by height, so that parents come before their children; then votes, then own posts.

        Raises StoreCorrupt at the first record that is not what was appended.
        """

    def content(self, content_hash: Hash) -> bytes | None:
        """Bytes by their hash, None where they are not held. Raises StoreCorrupt if they were altered."""

    def content_part(self, content_hash: Hash, start: int, size: int) -> bytes | None:
        """Up to ``size`` bytes of a content from ``start`` on; otherwise as :meth:`content`."""

    def retain(self, needed: Collection[Hash]) -> None:
        """Drop every content that is not ``needed``; the other records stay. Raises StoreError."""


def load_tree(genesis: Genesis, records: Iterable[Record]) -> BlockTree:
    """The tree that a node had when it appended the last of its stored ``records``. Nothing is validated again.

    Raises:
        StoreCorrupt: a record cannot be read, or a block has no parent.
    """
    tree = BlockTree(genesis)
    fill_tree(tree, records)
    return tree


def fill_tree(tree: BlockTree, records: Iterable[Record]) -> None:
    """Put stored ``records`` into an empty tree, as :func:`load_tree` does."""
    blocks, votes = [], defaultdict[Hash, list[Vote]](list)
    for record in records:
        if isinstance(record, Block):
            blocks.append(record)
        elif isinstance(record, Vote):
            votes[record.block_hash].append(record)
    stored = {tree.root, *(block.hash for block in blocks)}
    for block in blocks:
        header = block.header
        # A difficulty that no target has could cost any amount of memory to expand.
        if header.parent_hash not in stored or not is_canonical_bits(header.bits):
            parent, bits = header.parent_hash.hex(), f"{header.bits:#x}"
            raise StoreCorrupt(f"block {block.hash.hex()} follows nothing: parent {parent}, bits {bits}")
        # The tree forgets unaccepted blocks beyond its limits; the disk does not.
        if header.parent_hash not in tree:
            continue
        try:
            tree.add_block(block)
        except LimitReached:
            continue
        # Votes at once: an accepted block no longer counts against the bound on its unaccepted siblings.
        for vote in votes[block.hash]:
            tree.add_vote(vote)


class MemoryStore:
    """A storage without a disk. It survives a simulated crash because it outlives the node.

    Args:
        pool: blocks and votes of all storages of a simulation, which then hold one copy of what is equal.
    """

    def __init__(self, pool: dict[Hash, Any] | None = None) -> None:
        self._pool = {} if pool is None else pool
        self._blocks: dict[Hash, Block] = {}
        self._votes: dict[Hash, Vote] = {}
        self._posts: dict[Hash, Transaction] = {}
        self._contents: dict[Hash, bytes] = {}

    def append(self, records: Sequence[Record]) -> None:
        """See :class:`Storage`."""
        for record in records:
            key = record.hash
            if isinstance(record, Block):
                self._blocks.setdefault(key, self._pooled(key, record))
            elif isinstance(record, Vote):
                self._votes.setdefault(key, self._pooled(key, record))
            elif isinstance(record, Transaction):
                self._posts.setdefault(key, record)
            else:
                self._contents.setdefault(key, record.data)

    def _pooled(self, key: Hash, record: PooledRecord) -> PooledRecord:
        """The copy that others hold; a block of the same hash may still have another body, which is its own."""
        known: PooledRecord = self._pool.setdefault(key, record)
        return known if known == record else record

    def records(self) -> Iterator[Block | Vote | Transaction]:
        """See :class:`Storage`."""
        yield from sorted(self._blocks.values(), key=lambda block: block.header.height)
        yield from tuple(self._votes.values())
        yield from tuple(self._posts.values())

    def content(self, content_hash: Hash) -> bytes | None:
        """See :class:`Storage`."""
        return self._contents.get(content_hash)

    def content_part(self, content_hash: Hash, start: int, size: int) -> bytes | None:
        """See :class:`Storage`."""
        data = self._contents.get(content_hash)
        return None if data is None else data[start : start + size]

    def retain(self, needed: Collection[Hash]) -> None:
        """See :class:`Storage`."""
        self._contents = {item: data for item, data in self._contents.items() if item in needed}
