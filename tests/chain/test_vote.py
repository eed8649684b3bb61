"""A vote: who may cast it, what it may say, and that it is its voter's own."""

from dataclasses import replace
from typing import Any

import pytest

from fedchain.chain.encoding import decode, encode
from fedchain.chain.exceptions import InvalidEncoding, InvalidSignature, InvalidVote, Refused
from fedchain.chain.validation import CLOCK_MS_MAX, validate_vote
from fedchain.chain.vote import NIL, Vote, VoteKind, read_kind, sign_vote
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import is_valid_signature
from tests.support.chain.builders import CREATED_MS, genesis, keys

GENESIS = genesis(4)
KEYS = keys(5)
ELECTORS = frozenset(key.public_key for key in KEYS[:4])
BLOCK_HASH = sha256(b"block")
PREVOTE, PRECOMMIT = VoteKind


def _vote(**changes: Any) -> Vote:
    """A precommit as an honest member signs it, with other fields."""
    fields: dict[str, Any] = {
        "kind": PRECOMMIT,
        "height": 7,
        "attempt": 1,
        "block_hash": BLOCK_HASH,
        "clock_ms": CREATED_MS,
        "mining_ms": 4_000,
    }
    key = changes.pop("key", KEYS[0])
    fields |= changes
    slot = fields.pop("height"), fields.pop("attempt"), fields.pop("kind")
    return sign_vote(key, GENESIS.chain_id, slot, **fields)


def _expect(vote: Vote, error: type[Refused], message: str) -> None:
    with pytest.raises(error) as caught:
        validate_vote(GENESIS, ELECTORS, vote, is_valid_signature)
    assert type(caught.value) is error
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "vote",
    [
        _vote(),
        _vote(clock_ms=0, mining_ms=0),
        _vote(clock_ms=CLOCK_MS_MAX, mining_ms=CLOCK_MS_MAX),
        _vote(kind=PREVOTE, clock_ms=0, mining_ms=0),
        _vote(block_hash=NIL, clock_ms=0, mining_ms=0),
        _vote(kind=PREVOTE, block_hash=NIL, clock_ms=0, mining_ms=0),
        _vote(height=2**64 - 1, attempt=2**64 - 1),
    ],
)
def test_what_an_honest_member_says_is_taken(vote: Vote) -> None:
    validate_vote(GENESIS, ELECTORS, vote, is_valid_signature)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"kind": PREVOTE}, f"clock {CREATED_MS} and mining time 4000 found, 0 and 0 expected"),
        ({"block_hash": NIL}, f"clock {CREATED_MS} and mining time 4000 found, 0 and 0 expected"),
        ({"kind": PREVOTE, "clock_ms": 0}, "clock 0 and mining time 4000 found, 0 and 0 expected"),
        ({"block_hash": NIL, "mining_ms": 0}, f"clock {CREATED_MS} and mining time 0 found, 0 and 0 expected"),
        (
            {"clock_ms": CLOCK_MS_MAX + 1},
            f"clock {CLOCK_MS_MAX + 1} and mining time 4000 found, at most {CLOCK_MS_MAX} are allowed",
        ),
        (
            {"mining_ms": 2**48 + 1},
            f"clock {CREATED_MS} and mining time {2**48 + 1} found, at most {CLOCK_MS_MAX} are allowed",
        ),
    ],
)
def test_what_no_honest_member_says_is_its_voters_fault(changes: dict[str, Any], found: str) -> None:
    _expect(_vote(**changes), InvalidVote, f"measurements: {found}")


def test_who_has_no_vote_is_named() -> None:
    stranger = KEYS[4].public_key.hex()[:16]
    message = f"electorate: {stranger}… is not one of the 4 electors of height 7"
    _expect(_vote(key=KEYS[4]), InvalidSignature, message)


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": PREVOTE},
        {"height": 8},
        {"attempt": 0},
        {"block_hash": sha256(b"other")},
        {"clock_ms": CREATED_MS + 1},
        {"mining_ms": 4_001},
        {"voter": KEYS[1].public_key},
        {"signature": bytes(64)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_the_signature_covers_every_field(changes: dict[str, Any]) -> None:
    forged = replace(_vote(), **changes)
    said, voter = forged.signature.hex()[:16], forged.voter.hex()[:16]
    _expect(forged, InvalidSignature, f"signature: {said}… is not {voter}…'s over this vote")
    assert forged.hash != _vote().hash


def test_a_vote_of_another_chain_is_none_here() -> None:
    foreign = sign_vote(KEYS[0], genesis(4, name="other").chain_id, (7, 1, PREVOTE), BLOCK_HASH)
    with pytest.raises(InvalidSignature, match=r"^signature: "):
        validate_vote(GENESIS, ELECTORS, foreign, is_valid_signature)


def test_a_voter_is_looked_up_before_its_signature() -> None:
    def never(*_: object) -> bool:
        raise AssertionError("no signature has to be looked at")

    with pytest.raises(InvalidSignature):
        validate_vote(GENESIS, ELECTORS, _vote(key=KEYS[4]), never)


def test_slots_are_in_the_order_of_signing() -> None:
    said = [
        _vote(kind=kind, height=height, attempt=attempt)
        for height in (7, 8)
        for attempt in (0, 1)
        for kind in (PREVOTE, PRECOMMIT)
    ]
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
