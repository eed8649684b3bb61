"""The builders of the tests make valid chains; everything else relies on it."""

import pytest

from fedchain.chain.genesis import AggregatorRule
from fedchain.chain.knowledge import recompute
from fedchain.chain.validation import validate_knowledge, validate_on, validate_sealed
from fedchain.crypto.keys import is_valid_signature
from tests.chain.builders import GLOBAL, UPDATE, ChainBuilder, genesis


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"setup": (UPDATE,), "phases": (UPDATE, GLOBAL), "aggregator": AggregatorRule.ROTATING},
        {"centralized": True, "aggregator": AggregatorRule.FIXED},
        {"committee_size": 2, "contributors_per_round": 2},
    ],
    ids=["plain", "phases", "centralized", "drawn"],
)
def test_every_built_block_passes_every_rule(overrides: dict[str, object]) -> None:
    builder = ChainBuilder(genesis(4, **overrides))
    for block in builder.extend_many(6):
        parent = builder.states[block.header.parent_hash]
        grandparent = builder.states[parent.parent_hash] if parent.height else None
        validate_sealed(builder.genesis, block, is_valid_signature)
        validate_on(builder.genesis, grandparent, parent, block, now_ms=block.header.timestamp_ms)
        knowledge = recompute(builder.genesis, builder.rules, parent, block.transactions, builder.contents.get)
        validate_knowledge(block.header, knowledge)


def test_the_same_calls_give_the_same_bytes() -> None:
    first, second = (ChainBuilder(genesis(3)).extend_many(3) for _ in range(2))
    assert [block.encode() for block in first] == [block.encode() for block in second]
