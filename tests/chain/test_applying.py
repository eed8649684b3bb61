"""A block is applied once for all that hold it."""

from dataclasses import replace

from fedchain.chain.applying import apply_block
from tests.support.chain.builders import ChainBuilder, genesis


def test_a_block_is_applied_once_on_equal_states() -> None:
    builder = ChainBuilder(genesis(4))
    before = builder.state
    block = builder.extend(posts=builder.posts(members=builder.genesis.members[:3]))
    same = replace(before)
    after = apply_block(builder.genesis, before, block)
    assert same is not before
    assert apply_block(builder.genesis, same, block) is after
    assert after.encode() is after.encode()
    assert apply_block(builder.genesis, before, replace(block)) == after
    assert apply_block(builder.genesis, replace(before, bits=before.bits - 1), block) != after
