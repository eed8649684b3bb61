"""A certificate: a quorum of votes for one block, each voter once, each in the one form."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from fedchain.chain.certificate import Certificate, certificate_root, certify
from fedchain.chain.encoding import decode, encode
from fedchain.chain.exceptions import InvalidCertificate, InvalidEncoding
from fedchain.chain.genesis import FaultModel
from fedchain.chain.validation import CLOCK_MS_MAX, validate_certificate
from fedchain.chain.vote import NIL, Vote, VoteKind, sign_vote
from fedchain.crypto.hashing import ZERO_HASH, Hash, sha256
from fedchain.crypto.keys import is_valid_signature
from tests.support.chain.builders import CREATED_MS, genesis, keys

GENESIS = genesis(7)
KEYS = sorted(keys(7), key=lambda key: key.public_key)
STRANGER = keys(8)[7]
ELECTORS = frozenset(key.public_key for key in KEYS)
BLOCK_HASH = sha256(b"block")
PREVOTE, PRECOMMIT = VoteKind


def _votes(count: int = 5, **changes: Any) -> list[Vote]:
    """Precommits of the first keys, ascending."""
    fields: dict[str, Any] = {"kind": PRECOMMIT, "height": 3, "attempt": 2, "block_hash": BLOCK_HASH}
    fields |= {"clock_ms": CREATED_MS, "mining_ms": 4_000} | changes
    slot = fields.pop("height"), fields.pop("attempt"), fields.pop("kind")
    return [sign_vote(key, GENESIS.chain_id, slot, **fields) for key in KEYS[:count]]


def _validate(certificate: Certificate, kind: VoteKind = PRECOMMIT, block_hash: Hash = BLOCK_HASH) -> None:
    validate_certificate(GENESIS, ELECTORS, certificate, kind, 3, block_hash, is_valid_signature)


def _refusal(certificate: Certificate, kind: VoteKind = PRECOMMIT, block_hash: Hash = BLOCK_HASH) -> str:
    with pytest.raises(InvalidCertificate) as caught:
        _validate(certificate, kind, block_hash)
    assert type(caught.value) is InvalidCertificate
    return str(caught.value)


@pytest.mark.parametrize("count", [5, 6, 7])
def test_a_quorum_and_more_prove_it(count: int) -> None:
    _validate(certify(_votes(count)))
    _validate(certify(_votes(count, kind=PREVOTE, clock_ms=0, mining_ms=0)), PREVOTE)


@pytest.mark.parametrize("count", [1, 4])
def test_fewer_prove_nothing(count: int) -> None:
    assert _refusal(certify(_votes(count))) == f"quorum: {count} votes found, 5 of 7 required"


def test_more_votes_than_electors_are_not_looked_at() -> None:
    votes = _votes(7)
    found = _refusal(certify([*votes, sign_vote(STRANGER, GENESIS.chain_id, (3, 2, PRECOMMIT), BLOCK_HASH)]))
    assert found == "quorum: 8 votes found, 5 of 7 required"
    assert _refusal(certify(votes * 20)) == "quorum: 140 votes found, 5 of 7 required"


def test_crashes_need_only_a_majority() -> None:
    document = genesis(7, fault_model=FaultModel.CRASH)
    votes = [
        sign_vote(key, document.chain_id, (3, 0, PRECOMMIT), BLOCK_HASH, clock_ms=1, mining_ms=1) for key in KEYS[:4]
    ]
    validate_certificate(document, ELECTORS, certify(votes), PRECOMMIT, 3, BLOCK_HASH, is_valid_signature)
    with pytest.raises(InvalidCertificate, match=r"^quorum: 3 votes found, 4 of 7 required"):
        validate_certificate(document, ELECTORS, certify(votes[:3]), PRECOMMIT, 3, BLOCK_HASH, is_valid_signature)


def test_it_proves_what_it_is_asked_for() -> None:
    """A quorum of prevotes is no decision, a decision is no reason to lock, and neither speaks for another block."""
    prevotes, precommits = certify(_votes(kind=PREVOTE, clock_ms=0, mining_ms=0)), certify(_votes())
    assert _refusal(prevotes) == "certificate's kind: prevotes found, precommits expected"
    assert _refusal(precommits, PREVOTE) == "certificate's kind: precommits found, prevotes expected"
    other = sha256(b"another block")
    assert _refusal(precommits, block_hash=other) == (
        f"certificate's block: {BLOCK_HASH.hex()} found, {other.hex()} expected"
    )


def test_a_certificate_is_for_one_height() -> None:
    assert _refusal(certify(_votes(height=4))) == "certificate's height: 4 found, 3 expected"


def test_votes_for_no_block_prove_nothing() -> None:
    nil = certify(_votes(block_hash=NIL, clock_ms=0, mining_ms=0))
    assert _refusal(nil, block_hash=NIL) == "certificate's block: votes for no block found"


@pytest.mark.parametrize("second", [0, 1])
def test_a_voter_counts_once(second: int) -> None:
    """Also with two different measurements for the same block."""
    votes = _votes(4)
    again = _votes(1, clock_ms=CREATED_MS + second)
    voter = votes[0].voter.hex()
    assert _refusal(certify([*votes, *again])) == f"vote order: {voter} follows {voter}"


def test_votes_stand_in_one_order() -> None:
    certificate = certify(_votes())
    assert certificate == certify(_votes()[::-1])
    first, second, *rest = certificate.votes
    shuffled = replace(certificate, votes=(second, first, *rest))
    assert shuffled.hash != certificate.hash
    assert _refusal(shuffled) == f"vote order: {first.voter.hex()} follows {second.voter.hex()}"


def _with(vote: Vote) -> Certificate:
    return certify([*_votes(4), vote])


def test_each_vote_is_judged() -> None:
    fifth = _votes(5)[4]
    voter, said = fifth.voter.hex()[:16], fifth.signature.hex()[:16]
    late = sign_vote(KEYS[4], GENESIS.chain_id, (3, 2, PRECOMMIT), BLOCK_HASH, clock_ms=CLOCK_MS_MAX + 1)
    stranger = sign_vote(STRANGER, GENESIS.chain_id, (3, 2, PRECOMMIT), BLOCK_HASH)
    cases: Sequence[tuple[Certificate, str]] = (
        (_with(replace(fifth, mining_ms=9)), f"signature: {said}… is not {voter}…'s over this vote"),
        (_with(stranger), f"electorate: {STRANGER.public_key.hex()[:16]}… is not one of the 7 electors of height 3"),
        (
            _with(late),
            f"measurements: clock {CLOCK_MS_MAX + 1} and mining time 0 found, at most {CLOCK_MS_MAX} are allowed",
        ),
        (
            certify(_votes(kind=PREVOTE)),
            f"measurements: clock {CREATED_MS} and mining time 4000 found, 0 and 0 expected",
        ),
    )
    for certificate, message in cases:
        assert _refusal(certificate, certificate.kind) == f"certificate's vote: {message}"


@pytest.mark.parametrize("changes", [{"attempt": 1}, {"height": 4}, {"block_hash": sha256(b"x")}, {"kind": PREVOTE}])
def test_votes_for_different_things_do_not_add_up(changes: dict[str, Any]) -> None:
    """Their common part stands once: a vote for something else is no vote here."""
    mixed = certify([*_votes(4), _votes(5, **changes)[4]])
    assert _refusal(mixed).startswith("certificate's vote: slot ")
    assert _refusal(Certificate.from_record(mixed.to_record())).startswith("certificate's vote: signature: ")


def test_the_medians_are_the_lower_ones() -> None:
    def medians(*values: int) -> tuple[int, int]:
        votes = [
            Vote(PRECOMMIT, 3, 2, BLOCK_HASH, value, 2 * value, bytes([place]) * 32, b"")
            for place, value in enumerate(values)
        ]
        return certify(votes).clock_ms, certify(votes).mining_ms

    assert medians(5) == (5, 10)
    assert medians(9, 5) == (5, 10)
    assert medians(9, 1, 5) == (5, 10)
    assert medians(9, 5, 1, 7) == (5, 10)


def test_each_measurement_has_its_own_median() -> None:
    pairs = ((1, 30), (2, 10), (3, 20))
    votes = [
        Vote(PRECOMMIT, 3, 2, BLOCK_HASH, clock_ms, mining_ms, bytes([clock_ms]) * 32, b"")
        for clock_ms, mining_ms in pairs
    ]
    assert (certify(votes).clock_ms, certify(votes).mining_ms) == (2, 20)


def test_it_is_read_back() -> None:
    certificate = certify(_votes(7))
    again = Certificate.from_record(decode(encode(certificate.to_record()), 2**12))
    assert again == certificate
    assert again.hash == certificate.hash == sha256(encode(certificate.to_record()))


def test_a_certificate_without_votes_is_none() -> None:
    """It would have no median: reading one must not fail later."""
    record = certify(_votes(1)).to_record()
    with pytest.raises(InvalidEncoding) as caught:
        Certificate.from_record([*record[:4], []])
    assert str(caught.value) == "certificate: 0 votes found, at least 1 expected"


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (0, 3),
        (0, b"\x01"),
        (1, b"\x01"),
        (2, []),
        (3, bytes(31)),
        (4, [[bytes(32), 0, 0]]),
        (4, [[bytes(31), 0, 0, bytes(64)]]),
        (4, [[bytes(32), 0, 0, bytes(65)]]),
        (4, [[bytes(32), b"", 0, bytes(64)]]),
        (4, [7]),
        (4, b""),
    ],
)
def test_a_malformed_certificate_is_refused(place: int, value: Any) -> None:
    record = certify(_votes(2)).to_record()
    record[place] = value
    with pytest.raises(InvalidEncoding):
        Certificate.from_record(record)


def test_the_root_of_none_is_zero() -> None:
    certificate = certify(_votes())
    assert certificate_root(None) == ZERO_HASH
    assert certificate_root(certificate) == certificate.hash != certificate_root(certify(_votes(6)))
