"""Retention: the contents that the last blocks need. Older ones may be dropped."""

from collections.abc import Iterable, Sequence
from functools import lru_cache

from fedchain.chain.block import Block
from fedchain.crypto.hashing import Hash


def contents_of(blocks: Iterable[Block]) -> set[Hash]:
    """Payloads that the blocks count, and the knowledge that they leave behind."""
    needed: set[Hash] = set()
    for block in blocks:
        needed.add(block.header.knowledge_root)
        needed.update(block.payload_hashes)
    return needed


def contents_in_order(blocks: Iterable[Block]) -> tuple[Hash, ...]:
    """The same contents, the newest block's first; in each block the knowledge precedes the payloads.

    Args:
        blocks: blocks that obey the rules, so that their hashes fix their contents; oldest first.
    """
    return _in_order(_Valid([*blocks]))


class _Valid:
    """Blocks that obey the rules, which equal others with the same hashes."""

    __slots__ = ("blocks", "hashes")

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.blocks, self.hashes = blocks, tuple([block.hash for block in blocks])

    def __hash__(self) -> int:
        return hash(self.hashes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Valid) and self.hashes == other.hashes


@lru_cache(maxsize=4)
def _in_order(valid: _Valid) -> tuple[Hash, ...]:
    """Cached: all peers of a simulation sweep at the same blocks, and keep the contents of the same one."""
    ordered: dict[Hash, None] = {}
    for block in reversed(valid.blocks):
        ordered |= dict.fromkeys((block.header.knowledge_root, *block.payload_hashes))
    return tuple(ordered)
