"""Ten thousand flipped bits: each is refused with the rule that it breaks, and nothing changes."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random

import pytest

from fedchain.chain.encoding import encode
from fedchain.chain.exceptions import (
    InvalidBlock,
    InvalidEncoding,
    InvalidPayload,
    InvalidTransaction,
    InvalidVote,
    Refused,
)
from tests.chain.builders import ChainBuilder, genesis, payload
from tests.chain.peer import Peer

FLIPS = 2_500
"""Of each of the four kinds."""

NAMED = (InvalidEncoding, InvalidBlock, InvalidTransaction, InvalidVote, InvalidPayload)


class Fixture:
    """A peer in the middle of a chain, with a block, posts, payloads and votes that it would take."""

    def __init__(self) -> None:
        builder = ChainBuilder(genesis(4))
        first, second, third = builder.extend_many(3)
        self.peer = Peer(builder.genesis, third.header.timestamp_ms)
        self.peer.contents |= builder.contents
        for block in (first, second):
            self.peer.receive_block(block.encode())
        # The peer holds the posts of the open phase but one, and a vote for the block that awaits acceptance.
        votes = [encode(vote.to_record()) for vote in builder.votes(second.hash)]
        posts = [encode(post.to_record()) for post in third.transactions]
        self.peer.receive_vote(votes[0])
        self.peer.receive_transaction(posts[0])
        take_payload = partial(self.peer.receive_payload, third.transactions[0])
        self.good: dict[str, list[tuple[Callable[[bytes], object], bytes]]] = {
            "block": [(self.peer.receive_block, third.encode())],
            "transaction": [(self.peer.receive_transaction, data) for data in posts],
            "vote": [(self.peer.receive_vote, data) for data in votes],
            "payload": [(take_payload, builder.contents[third.transactions[0].payload_hash])],
        }


def _flip(data: bytes, bit: int) -> bytes:
    return (int.from_bytes(data, "big") ^ 1 << bit).to_bytes(len(data), "big")


@pytest.mark.parametrize("kind", ["block", "transaction", "vote", "payload"])
def test_a_flipped_bit_is_refused_and_changes_nothing(kind: str) -> None:
    scene, rng = Fixture(), Random(kind)
    before, rules = scene.peer.snapshot(), Counter[str]()
    for _ in range(FLIPS):
        receive, data = rng.choice(scene.good[kind])
        flipped = _flip(data, rng.randrange(8 * len(data)))
        with pytest.raises(Refused) as caught:
            receive(flipped)
        assert isinstance(caught.value, NAMED), f"{caught.value!r} does not say whose fault it is"
        assert str(caught.value).startswith(f"{caught.value.rule}: ")
        assert len(str(caught.value)) > len(caught.value.rule) + 2
        assert scene.peer.snapshot() == before
        rules[caught.value.rule] += 1
    assert sum(rules.values()) == FLIPS
    assert set(rules) >= EXPECTED[kind], rules


EXPECTED: dict[str, set[str]] = {
    "block": {"msgpack", "proof of work", "miner signature", "transactions root", "votes root"},
    "transaction": {"msgpack", "sender", "phase", "signature"},
    "vote": {"msgpack", "voter", "signature"},
    "payload": {"payload hash"},
}
"""Rules that flips run into; without them the test would not have reached what it is about."""


@pytest.mark.parametrize("kind", ["block", "transaction", "vote", "payload"])
def test_without_a_flip_it_is_taken(kind: str) -> None:
    for place in range(len(Fixture().good[kind])):
        scene = Fixture()
        receive, data = scene.good[kind][place]
        receive(data)


def test_the_snapshot_notices_what_is_taken() -> None:
    for kind, place in (("block", 0), ("transaction", 1), ("vote", 1)):
        scene = Fixture()
        before = scene.peer.snapshot()
        receive, data = scene.good[kind][place]
        receive(data)
        assert scene.peer.snapshot() != before
    scene = Fixture()
    before = scene.peer.snapshot()
    scene.peer.contents[b""] = payload()
    assert scene.peer.snapshot() != before
