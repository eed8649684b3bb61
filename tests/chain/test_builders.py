"""The builders of the tests make valid chains; everything else relies on it."""

import pytest

from fedchain.chain.genesis import AggregatorRule
from fedchain.chain.knowledge import recompute
from fedchain.chain.state import decode_state
from fedchain.chain.transition import judge_block, judge_final
from fedchain.chain.validation import validate_evidence
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import is_valid_signature
from tests.support.chain.builders import GLOBAL, UPDATE, ChainBuilder, double_post, double_vote, genesis, keys


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"setup": (UPDATE,), "phases": (UPDATE, GLOBAL), "aggregator": AggregatorRule.ROTATING},
        {"centralized": True, "aggregator": AggregatorRule.FIXED},
        {"centralized": True, "phases": (UPDATE, GLOBAL), "aggregator": AggregatorRule.DEDICATED},
        {"committee_size": 2, "contributors_per_round": 2},
    ],
    ids=["plain", "phases", "centralized", "dedicated", "drawn"],
)
def test_every_built_block_passes_every_rule(overrides: dict[str, object]) -> None:
    builder = ChainBuilder(genesis(4, **overrides))
    for block in builder.extend_many(6):
        parent, certificate = builder.states[block.header.parent_hash], builder.certificate(block)
        knowledge = recompute(builder.genesis, builder.rules, parent, block.transactions, builder.contents.get)
        after = judge_final(builder.genesis, parent, block, certificate, sha256(knowledge), is_valid_signature)
        assert after == builder.states[block.hash]
        final = builder.final(block)
        assert (final.block, final.certificate) == (block, certificate)
        assert decode_state(builder.genesis, final.state) == parent


def test_built_evidence_convicts() -> None:
    builder = ChainBuilder(genesis(7))
    builder.extend()
    crimes = [double_vote(keys(7)[1], builder.genesis, 1), double_post(keys(7)[2], builder.genesis, 2)]
    for crime in crimes:
        validate_evidence(builder.genesis, builder.state, crime, is_valid_signature)
    block = builder.extend(evidence=crimes)
    state = builder.states[block.header.parent_hash]
    assert judge_block(builder.genesis, state, block, None, is_valid_signature) == builder.state
    assert not builder.state.roster.is_active(keys(7)[1].public_key)
    assert len(builder.extend().transactions) == 5


def test_the_same_calls_give_the_same_bytes() -> None:
    first, second = (ChainBuilder(genesis(3)).extend_many(3) for _ in range(2))
    assert [block.encode() for block in first] == [block.encode() for block in second]
