"""A light block: a final block without its posts, and the bytes of it that servers hand out."""

from dataclasses import dataclass, field
from typing import Any

from fedchain.chain.block import Header
from fedchain.chain.certificate import Certificate
from fedchain.chain.encoding import decode, encode, expect_record, expect_size
from fedchain.chain.evidence import EVIDENCE_MAX, Evidence
from fedchain.chain.exceptions import (
    InvalidEncoding,
)
from fedchain.chain.genesis import Genesis
from fedchain.chain.state import (
    CRIME_SIZE_MAX,
    genesis_state,
    state_size_max,
)
from fedchain.crypto.hashing import HASH_SIZE, Hash
from fedchain.crypto.keys import PUBLIC_KEY_SIZE, SIGNATURE_SIZE

HEADER_SIZE_MAX = 512
"""Most bytes of an encoded header, the chain id and the frames around both."""


@dataclass(frozen=True, slots=True)
class LightBlock:
    """A final block without its posts: all that a light client needs of it."""

    chain_id: Hash
    """32 bytes: the chain that the block is said to be of."""
    header: Header
    certificate: Certificate
    """Precommits that make the block final."""
    evidence: tuple[Evidence, ...] = ()
    """Crimes that the block proves: their culprits vote no more from the next height on."""
    state: bytes = field(default=b"", repr=False)
    """The encoded state that the block stands on; empty where the block below is trusted already."""

    def to_record(self) -> list[Any]:
        """The canonical fields; the state is a list of none or one."""
        return [
            self.chain_id,
            self.header.to_record(),
            self.certificate.to_record(),
            [item.to_record() for item in self.evidence],
            [self.state] if self.state else [],
        ]

    @classmethod
    def from_record(cls, value: Any) -> "LightBlock":
        """Read the canonical fields; raises InvalidEncoding."""
        kinds = (bytes, list, list, list, list)
        chain_id, header, certificate, evidence, state = expect_record(value, "light block", kinds)
        if len(evidence) > EVIDENCE_MAX:
            raise InvalidEncoding("light block", f"{len(evidence)} crimes found, at most {EVIDENCE_MAX} fit")
        (data,) = expect_record(state, "light block state", (bytes,)) if state else (b"",)
        if state and not data:
            raise InvalidEncoding("light block state", "an empty one is not written")
        return cls(
            expect_size(chain_id, HASH_SIZE, "light block chain"),
            Header.from_record(header),
            Certificate.from_record(certificate),
            tuple(Evidence.from_record(item) for item in evidence),
            data,
        )

    def encode(self) -> bytes:
        """The block's one byte string."""
        return encode(self.to_record())

    @classmethod
    def decode(cls, data: bytes, size_max: int) -> "LightBlock":
        """Read :meth:`encode`'s bytes; raises InvalidEncoding."""
        return cls.from_record(decode(data, size_max))


def light_block_size_max(genesis: Genesis) -> int:
    """Most bytes of an encoded light block of a federation: a client need not read more, whatever a server sends."""
    of_vote = PUBLIC_KEY_SIZE + SIGNATURE_SIZE + 32  # key, signature, two numbers and the frames around them
    votes = len(genesis_state(genesis).roster) * of_vote
    return HEADER_SIZE_MAX + votes + EVIDENCE_MAX * CRIME_SIZE_MAX + state_size_max(genesis)
