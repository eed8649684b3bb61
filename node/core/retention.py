"""Retention: which contents the last blocks need. What is older may be dropped."""

from fedchain.chain.fork_choice import BlockTree

from fedchain.crypto.hashing import Hash

RETAIN_STEPS = 8
"""How often the store is swept while the head moves on by one retention window."""


def contents_of_last(tree: BlockTree, blocks: int) -> set[Hash]:
    """Payloads and knowledges of the last ``blocks`` blocks, on any branch, and the knowledge that they began with."""
    base = tree.canonical(max(0, tree.head.height - blocks))
    state = None if base is None else tree.state(base)
    assert base is not None, "the head's chain has a block at every height"
    assert state is not None, "a block of the head's chain has a state"
    needed = {state.knowledge_root}
    for block_hash in tree.descendants(base):
        block = tree.block(block_hash)
        assert block is not None, "a block above another is in the tree"
        needed.add(block.header.knowledge_root)
        needed.update(post.payload_hash for post in block.transactions)
    return needed


def is_time_to_sweep(height: int, retention_blocks: int) -> bool:
    """Whether the store is to be swept now that the head is at ``height``."""
    step = max(1, retention_blocks // RETAIN_STEPS)
    return 0 < retention_blocks < height and height % step == 0
