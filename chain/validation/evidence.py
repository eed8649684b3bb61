"""Rules of evidence, and of the convictions in a state that came from others."""

from fedchain.chain.evidence import Evidence, excludes
from fedchain.chain.exceptions import (
    AlreadyKnown,
    InvalidEvidence,
    InvalidSignature,
    OutOfWindow,
    check,
)
from fedchain.chain.genesis import Genesis
from fedchain.chain.state import State
from fedchain.chain.validation.signature import validate_signature
from fedchain.crypto.signatures import SignatureCheck


def validate_evidence(genesis: Genesis, state: State, evidence: Evidence, is_valid_signature: SignatureCheck) -> None:
    """Check two statements of which an active member may sign only one.

    Raises:
        InvalidEvidence: they prove nothing.
        AlreadyKnown: the member was convicted before; the peer that passes this on may not know.
    """
    culprit = evidence.culprit
    # Only members can be convicted.
    unknown = OutOfWindow if state.records else InvalidEvidence
    check(culprit in state.roster.seats, unknown, "culprit", f"{culprit.hex()} is no member")
    # The others took it that somebody else may have the key.
    check(culprit not in state.roster.excused, OutOfWindow, "culprit", f"{culprit.hex()} was lost or stolen")
    # Nobody is convicted twice.
    check(state.roster.is_liable(culprit), AlreadyKnown, "culprit", f"{culprit.hex()} was convicted before")
    _validate_crime(genesis, evidence, is_valid_signature)


def validate_state(genesis: Genesis, state: State, is_valid_signature: SignatureCheck) -> None:
    """Check the crimes in a state that came from others. Raises InvalidEvidence.

    The electors' votes vouch for the state, and invented convictions would let a sender choose the electors.
    """
    culprits = [state.roster.current(crime.culprit) for crime in state.convicted]
    # One conviction takes one member out of the federation.
    check(
        len(set(culprits) & set(state.roster.members)) == len(culprits),
        InvalidEvidence,
        "convicted",
        f"{len(culprits)} crimes of {len(set(culprits) & set(state.roster.members))} members found",
    )
    for crime in state.convicted:
        _validate_crime(genesis, crime, is_valid_signature)


def _validate_crime(genesis: Genesis, evidence: Evidence, is_valid_signature: SignatureCheck) -> None:
    first, second = evidence.first, evidence.second
    # They must be for one slot or phase and differ, or they prove nothing.
    check(excludes(first, second), InvalidEvidence, "statements", "one does not exclude the other")
    # One crime has one form.
    check(first.hash < second.hash, InvalidEvidence, "order", f"{second.hash.hex()} follows {first.hash.hex()}")
    for statement in (first, second):
        try:
            validate_signature(genesis, evidence.culprit, statement, is_valid_signature)
        except InvalidSignature as error:
            raise InvalidEvidence("evidence", str(error)) from None
