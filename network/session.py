"""A session: one running process says that it has a member's key. It is how two processes with one key find each other.

Every process draws a random number when it starts. A peer that keeps a member's words can say them again, but
words that name a number drawn just now come from a process that runs.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from fedchain.chain.encoding import encode, expect_record, expect_size, signing_message
from fedchain.chain.exceptions import InvalidEncoding
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PUBLIC_KEY_SIZE, SIGNATURE_SIZE, PrivateKey, PublicKey, Signature

SESSION_SIZE = 16
"""Bytes of a session's number."""

NOBODY = b""
"""The value for the other session if none was heard."""


@dataclass(frozen=True, slots=True)
class Session:
    """A process's signed word that it has a member's key."""

    member: PublicKey
    """32 bytes: the member that owns the key."""
    number: bytes
    """16 bytes, drawn at random when the process started."""
    heard: bytes
    """16 bytes: the number of another session of the same key, which this one answers; ``NOBODY``: it answers none."""
    height: int
    """Height of the process's head. Others pass on statements made at their own height, and no older ones."""
    sequence: int
    """Number of earlier such statements of the process: a repeated one is news, and is passed on again."""
    signature: Signature = field(repr=False)
    """64 bytes: the member's, over everything above."""
    _message: tuple[Hash, bytes] | None = field(init=False, repr=False, compare=False, default=None)

    def to_record(self) -> list[Any]:
        """The canonical fields."""
        return [*self._signed_fields(), self.signature]

    @classmethod
    def from_record(cls, value: Any) -> "Session":
        """Read the canonical fields; raises InvalidEncoding."""
        member, number, heard, height, sequence, signature = expect_record(
            value, "session", (bytes, bytes, bytes, int, int, bytes)
        )
        expect_size(member, PUBLIC_KEY_SIZE, "session member")
        expect_size(number, SESSION_SIZE, "session number")
        if len(heard) not in (0, SESSION_SIZE):
            raise InvalidEncoding("session heard", f"{len(heard)} bytes found, 0 or {SESSION_SIZE} expected")
        expect_size(signature, SIGNATURE_SIZE, "session signature")
        return cls(member, number, heard, height, sequence, signature)

    def signing_message(self, chain_id: Hash) -> bytes:
        """The message that the member signs."""
        known = self._message  # kept: in a simulation all members look its signature up
        if known is None or known[0] != chain_id:
            known = chain_id, signing_message(chain_id, "session", encode(self._signed_fields()))
            object.__setattr__(self, "_message", known)
        return known[1]

    def _signed_fields(self) -> list[Any]:
        return [self.member, self.number, self.heard, self.height, self.sequence]


def sign_session(
    key: PrivateKey, chain_id: Hash, number: bytes, *, heard: bytes = NOBODY, height: int, sequence: int
) -> Session:
    """Say in the name of ``key`` that the process ``number`` has it."""
    draft = Session(key.public_key, number, heard, height, sequence, bytes(SIGNATURE_SIZE))
    return replace(draft, signature=key.sign(draft.signing_message(chain_id)))
