"""A block closes one phase: the posts it counts, the votes that made its parent final, and crimes that it proves.

The header commits to everything else, so a block's hash names exactly one byte string apart from the miner's own
signature, which only the miner can make. It holds no time: a block's time and its mining time are medians over the
precommits that make it final, which the next block carries.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from typing import Any

from fedchain.chain.certificate import Certificate
from fedchain.chain.encoding import decode, encode, expect_record, expect_size, signing_message
from fedchain.chain.evidence import Evidence
from fedchain.chain.membership.change import CHANGES_VERSION, Change
from fedchain.chain.merkle import merkle_root
from fedchain.chain.post import Post
from fedchain.crypto.hashing import HASH_SIZE, ZERO_HASH, Hash, sha256
from fedchain.crypto.keys import PUBLIC_KEY_SIZE, SIGNATURE_SIZE, PrivateKey, PublicKey, Signature

_payload_hash = attrgetter("payload_hash")


@dataclass(frozen=True, slots=True)
class Header:
    """The part of a block that the proof of work seals. The fields are encoded in this order, but the nonce last."""

    version: int
    """Format of the block: the version in force."""
    parent_hash: Hash
    """32 bytes: the block before this one; the chain id for the first block."""
    height: int
    """Blocks before this one; the genesis document counts as height 0."""
    round: int
    """Round that the block belongs to."""
    phase: int
    """Phase that the block closes."""
    transactions_root: Hash
    """32 bytes: Merkle root over the hashes of the transactions."""
    certificate_root: Hash
    """32 bytes: hash of the certificate of the parent."""
    evidence_root: Hash
    """32 bytes: Merkle root over the hashes of the evidence."""
    state_root: Hash
    """32 bytes: hash of the state that the block stands on. With it a peer that joins needs no older block."""
    knowledge_root: Hash
    """32 bytes: SHA-256 of the knowledge that the phase leaves behind."""
    bits: int
    """Difficulty in compact form. (Bitcoin: nBits)"""
    miner: PublicKey
    """32 bytes: the member that mined the block."""
    nonce: int
    """The number that mining searches for, below 2⁶⁴."""
    changes_root: Hash = ZERO_HASH
    """32 bytes: Merkle root over the changes of the membership; not written before version 3."""
    members_root: Hash = ZERO_HASH
    """32 bytes: hash of the member set behind the block, which decides the next one; not written before version 3."""
    hash: Hash = field(init=False, repr=False, compare=False)
    """32 bytes: SHA-256 of the encoded header; the identity of the block."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "hash", sha256(encode(self.to_record())))

    def writes(self, name: str) -> bool:
        """Whether the field with this name is among the canonical ones."""
        return name not in ("changes_root", "members_root") or self.version >= CHANGES_VERSION

    def seal(self) -> Hash:
        """32 bytes: hash of everything but the nonce; the input of the proof of work."""
        return sha256(encode(self.to_record()[:-1]))

    def to_record(self) -> list[Any]:
        """The canonical fields; those of version 3 have two more roots before the nonce."""
        roots = [self.changes_root, self.members_root] if self.version >= CHANGES_VERSION else []
        return [
            self.version,
            self.parent_hash,
            self.height,
            self.round,
            self.phase,
            self.transactions_root,
            self.certificate_root,
            self.evidence_root,
            self.state_root,
            self.knowledge_root,
            self.bits,
            self.miner,
            *roots,
            self.nonce,
        ]

    @classmethod
    def from_record(cls, value: Any) -> "Header":
        """Read the canonical fields; raises InvalidEncoding."""
        kinds: tuple[type, ...] = (int, bytes, int, int, int, bytes, bytes, bytes, bytes, bytes, int, bytes, int)
        hashes: tuple[int, ...] = (1, 5, 6, 7, 8, 9)
        if type(value) is list and value and type(value[0]) is int and value[0] >= CHANGES_VERSION:
            kinds, hashes = (*kinds[:-1], bytes, bytes, int), (*hashes, 12, 13)
        fields = expect_record(value, "header", kinds)
        for position in hashes:
            expect_size(fields[position], HASH_SIZE, f"header field {position}")
        expect_size(fields[11], PUBLIC_KEY_SIZE, "header miner")
        return cls.from_fields(fields)

    @classmethod
    def from_fields(cls, fields: Sequence[Any]) -> "Header":
        """Take canonical fields that were read before."""
        before, roots, nonce = fields[:12], fields[12:-1], fields[-1]
        return cls(*before, nonce, *roots)  # type: ignore[call-arg]


@dataclass(frozen=True, slots=True)
class Block:
    """A header and the body that it commits to."""

    header: Header
    signature: Signature = field(repr=False)
    """64 bytes: the miner's, over the block's hash. Without it anyone could mine in the aggregator's name."""
    transactions: tuple[Post, ...]
    """The posts of the phase, in sender order."""
    certificate: Certificate | None
    """Precommits that made the parent final; None for the first block."""
    evidence: tuple[Evidence, ...] = ()
    """Crimes that this block proves, in the order of their hashes."""
    changes: tuple[Change, ...] = ()
    """Changes of the membership that this block counts, in the order of their hashes."""
    payload_hashes: tuple[Hash, ...] = field(init=False, repr=False, compare=False)
    """Hashes of the posts' payloads, in the order of the posts."""
    senders: frozenset[PublicKey] = field(init=False, repr=False, compare=False)
    """Senders of the posts that were made for the block's own round; the other posts are late ones."""

    def __post_init__(self) -> None:
        made_for = self.header.round
        object.__setattr__(self, "payload_hashes", tuple(map(_payload_hash, self.transactions)))
        senders = frozenset([post.sender for post in self.transactions if post.round == made_for])
        object.__setattr__(self, "senders", senders)

    @property
    def hash(self) -> Hash:
        """32 bytes: the identity of the block."""
        return self.header.hash

    def to_record(self) -> list[Any]:
        """The canonical fields; an optional one is a list of none or one. Changes are not written before version 3."""
        changes = [change.to_record() for change in self.changes]
        return [
            self.header.to_record(),
            self.signature,
            [post.to_record() for post in self.transactions],
            [] if self.certificate is None else [self.certificate.to_record()],
            [evidence.to_record() for evidence in self.evidence],
            *([changes] if self.header.version >= CHANGES_VERSION else []),
        ]

    @classmethod
    def from_record(cls, value: Any) -> "Block":
        """Read the canonical fields; raises InvalidEncoding."""
        header, signature, transactions, certificate, evidence, changes = read_parts(value)
        parent = expect_record(certificate, "block certificate", (list,)) if certificate else [None]
        return cls(
            header,
            expect_size(signature, SIGNATURE_SIZE, "block signature"),
            tuple(Post.from_record(record) for record in transactions),
            None if parent[0] is None else Certificate.from_record(parent[0]),
            tuple(Evidence.from_record(record) for record in evidence),
            tuple(Change.from_record(record) for record in changes),
        )

    def encode(self) -> bytes:
        """The block's one byte string."""
        return encode(self.to_record())

    @classmethod
    def decode(cls, data: bytes, size_max: int) -> "Block":
        """Read :meth:`encode`'s bytes; raises InvalidEncoding."""
        return cls.from_record(decode(data, size_max))


def read_parts(value: Any) -> tuple[Header, bytes, list[Any], list[Any], list[Any], list[Any]]:
    """Header, signature, and the records of posts, certificate (none or one), evidence and changes of a block's record.

    Raises InvalidEncoding.
    """
    kinds: tuple[type, ...] = (list, bytes, list, list, list)
    # The header, which says what belongs to the body, comes first.
    if type(value) is not list or not value or type(value[0]) is not list:
        expect_record(value, "block", kinds)
    header = Header.from_record(value[0])
    if header.version >= CHANGES_VERSION:
        kinds = (*kinds, list)
    _, signature, transactions, certificate, evidence, *changes = expect_record(value, "block", kinds)
    return header, signature, transactions, certificate, evidence, changes[0] if changes else []


def transactions_root(transactions: Sequence[Post]) -> Hash:
    """Merkle root over the transactions' hashes."""
    return _root_over(tuple([post.hash for post in transactions]))


@lru_cache(maxsize=8)
def _root_over(hashes: tuple[Hash, ...]) -> Hash:
    """Cached: a miner computes the root of the same posts as other miners, and a simulation does so for every peer."""
    return merkle_root(hashes)


def evidence_root(evidence: Sequence[Evidence]) -> Hash:
    """Merkle root over the hashes of the evidence."""
    return merkle_root([item.hash for item in evidence])


def block_signing_message(chain_id: Hash, block_hash: Hash) -> bytes:
    """The bytes that the miner signs."""
    return signing_message(chain_id, "block", block_hash)


def sign_block(
    key: PrivateKey,
    chain_id: Hash,
    header: Header,
    transactions: tuple[Post, ...],
    certificate: Certificate | None,
    evidence: tuple[Evidence, ...] = (),
    changes: tuple[Change, ...] = (),
) -> Block:
    """Join a sealed header and its body, and sign the block as its miner."""
    signature = key.sign(block_signing_message(chain_id, header.hash))
    return Block(header, signature, transactions, certificate, evidence, changes)
