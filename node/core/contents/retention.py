"""Retention: the contents that the last blocks need. Older ones may be dropped."""

from collections.abc import Iterable

from fedchain.chain.block import Block
from fedchain.crypto.hashing import Hash


def contents_of(blocks: Iterable[Block]) -> set[Hash]:
    """Payloads that the blocks count, and the knowledge that they leave behind."""
    needed: set[Hash] = set()
    for block in blocks:
        needed.add(block.header.knowledge_root)
        needed.update(block.payload_hashes)
    return needed


def contents_in_order(blocks: Iterable[Block]) -> list[Hash]:
    """The same contents, the newest block's first; in each block the knowledge precedes the payloads.

    Args:
        blocks: blocks, oldest first.
    """
    ordered: dict[Hash, None] = {}
    for block in reversed([*blocks]):
        ordered |= dict.fromkeys((block.header.knowledge_root, *block.payload_hashes))
    return list(ordered)
