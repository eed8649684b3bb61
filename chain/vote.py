"""A vote: "I recomputed this block and it is valid". Votes gate the chain, they do not choose between valid blocks.

A member may vote for several blocks of one height, so there is nothing to equivocate.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from fedchain.chain.encoding import encode, expect_record, expect_size, signing_message
from fedchain.crypto.hashing import HASH_SIZE, Hash, sha256
from fedchain.crypto.keys import PUBLIC_KEY_SIZE, SIGNATURE_SIZE, PrivateKey, PublicKey, Signature


@dataclass(frozen=True, slots=True)
class Vote:
    """One member's signed acceptance of one block."""

    block_hash: Hash
    """32 bytes: the block voted for."""
    round: int
    """Round that the block belongs to."""
    phase: int
    """Phase that the block closes."""
    voter: PublicKey
    """32 bytes: the member that votes."""
    signature: Signature = field(repr=False)
    """64 bytes: the voter's, over everything above."""

    @property
    def hash(self) -> Hash:
        """32 bytes: leaf of the votes' Merkle tree."""
        return sha256(encode(self.to_record()))

    def to_record(self) -> list[Any]:
        """The canonical fields."""
        return [self.block_hash, self.round, self.phase, self.voter, self.signature]

    @classmethod
    def from_record(cls, value: Any) -> "Vote":
        """Read the canonical fields; raises InvalidEncoding."""
        fields = expect_record(value, "vote", (bytes, int, int, bytes, bytes))
        expect_size(fields[0], HASH_SIZE, "vote block hash")
        expect_size(fields[3], PUBLIC_KEY_SIZE, "vote voter")
        expect_size(fields[4], SIGNATURE_SIZE, "vote signature")
        return cls(*fields)

    def signing_message(self, chain_id: Hash) -> bytes:
        """What the voter signs."""
        return signing_message(chain_id, "vote", encode([self.block_hash, self.round, self.phase, self.voter]))


def sign_vote(key: PrivateKey, chain_id: Hash, block_hash: Hash, round_number: int, phase: int) -> Vote:
    """Accept a block in the name of ``key``."""
    draft = Vote(block_hash, round_number, phase, key.public_key, bytes(SIGNATURE_SIZE))
    return replace(draft, signature=key.sign(draft.signing_message(chain_id)))
