"""Evidence: what one member may not sign twice, and what proves nothing."""

from dataclasses import replace
from typing import Any

import pytest

from fedchain.chain.encoding import decode, encode
from fedchain.chain.evidence import Evidence, Statement, evidence_of, excludes
from fedchain.chain.exceptions import AlreadyKnown, InvalidEncoding, InvalidEvidence, Refused
from fedchain.chain.membership.turnout import Turnout
from fedchain.chain.state import CRIME_SIZE_MAX
from fedchain.chain.validation import validate_evidence
from fedchain.chain.vote import NIL, Vote, VoteKind, sign_vote
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import is_valid_signature
from tests.support.chain.builders import ChainBuilder, double_post, double_vote, genesis, keys, payload, post

GENESIS = genesis(4)
KEYS = keys(5)
STATE = ChainBuilder(GENESIS).state
PREVOTE, PRECOMMIT = VoteKind
BLOCK_HASH, OTHER_HASH = sha256(b"block"), sha256(b"other")


def _vote(**changes: Any) -> Vote:
    fields: dict[str, Any] = {"kind": PRECOMMIT, "height": 7, "attempt": 1, "block_hash": BLOCK_HASH}
    key = changes.pop("key", KEYS[0])
    fields |= changes
    slot = fields.pop("height"), fields.pop("attempt"), fields.pop("kind")
    return sign_vote(key, GENESIS.chain_id, slot, **fields)


POST = post(KEYS[0], GENESIS, 3, payload(1))


def _expect(evidence: Evidence, error: type[Refused], message: str) -> None:
    with pytest.raises(error) as caught:
        validate_evidence(GENESIS, STATE, evidence, is_valid_signature)
    assert type(caught.value) is error
    assert str(caught.value) == message


CRIMES: list[tuple[str, Statement, Statement]] = [
    ("two different precommits at height 7, attempt 1", _vote(), _vote(block_hash=OTHER_HASH)),
    ("two different precommits at height 7, attempt 1", _vote(), _vote(block_hash=NIL)),
    (
        "two different prevotes at height 7, attempt 1",
        _vote(kind=PREVOTE),
        _vote(kind=PREVOTE, block_hash=OTHER_HASH),
    ),
    ("two different posts in round 3, phase 0", POST, post(KEYS[0], GENESIS, 3, payload(2))),
    (
        f"two different precommits at height {2**64 - 1}, attempt {2**64 - 1}",
        _vote(height=2**64 - 1, attempt=2**64 - 1),
        _vote(height=2**64 - 1, attempt=2**64 - 1, block_hash=OTHER_HASH),
    ),
    (
        f"two different posts in round {2**64 - 1}, phase {2**64 - 1}",
        post(KEYS[0], GENESIS, 2**64 - 1, payload(1), phase=2**64 - 1),
        post(KEYS[0], GENESIS, 2**64 - 1, payload(2), phase=2**64 - 1),
    ),
]


@pytest.mark.parametrize(("crime", "one", "other"), CRIMES, ids=[crime for crime, _, _ in CRIMES])
def test_a_crime_is_proved_in_one_form(crime: str, one: Statement, other: Statement) -> None:
    evidence = evidence_of(one, other)
    assert evidence == evidence_of(other, one)
    assert (evidence.culprit, evidence.crime) == (KEYS[0].public_key, crime)
    validate_evidence(GENESIS, STATE, evidence, is_valid_signature)
    again = Evidence.from_record(decode(encode(evidence.to_record()), 2**12))
    assert again == evidence
    assert again.hash == evidence.hash == sha256(encode(evidence.to_record()))
    turned = Evidence(evidence.second, evidence.first)
    first, second = evidence.first.hash.hex(), evidence.second.hash.hex()
    _expect(turned, InvalidEvidence, f"order: {first} follows {second}")


def _resized() -> Statement:
    other = replace(POST, payload_size=POST.payload_size + 1)
    return replace(other, signature=KEYS[0].sign(other.signing_message(GENESIS.chain_id)))


def test_one_payload_with_two_sizes_is_a_crime() -> None:
    """One of them is a lie, and a peer that holds that post first could never use the payload."""
    assert excludes(POST, _resized())
    validate_evidence(GENESIS, STATE, evidence_of(POST, _resized()), is_valid_signature)


INNOCENT: list[tuple[str, Statement, Statement]] = [
    ("the same vote", _vote(), _vote()),
    ("another clock", _vote(), _vote(clock_ms=9, mining_ms=9)),
    ("another kind", _vote(), _vote(kind=PREVOTE, block_hash=OTHER_HASH)),
    ("another height", _vote(), _vote(height=8, block_hash=OTHER_HASH)),
    ("another attempt", _vote(), _vote(attempt=2, block_hash=OTHER_HASH)),
    ("another voter", _vote(), _vote(key=KEYS[1], block_hash=OTHER_HASH)),
    ("the same post", POST, post(KEYS[0], GENESIS, 3, payload(1))),
    ("another round", POST, post(KEYS[0], GENESIS, 4, payload(2))),
    ("another phase", POST, post(KEYS[0], GENESIS, 3, payload(2), phase=1)),
    ("another sender", POST, post(KEYS[1], GENESIS, 3, payload(2))),
    ("a vote and a post", _vote(), POST),
]


@pytest.mark.parametrize(("name", "one", "other"), INNOCENT, ids=[name for name, _, _ in INNOCENT])
def test_an_honest_member_may_sign_both(name: str, one: Statement, other: Statement) -> None:
    assert not excludes(one, other)
    assert not excludes(other, one)
    _expect(Evidence(one, other), InvalidEvidence, "statements: one does not exclude the other")


MARKS = Turnout(0, 0, b"\xff" * 1024, b"\xff" * 1024)
"""All that one vote may mark."""

FORMLESS: dict[str, dict[str, Any]] = {
    "what version 2 does not know": {"turnout": MARKS},
    "a prevote that measures": {"kind": PREVOTE, "clock_ms": 1},
    "no time": {"mining_ms": 2**48 + 1},
}


@pytest.mark.parametrize("form", FORMLESS)
def test_votes_of_a_form_that_nobody_counts_prove_nothing(form: str) -> None:
    one, other = (_vote(block_hash=block, **FORMLESS[form]) for block in (BLOCK_HASH, OTHER_HASH))
    with pytest.raises(InvalidEvidence, match=r"^evidence: (turnout|measurements): "):
        validate_evidence(GENESIS, STATE, evidence_of(one, other), is_valid_signature)


def test_the_largest_crime_of_each_member_fits_into_a_state() -> None:
    """Else one liar would keep everybody that lost its disk from joining ever again: no larger state is fetched."""
    said = {"height": 2**64 - 1, "attempt": 2**64 - 1, "clock_ms": 2**48, "mining_ms": 2**48}
    number, large = 2**64 - 1, post(KEYS[0], GENESIS, 2**64 - 1, payload(1), phase=2**64 - 1)
    others = (replace(large, payload_size=number), replace(large, payload_size=number - 1))
    posts = (replace(item, signature=KEYS[0].sign(item.signing_message(GENESIS.chain_id))) for item in others)
    for one, other in ((_vote(**said), _vote(block_hash=OTHER_HASH, **said)), posts):
        crime = evidence_of(one, other)
        validate_evidence(GENESIS, STATE, crime, is_valid_signature)
        assert len(encode(crime.to_record())) <= CRIME_SIZE_MAX


@pytest.mark.parametrize("place", ["first", "second"])
def test_both_signatures_are_the_culprits(place: str) -> None:
    """Nobody can be framed: a statement with somebody else's or a bent signature proves nothing."""
    for crime in (double_vote(KEYS[0], GENESIS, 1), double_post(KEYS[0], GENESIS, 1)):
        statement = getattr(crime, place)
        for signature in (bytes(64), KEYS[1].sign(statement.signing_message(GENESIS.chain_id))):
            forged = evidence_of(
                *(replace(item, signature=signature) if item == statement else item for item in _pair(crime))
            )
            with pytest.raises(InvalidEvidence, match=r"^evidence: signature: "):
                validate_evidence(GENESIS, STATE, forged, is_valid_signature)


def _pair(crime: Evidence) -> tuple[Statement, Statement]:
    return crime.first, crime.second


def test_what_was_said_on_another_chain_is_no_crime_here() -> None:
    foreign = double_vote(KEYS[0], genesis(4, name="other"), 1)
    with pytest.raises(InvalidEvidence, match=r"^evidence: signature: "):
        validate_evidence(GENESIS, STATE, foreign, is_valid_signature)


def test_only_members_are_convicted() -> None:
    _expect(double_vote(KEYS[4], GENESIS, 1), InvalidEvidence, f"culprit: {KEYS[4].public_key.hex()} is no member")


def test_who_passes_on_what_is_known_is_not_to_blame() -> None:
    builder = ChainBuilder(GENESIS)
    builder.extend(evidence=[double_vote(KEYS[1], GENESIS, 1)])
    for late in (double_vote(KEYS[1], GENESIS, 1), double_vote(KEYS[1], GENESIS, 2), double_post(KEYS[1], GENESIS, 1)):
        with pytest.raises(AlreadyKnown) as caught:
            validate_evidence(GENESIS, builder.state, late, is_valid_signature)
        assert str(caught.value) == f"culprit: {KEYS[1].public_key.hex()} was convicted before"


def test_signatures_are_looked_at_last() -> None:
    def never(*_: object) -> bool:
        raise AssertionError("no signature has to be looked at")

    crime = double_vote(KEYS[0], GENESIS, 1)
    for evidence in (Evidence(crime.second, crime.first), Evidence(crime.first, crime.first)):
        with pytest.raises(InvalidEvidence):
            validate_evidence(GENESIS, STATE, evidence, never)
    with pytest.raises(InvalidEvidence):
        validate_evidence(GENESIS, STATE, double_vote(KEYS[4], GENESIS, 1), never)


@pytest.mark.parametrize(
    "record",
    [
        [0, _vote().to_record(), _vote().to_record()],
        [3, _vote().to_record(), _vote().to_record()],
        [1, POST.to_record(), POST.to_record()],
        [2, _vote().to_record(), _vote().to_record()],
        [1, _vote().to_record(), POST.to_record()],
        [1, _vote().to_record()],
        [1, b"", b""],
        [],
        7,
    ],
)
def test_malformed_evidence_is_refused(record: Any) -> None:
    with pytest.raises(InvalidEncoding):
        Evidence.from_record(record)


def test_only_a_crime_becomes_evidence() -> None:
    with pytest.raises(AssertionError):
        evidence_of(_vote(), _vote())
