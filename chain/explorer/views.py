"""What the explorer answers: a chain, its blocks, posts, members, rounds and knowledge, as people ask for them.

Members are named by their address and hashes are raw bytes. The fields of an answer are its JSON and the lines of its
table.
"""

from dataclasses import dataclass

from fedchain.chain.block import Header
from fedchain.chain.merkle import MerkleProof, is_in_tree
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey


@dataclass(frozen=True, slots=True)
class Status:
    """The chain at a glance."""

    chain_id: Hash
    """32 bytes: hash of the genesis document."""
    name: str
    """What people call the federation."""
    created_ms: int
    """When it was founded, in milliseconds since the Unix epoch."""
    height: int
    """Blocks on the head's chain."""
    head: Hash
    """32 bytes: the newest accepted block."""
    timestamp_ms: int
    """The head's timestamp, in milliseconds since the Unix epoch."""
    round: int
    """Round that the next block belongs to; the last round once that is closed."""
    phase: str | None
    """Phase that the next block closes; None once the last round is closed."""
    finished: bool
    """Whether the last round is closed."""
    work: int
    """Expected number of hashes behind the head's chain."""
    bits: int
    """Difficulty of the next block, in compact form."""
    hashes_per_block: int
    """The same as the expected number of hashes."""
    members: int
    """Members in the genesis document."""
    electorate: int
    """Members whose votes count for the next block."""
    votes: int
    """Votes for the head."""
    votes_required: int
    """Votes it took to accept the head."""
    forks: int
    """Valid blocks that are not on the head's chain."""
    posts: int
    """Posts on the head's chain."""
    payload_bytes: int
    """Bytes of their payloads, kept or not."""


@dataclass(frozen=True, slots=True)
class BlockSummary:
    """A block in a list."""

    height: int
    """Blocks before it, the genesis document included."""
    hash: Hash
    """32 bytes: its identity."""
    round: int
    """Round that it belongs to."""
    phase: str
    """Phase that it closes."""
    miner: str
    """Address of the member that mined it."""
    timestamp_ms: int
    """The miner's clock, in milliseconds since the Unix epoch."""
    mining_time_ms: int
    """From its newest post to its timestamp, in milliseconds."""
    posts: int
    """Posts that it counts."""
    votes: int
    """Votes for it that are known."""


@dataclass(frozen=True, slots=True)
class PostView:
    """A post."""

    hash: Hash
    """32 bytes: identity of the transaction."""
    round: int
    """Round that it contributes to."""
    phase: str
    """Phase that it contributes to."""
    sender: str
    """Address of the member that posted."""
    timestamp_ms: int
    """The sender's clock, in milliseconds since the Unix epoch."""
    payload_hash: Hash
    """32 bytes: SHA-256 of the payload."""
    payload_size: int
    """Bytes of the payload."""
    payload_kept: bool
    """Whether the payload is held here."""


@dataclass(frozen=True, slots=True)
class BlockView:
    """A block in full."""

    summary: BlockSummary
    """What a list shows of it."""
    header: Header
    """What the proof of work seals."""
    on_head_chain: bool
    """False for a fork."""
    accepted: bool
    """Whether it has its quorum of votes."""
    transactions: tuple[PostView, ...]
    """Posts, in sender order."""
    missing: tuple[str, ...]
    """Addresses of the members that were due and whose posts it does not count."""
    voters: tuple[str, ...]
    """Addresses of the members that voted for it."""


@dataclass(frozen=True, slots=True)
class TransactionView:
    """A post and where it stands."""

    post: PostView
    """The post itself."""
    block: BlockSummary
    """The block that counts it."""
    on_head_chain: bool
    """Whether that block is on the head's chain."""


@dataclass(frozen=True, slots=True)
class PeerView:
    """What a member did."""

    address: str
    """Its libp2p peer id."""
    public_key: PublicKey
    """32 bytes."""
    elector: bool
    """Whether its vote counts for the next block."""
    posts: int
    """Posts of it that were counted."""
    payload_bytes: int
    """Bytes of their payloads."""
    blocks_mined: int
    """Blocks that it mined."""
    votes: int
    """Blocks that it voted for, as far as its votes are known."""
    last_round: int | None
    """Round of its last counted post; None if it never posted."""
    missed: int
    """Phases in a row, up to the head, in which it was due and did not post."""


@dataclass(frozen=True, slots=True)
class Absence:
    """A post that was due and that the block does not count."""

    phase: str
    """The phase."""
    member: str
    """Address of the member."""


@dataclass(frozen=True, slots=True)
class RoundView:
    """A round."""

    round: int
    """Its number; 0 holds the setup."""
    finished: bool
    """Whether all of its phases are closed."""
    blocks: tuple[BlockSummary, ...]
    """One for each closed phase."""
    transactions: tuple[PostView, ...]
    """Posts, by phase and sender."""
    missing: tuple[Absence, ...]
    """Who was due and is not among them, by phase and address."""


@dataclass(frozen=True, slots=True)
class Prototype:
    """A class prototype."""

    label: int
    """The class."""
    holders: int
    """Members behind it."""
    norm: float
    """L2 norm."""
    cosines: tuple[float, ...]
    """Cosine with each prototype, in order of the labels."""


@dataclass(frozen=True, slots=True)
class KnowledgeView:
    """What a finished round left behind."""

    round: int
    """The round."""
    height: int
    """Height of the block that closed it."""
    knowledge_root: Hash
    """32 bytes: SHA-256 of the knowledge."""
    size_bytes: int
    """Bytes of the knowledge."""
    prototypes: tuple[Prototype, ...] | None
    """By label; None for a method without class prototypes."""


@dataclass(frozen=True, slots=True)
class TransactionProof:
    """That a block counts a post, for somebody who holds nothing but headers."""

    block_hash: Hash
    """32 bytes: the block."""
    header: Header
    """Its header, whose hash is ``block_hash``."""
    merkle: MerkleProof
    """From the transaction's hash to the header's ``transactions_root``."""


def is_proven(proof: TransactionProof) -> bool:
    """Whether the proof holds. That the header is on the chain is for its reader to know."""
    return proof.header.hash == proof.block_hash and is_in_tree(proof.merkle, proof.header.transactions_root)
