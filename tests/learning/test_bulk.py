"""Bytes that are addressed: what a contribution says of its readers."""

import pytest

from fedchain.chain import knowledge
from fedchain.learning.bulk import AddressedBytes
from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import InvalidPayload
from fedchain.learning.payload import bulk
from fedchain.learning.payload.bulk import (
    AGGREGATOR,
    EVERYBODY,
    NEXT_AGGREGATOR,
    PART_SIZE_MAX,
    part_size_max,
)
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.round import OffChain
from tests.support.learning.parts import MEMBERS, Players
from tests.support.learning.parts import config as config


def test_a_contribution_says_whom_its_bytes_are_for(config: LearningConfig) -> None:
    players = Players(config)
    for phase, number in (("show", 0), ("send", 1), ("answer", 1)):
        made = players.learner.contribute(0, phase, number, players.known)
        sizes = dict.fromkeys((EVERYBODY, AGGREGATOR, NEXT_AGGREGATOR, 0, 1, 2), 0)
        for _, size, reader in players.rules.parts(phase, made.payload):
            sizes[reader] += size
        assert made.addressed == AddressedBytes(
            everybody=len(made.payload) + sizes[EVERYBODY],
            aggregator=sizes[AGGREGATOR],
            next_aggregator=sizes[NEXT_AGGREGATOR],
            one_member=sizes[0] + sizes[1] + sizes[2],
        )
        players.play(phase, number, range(1 if phase == "answer" else 3))
    assert min(made.addressed.next_aggregator, made.addressed.one_member) > 0, "an answer has parts of both kinds"


def test_a_member_beyond_the_parts_of_the_data_lists_none(config: LearningConfig) -> None:
    """There is no room for its place in what a phase leaves behind: one post of it would be everybody's failure."""
    players = Players(config)
    (payload, *_), more = players.play("show", 0, range(3)), [bytes([number]) * 32 for number in (8, 9)]
    occasion = OffChain("show", 0, [*MEMBERS, *more])
    players.rules.check(occasion, more[0], b"", payload)
    players.rules.aggregate(occasion, b"", [(more[0], payload)])
    with pytest.raises(InvalidPayload, match="sender: the data have 3 parts, and none is this member's"):
        players.rules.check(occasion, more[1], b"", payload)


def test_the_chain_and_learning_mean_the_same_readers_and_sizes() -> None:
    """They import nothing of each other, so each states them."""
    names = ("EVERYBODY", "AGGREGATOR", "NEXT_AGGREGATOR")
    assert [getattr(knowledge, name) for name in names] == [getattr(bulk, name) for name in names]
    assert part_size_max([TensorSpec("rows", (PART_SIZE_MAX,), "uint8")]) == knowledge.PART_SIZE_MAX


def test_the_chain_knows_how_large_a_part_may_be() -> None:
    assert PART_SIZE_MAX + 1 == knowledge.PART_SIZE_MAX
