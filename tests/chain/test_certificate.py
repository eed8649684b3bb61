"""A certificate: its medians, its bytes and its root."""

from typing import Any

import pytest

from fedchain.chain.certificate import Certificate, certificate_root, certify
from fedchain.chain.encoding import decode, encode
from fedchain.chain.exceptions import InvalidEncoding
from fedchain.chain.vote import Vote, VoteKind, sign_vote
from fedchain.crypto.hashing import ZERO_HASH, sha256
from tests.support.chain.builders import CREATED_MS, genesis, keys

GENESIS = genesis(7)
BLOCK_HASH = sha256(b"block")
PRECOMMIT = VoteKind.PRECOMMIT


def _votes(count: int = 5) -> list[Vote]:
    """Precommits of the first keys."""
    slot = (3, 2, PRECOMMIT)
    return [
        sign_vote(key, GENESIS.chain_id, slot, BLOCK_HASH, clock_ms=CREATED_MS, mining_ms=4_000) for key in keys(count)
    ]


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
