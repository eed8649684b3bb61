"""A vote: its slot, and its kinds."""

import pytest

from fedchain.chain.encoding import decode, encode
from fedchain.chain.exceptions import InvalidEncoding
from fedchain.chain.vote import Vote, VoteKind, read_kind, sign_vote
from fedchain.crypto.hashing import sha256
from tests.support.chain.builders import genesis, keys

GENESIS = genesis(4)
PREVOTE, PRECOMMIT = VoteKind


def _vote(height: int = 7, attempt: int = 1, kind: VoteKind = PRECOMMIT) -> Vote:
    return sign_vote(keys(1)[0], GENESIS.chain_id, (height, attempt, kind), sha256(b"block"))


def test_slots_are_in_the_order_of_signing() -> None:
    said = [_vote(height, attempt, kind) for height in (7, 8) for attempt in (0, 1) for kind in (PREVOTE, PRECOMMIT)]
    assert [vote.slot for vote in said] == sorted(vote.slot for vote in said)
    assert len({vote.slot for vote in said}) == len(said)


@pytest.mark.parametrize("number", [0, 3, 2**64 - 1])
def test_there_are_two_kinds(number: int) -> None:
    with pytest.raises(InvalidEncoding) as caught:
        read_kind(number)
    assert str(caught.value) == f"vote kind: {number} found, 1 or 2 expected"
    record = _vote().to_record()
    with pytest.raises(InvalidEncoding, match=r"^vote kind"):
        Vote.from_record(decode(encode([number, *record[1:]]), 2**10))
