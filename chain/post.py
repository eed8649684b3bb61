"""A post: one member's signed promise of a payload for one phase of one round. The payload itself travels beside it.

The posts are the transactions of a block. A post carries no time: whether it was in time is judged by its arrival.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from fedchain.chain.encoding import encode, expect_record, expect_size, signing_message
from fedchain.crypto.hashing import HASH_SIZE, Hash, sha256
from fedchain.crypto.keys import PUBLIC_KEY_SIZE, SIGNATURE_SIZE, PrivateKey, PublicKey, Signature

PostKey = tuple[int, int, PublicKey]
"""(round, phase, sender): there is at most one post under each."""


@dataclass(frozen=True, slots=True)
class Post:
    """A signed promise: "this payload is what I contribute to this phase of this round"."""

    round: int
    """Round, from 1; 0 holds the phases that run once before the first round."""
    phase: int
    """Place of the phase in its round, from 0."""
    sender: PublicKey
    """32 bytes: the member that posts."""
    payload_hash: Hash
    """32 bytes: SHA-256 of the payload."""
    payload_size: int
    """Bytes of the payload."""
    signature: Signature = field(repr=False)
    """64 bytes: the sender's, over everything above."""
    hash: Hash = field(init=False, repr=False, compare=False)
    """32 bytes: identity of the post, signature included."""
    _message: tuple[Hash, bytes] | None = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        object.__setattr__(self, "hash", sha256(encode(self.to_record())))

    @property
    def key(self) -> PostKey:
        """The key under which at most one post exists."""
        return self.round, self.phase, self.sender

    def to_record(self) -> list[Any]:
        """The canonical fields."""
        return [*self._signed_fields(), self.signature]

    @classmethod
    def from_record(cls, value: Any) -> "Post":
        """Read the canonical fields; raises InvalidEncoding."""
        fields = expect_record(value, "post", (int, int, bytes, bytes, int, bytes))
        expect_size(fields[2], PUBLIC_KEY_SIZE, "post sender")
        expect_size(fields[3], HASH_SIZE, "post payload hash")
        expect_size(fields[5], SIGNATURE_SIZE, "post signature")
        return cls(*fields)

    def signing_message(self, chain_id: Hash) -> bytes:
        """The bytes that the sender signs. Their domain is "transaction", as it has been from the start."""
        known = self._message  # kept: every block that counts the post has its signature looked up again
        if known is None or known[0] != chain_id:
            known = chain_id, signing_message(chain_id, "transaction", encode(self._signed_fields()))
            object.__setattr__(self, "_message", known)
        return known[1]

    def _signed_fields(self) -> list[Any]:
        return [self.round, self.phase, self.sender, self.payload_hash, self.payload_size]


def sign_post(key: PrivateKey, chain_id: Hash, round_number: int, phase: int, payload: bytes) -> Post:
    """Post ``payload`` to ``phase`` of ``round_number``, signed by ``key``. Same payload, same bytes."""
    draft = Post(round_number, phase, key.public_key, sha256(payload), len(payload), bytes(SIGNATURE_SIZE))
    return replace(draft, signature=key.sign(draft.signing_message(chain_id)))
