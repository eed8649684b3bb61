"""Twelve thousand flipped bits: each is refused with the rule that it breaks, and nothing changes."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random

import pytest

from fedchain.chain.encoding import encode
from fedchain.chain.exceptions import Invalid, OutOfWindow, Refused, UnknownParent
from tests.support.chain.builders import ChainBuilder, double_post, double_vote, genesis, keys, payload
from tests.support.chain.peer import Peer, encode_final

FLIPS = 2_000
"""Number of flips of each kind."""

KINDS = ("block", "final", "transaction", "vote", "evidence", "payload")


class Fixture:
    """A peer in the middle of a chain, with what it would take."""

    def __init__(self) -> None:
        builder = ChainBuilder(genesis(4))
        builder.extend_many(2)
        crimes = [double_vote(keys(4)[3], builder.genesis, 2), double_post(keys(4)[2], builder.genesis, 1)]
        third = builder.extend(evidence=crimes[:1])
        first, second, _ = builder.blocks.values()
        self.peer = Peer(builder.genesis)
        self.peer.contents |= builder.contents
        for block in (first, second):
            self.peer.receive_final(encode_final(block, builder.certificate(block)))
        # The peer holds one post of the open phase, and one vote.
        posts = [encode(post.to_record()) for post in third.transactions]
        votes = [encode(vote.to_record()) for vote in builder.certificate(third).votes]
        self.peer.receive_transaction(posts[0])
        self.peer.receive_vote(votes[0])
        take_payload = partial(self.peer.receive_payload, third.transactions[0])
        self.good: dict[str, list[tuple[Callable[[bytes], object], bytes]]] = {
            "block": [(self.peer.receive_block, third.encode())],
            "final": [(self.peer.receive_final, encode_final(third, builder.certificate(third)))],
            "transaction": [(self.peer.receive_transaction, data) for data in posts],
            "vote": [(self.peer.receive_vote, data) for data in votes],
            "evidence": [(self.peer.receive_evidence, encode(crime.to_record())) for crime in crimes],
            "payload": [(take_payload, builder.contents[third.transactions[0].payload_hash])],
        }


def _flip(data: bytes, bit: int) -> bytes:
    return (int.from_bytes(data, "big") ^ 1 << bit).to_bytes(len(data), "big")


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_is_refused_and_changes_nothing(kind: str) -> None:
    scene, rng = Fixture(), Random(kind)
    before, rules = scene.peer.snapshot(), Counter[str]()
    for _ in range(FLIPS):
        receive, data = rng.choice(scene.good[kind])
        flipped = _flip(data, rng.randrange(8 * len(data)))
        with pytest.raises(Refused) as caught:
            receive(flipped)
        # Only a height or round that is not open may be refused as something that time can heal.
        assert isinstance(caught.value, Invalid | UnknownParent | OutOfWindow), repr(caught.value)
        assert str(caught.value).startswith(f"{caught.value.rule}: ")
        assert len(str(caught.value)) > len(caught.value.rule) + 2
        assert scene.peer.snapshot() == before
        rules[caught.value.rule] += 1
    assert sum(rules.values()) == FLIPS
    assert set(rules) >= EXPECTED[kind], rules


EXPECTED: dict[str, set[str]] = {
    "block": {
        "msgpack",
        "parent",
        "miner",
        "miner signature",
        "transactions root",
        "certificate root",
        "evidence root",
    },
    "final": {
        "msgpack",
        "parent",
        "certificate's block",
        "certificate's height",
        "certificate's vote",
        "transactions root",
    },
    "transaction": {"msgpack", "sender", "post's round", "signature"},
    "vote": {"msgpack", "vote kind", "vote's height", "electorate", "signature"},
    "evidence": {"msgpack", "culprit", "statements", "evidence", "order"},
    "payload": {"payload hash"},
}
"""Rules that flips run into; without them the test would not have reached what it is about."""


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_flip_it_is_taken(kind: str) -> None:
    for place in range(len(Fixture().good[kind])):
        scene = Fixture()
        receive, data = scene.good[kind][place]
        receive(data)


def test_the_snapshot_notices_what_is_taken() -> None:
    for kind, place in (("block", 0), ("final", 0), ("transaction", 1), ("vote", 1), ("evidence", 0)):
        scene = Fixture()
        before = scene.peer.snapshot()
        receive, data = scene.good[kind][place]
        receive(data)
        assert scene.peer.snapshot() != before
    scene = Fixture()
    before = scene.peer.snapshot()
    scene.peer.contents[b""] = payload()
    assert scene.peer.snapshot() != before
