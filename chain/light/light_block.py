"""A light block: a final block without its posts, and the bytes of it that servers hand out."""

from dataclasses import dataclass, field, replace
from typing import Any

from fedchain.chain.block import Header
from fedchain.chain.certificate import Certificate
from fedchain.chain.encoding import decode, encode, expect_record, expect_size
from fedchain.chain.evidence import EVIDENCE_MAX, Evidence
from fedchain.chain.exceptions import (
    InvalidBlock,
    InvalidEncoding,
)
from fedchain.chain.genesis import Genesis
from fedchain.chain.membership.change import CHANGES_VERSION
from fedchain.chain.membership.member_set import MemberSet
from fedchain.chain.state import (
    CRIME_SIZE_MAX,
    STATE_SIZE_MAX,
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
    members: MemberSet | None = None
    """From version 3 on, in place of crimes: the member set that decides this height."""
    below: Header | None = None
    """From version 3 on, in place of the state: the header below, which names that set."""

    @property
    def is_alone(self) -> bool:
        """Whether nothing comes with the block that proves its electors to somebody that trusts no block below it."""
        return not self.state and self.below is None

    def alone(self) -> "LightBlock":
        """The block without that proof, as it follows on a trusted one."""
        return replace(self, state=b"", below=None)

    def to_record(self) -> list[Any]:
        """The canonical fields; the last is a list of none or one."""
        parts: list[Any] = [[item.to_record() for item in self.evidence], [self.state] if self.state else []]
        if self.members is not None:
            parts = [self.members.to_record(), [] if self.below is None else [self.below.to_record()]]
        return [self.chain_id, self.header.to_record(), self.certificate.to_record(), *parts]

    @classmethod
    def from_record(cls, value: Any) -> "LightBlock":
        """Read the canonical fields; raises InvalidEncoding."""
        kinds = (bytes, list, list, list, list)
        chain_id, sealed, certificate, evidence, state = expect_record(value, "light block", kinds)
        expect_size(chain_id, HASH_SIZE, "light block chain")
        header, votes = Header.from_record(sealed), Certificate.from_record(certificate)
        if header.version >= CHANGES_VERSION:
            (below,) = expect_record(state, "light block parent", (list,)) if state else (None,)
            parent = None if below is None else Header.from_record(below)
            return cls(chain_id, header, votes, members=MemberSet.from_record(evidence), below=parent)
        if len(evidence) > EVIDENCE_MAX:
            raise InvalidEncoding("light block", f"{len(evidence)} crimes found, at most {EVIDENCE_MAX} fit")
        (data,) = expect_record(state, "light block state", (bytes,)) if state else (b"",)
        if state and not data:
            raise InvalidEncoding("light block state", "an empty one is not written")
        return cls(chain_id, header, votes, tuple(Evidence.from_record(item) for item in evidence), data)

    def encode(self) -> bytes:
        """The block's one byte string."""
        return encode(self.to_record())

    @classmethod
    def decode(cls, data: bytes, size_max: int) -> "LightBlock":
        """Read :meth:`encode`'s bytes; raises InvalidEncoding."""
        return cls.from_record(decode(data, size_max))


def light_block_size_max(genesis: Genesis) -> int:
    """Most bytes of an encoded light block of a federation: a client need not read more, whatever a server sends."""
    if genesis.version >= CHANGES_VERSION:  # there may be more members by now
        return STATE_SIZE_MAX
    of_vote = PUBLIC_KEY_SIZE + SIGNATURE_SIZE + 32  # key, signature, two numbers and the frames around them
    votes = len(genesis_state(genesis).roster) * of_vote
    return HEADER_SIZE_MAX + votes + EVIDENCE_MAX * CRIME_SIZE_MAX + state_size_max(genesis)


def expect(condition: bool, rule: str, found: str, expected: str) -> None:
    """A rule of light blocks. Raises InvalidBlock."""
    if not condition:
        raise InvalidBlock(rule, f"{found}, {expected} expected")
