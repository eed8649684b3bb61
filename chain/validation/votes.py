"""Rules of votes."""

from fedchain.chain.exceptions import (
    InvalidSignature,
    InvalidVote,
)
from fedchain.chain.genesis import Genesis
from fedchain.chain.membership.change import CHANGES_VERSION
from fedchain.chain.membership.turnout import Turnout
from fedchain.chain.validation.signature import validate_signature
from fedchain.chain.vote import NIL, Vote, VoteKind
from fedchain.crypto.keys import PublicKey
from fedchain.crypto.signatures import SignatureCheck

CLOCK_MS_MAX = 2**48
"""The latest clock that a vote may show: some nine thousand years from now."""


def validate_vote(
    genesis: Genesis, electors: frozenset[PublicKey], vote: Vote, is_valid_signature: SignatureCheck
) -> None:
    """Check a vote for a height whose electors are known.

    Raises:
        InvalidSignature: its voter did not sign it, or is no elector of that height.
        InvalidVote: no honest member would have signed it.
    """
    # The chain chooses the electors, and everybody at this height knows them.
    if vote.voter not in electors:
        found = f"{vote.voter.hex()[:16]}… is not one of the {len(electors)} electors of height {vote.height}"
        raise InvalidSignature("electorate", found)
    # The voter itself signed this, for this height and attempt of this chain.
    validate_signature(genesis, vote.voter, vote, is_valid_signature)
    measures = vote.kind is VoteKind.PRECOMMIT and vote.block_hash != NIL
    # One statement has one form: only a precommit for a block carries a time and a mining time.
    if not measures and (vote.clock_ms or vote.mining_ms):
        found = f"clock {vote.clock_ms} and mining time {vote.mining_ms} found, 0 and 0 expected"
        raise InvalidVote("measurements", found)
    # Without a bound, any number would pass for a time.
    if max(vote.clock_ms, vote.mining_ms) > CLOCK_MS_MAX:
        found = f"clock {vote.clock_ms} and mining time {vote.mining_ms} found, at most {CLOCK_MS_MAX} are allowed"
        raise InvalidVote("measurements", found)
    if vote.turnout is not None:
        _validate_turnout(genesis, vote.turnout, measures=measures)


def _validate_turnout(genesis: Genesis, turnout: Turnout, *, measures: bool) -> None:
    # One statement has one form, and version 2 knows no turnout.
    if not measures or genesis.version < CHANGES_VERSION:
        raise InvalidVote("turnout", "one found where none is expected")
    if not turnout.is_canonical or max(turnout.quorum_ms, turnout.waited_ms) > CLOCK_MS_MAX:
        raise InvalidVote("turnout", f"{turnout.to_record()} is no canonical one, or too large")
