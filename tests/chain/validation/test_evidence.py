"""Evidence: whose crime it proves, and when its sender is to blame."""

from dataclasses import replace

import pytest

from fedchain.chain.evidence import Evidence, Statement, evidence_of
from fedchain.chain.exceptions import AlreadyKnown, InvalidEvidence
from fedchain.chain.validation.evidence import validate_evidence
from fedchain.crypto.keys import is_valid_signature
from tests.support.chain.builders import ChainBuilder, double_post, double_vote, genesis, keys

GENESIS = genesis(4)
KEYS = keys(5)
STATE = ChainBuilder(GENESIS).state


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
    with pytest.raises(InvalidEvidence) as caught:
        validate_evidence(GENESIS, STATE, double_vote(KEYS[4], GENESIS, 1), is_valid_signature)
    assert str(caught.value) == f"culprit: {KEYS[4].public_key.hex()} is no member"


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
