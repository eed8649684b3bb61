"""A vote: one member's signed statement on one height. A member signs one per kind, height and attempt, for ever.

A height is decided as in Tendermint (Buchman, Kwon, Milosevic: The latest gossip on BFT consensus, arXiv:1807.04938),
without its proposer: proof of work proposes. *Prevotes* of a quorum for one block allow a member to lock on it,
*precommits* of a quorum make it final, and a height that one attempt did not decide is tried again in the next.
"""

from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from fedchain.chain.encoding import encode, expect_record, expect_size, signing_message
from fedchain.chain.exceptions import InvalidEncoding
from fedchain.chain.membership.turnout import Turnout
from fedchain.crypto.hashing import HASH_SIZE, ZERO_HASH, Hash, sha256
from fedchain.crypto.keys import PUBLIC_KEY_SIZE, SIGNATURE_SIZE, PrivateKey, PublicKey, Signature

NIL: Hash = ZERO_HASH
"""The block hash of a vote for no block: none deserved the vote in time."""


class VoteKind(IntEnum):
    """The two steps of an attempt."""

    PREVOTE = 1
    """"I would accept this block." """
    PRECOMMIT = 2
    """"A quorum would; I am locked on it." """

    __hash__ = int.__hash__  # that of the base class takes a call, four times for each vote that comes


Slot = tuple[int, int, int]
"""(height, attempt, kind), in the order in which a member signs them: a member votes at most once in each."""


@dataclass(frozen=True, slots=True)
class Vote:
    """One member's signed vote."""

    kind: VoteKind
    """Prevote or precommit."""
    height: int
    """Height that is decided."""
    attempt: int
    """Attempt at that height, from 0. (Tendermint: round)"""
    block_hash: Hash
    """32 bytes: the block voted for; ``NIL``: none."""
    clock_ms: int
    """The voter's clock, in milliseconds since the Unix epoch; 0 in a vote that precommits no block."""
    mining_ms: int
    """How long the block was mined as the voter saw it, in milliseconds; 0 in a vote that precommits no block."""
    voter: PublicKey
    """32 bytes: the member that votes."""
    signature: Signature = field(repr=False)
    """64 bytes: the voter's, over everything else."""
    turnout: Turnout | None = field(default=None, repr=False)
    """The voter's account of the phase's posts; None if it says nothing of them. Votes of version 2 never do."""

    @property
    def slot(self) -> Slot:
        """The slot, in which the voter may vote only once."""
        return self.height, self.attempt, int(self.kind)

    @property
    def hash(self) -> Hash:
        """32 bytes: the identity of the vote, signature included."""
        return sha256(encode(self.to_record()))

    def to_record(self) -> list[Any]:
        """The canonical fields."""
        return [*self._signed_fields(), self.signature]

    @classmethod
    def from_record(cls, value: Any) -> "Vote":
        """Read the canonical fields; raises InvalidEncoding."""
        turnout, plain = split_turnout(value, 8)
        kind, *fields = expect_record(plain, "vote", (int, int, int, bytes, int, int, bytes, bytes))
        expect_size(fields[2], HASH_SIZE, "vote block hash")
        expect_size(fields[5], PUBLIC_KEY_SIZE, "vote voter")
        expect_size(fields[6], SIGNATURE_SIZE, "vote signature")
        vote = cls(read_kind(kind), *fields)
        return vote if turnout is None else replace(vote, turnout=turnout)

    def signing_message(self, chain_id: Hash) -> bytes:
        """The bytes that the voter signs."""
        return signing_message(chain_id, "vote", encode(self._signed_fields()))

    def _signed_fields(self) -> list[Any]:
        return [
            int(self.kind),
            self.height,
            self.attempt,
            self.block_hash,
            self.clock_ms,
            self.mining_ms,
            self.voter,
            *turnout_fields(self.turnout),
        ]


def turnout_fields(turnout: Turnout | None) -> list[Any]:
    """The fields of a turnout in a record, which has one more if there is one."""
    return [] if turnout is None else [turnout.to_record()]


def split_turnout(value: Any, size: int) -> tuple[Turnout | None, Any]:
    """A record's turnout, which stands before the signature, and the record of ``size`` fields without it.

    Raises InvalidEncoding.
    """
    if type(value) is not list or len(value) != size + 1:
        return None, value
    return Turnout.from_record(value[-2]), [*value[:-2], value[-1]]


def read_kind(value: int) -> VoteKind:
    """The kind with this number; raises InvalidEncoding."""
    if value not in (VoteKind.PREVOTE, VoteKind.PRECOMMIT):
        raise InvalidEncoding("vote kind", f"{value} found, 1 or 2 expected")
    return VoteKind(value)


def sign_vote(
    key: PrivateKey,
    chain_id: Hash,
    slot: Slot,
    block_hash: Hash,
    *,
    clock_ms: int = 0,
    mining_ms: int = 0,
    turnout: Turnout | None = None,
) -> Vote:
    """Make a vote and sign it with ``key``."""
    height, attempt, kind = slot
    unsigned = clock_ms, mining_ms, key.public_key, bytes(SIGNATURE_SIZE), turnout
    draft = Vote(VoteKind(kind), height, attempt, block_hash, *unsigned)
    return replace(draft, signature=key.sign(draft.signing_message(chain_id)))
