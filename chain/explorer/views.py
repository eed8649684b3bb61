"""The explorer's answers: a chain, its blocks, posts, rounds and knowledge, as people ask for them.

Members are named by their address and hashes are raw bytes. The fields of an answer are its JSON and the lines of its
table.
"""

from dataclasses import dataclass

from fedchain.chain.block import Header
from fedchain.chain.explorer.member_views import ChangeView, Conviction
from fedchain.chain.merkle import MerkleProof, is_in_tree
from fedchain.crypto.hashing import Hash


@dataclass(frozen=True, slots=True)
class ChainStatus:
    """The chain at a glance."""

    chain_id: Hash
    """32 bytes: hash of the genesis document."""
    name: str
    """Name of the federation, for people."""
    created_ms: int
    """When it was founded, in milliseconds since the Unix epoch."""
    height: int
    """Final blocks of the chain."""
    base: int
    """Lowest height from which on every block is held; above 1 for a peer that joined late."""
    head: Hash
    """32 bytes: the newest final block."""
    time_ms: int
    """Its time, in milliseconds since the Unix epoch."""
    state_root: Hash
    """32 bytes: hash of the state behind it, to which the next block commits."""
    round: int
    """Round that the next block belongs to; the last round once that is closed."""
    phase: str | None
    """Phase that the next block closes; None once the last round is closed."""
    finished: bool
    """Whether the last round is closed."""
    work: int
    """Expected number of hashes behind the whole chain."""
    bits: int
    """Difficulty of the next block, in compact form; that of a member may be another one."""
    hashes_per_block: int
    """The same difficulty as the expected number of hashes."""
    members: int
    """The founders and all that joined since, those that are gone among them."""
    aggregator: str | None
    """Address of the designated aggregator of that round; None if there is none."""
    fault_model: str
    """Faults that the chain tolerates: byzantine or crash."""
    electors: int
    """Members whose votes decide the next block."""
    quorum: int
    """How many of their votes make it final."""
    liars_max: int
    """How many of them may lie without breaking the chain's guarantees."""
    votes: int
    """Precommits that made the head final."""
    candidates: int
    """Open candidates: blocks that may still become final."""
    posts: int
    """Posts in the blocks that are held."""
    payload_bytes: int
    """Bytes of their payloads, kept or not."""
    convictions: tuple[Conviction, ...]
    """Members that were convicted, in the order of the chain."""


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
    time_ms: int | None
    """Its time, in milliseconds since the Unix epoch: the median of its voters' clocks; None for a candidate."""
    mining_time_ms: int | None
    """How long it was mined, in milliseconds: the median of its voters' measurements; None for a candidate."""
    posts: int
    """Posts that it counts."""
    votes: int
    """Precommits that made it final; 0 for a candidate."""


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
    payload_hash: Hash
    """32 bytes: SHA-256 of the payload."""
    payload_size: int
    """Bytes of the payload."""
    payload_kept: bool
    """Whether the payload is held here."""


@dataclass(frozen=True, slots=True)
class CertificateView:
    """The certificate that made a block final."""

    hash: Hash
    """32 bytes: the certificate's hash, to which the next block's header commits."""
    attempt: int
    """Attempt in which its voters agreed, from 0."""
    clock_ms: int
    """Median of the voters' clocks, in milliseconds since the Unix epoch."""
    mining_time_ms: int
    """Median of the mining times that the voters saw, in milliseconds."""
    quorum: int | None
    """Votes that were enough; None if the first block of its round is not held."""


@dataclass(frozen=True, slots=True)
class Voter:
    """One precommit of a certificate."""

    member: str
    """Address of the voter."""
    clock_offset_ms: int
    """By how much its clock was ahead of the median, in milliseconds; negative: behind."""
    mining_time_ms: int
    """How long the block was mined as it saw it, in milliseconds."""


@dataclass(frozen=True, slots=True)
class LostBlock:
    """A block for a height that another block won, as far as peers report it."""

    hash: str
    """Its identity, in hexadecimal."""
    miner: str
    """Address of the member that mined it."""
    posts: int
    """Posts that it counts."""
    knowledge_root: str
    """The aggregate that it would have left behind: SHA-256 of the knowledge, in hexadecimal."""
    seen_by: int
    """Peers that received it."""
    verdict: str
    """``not taken``: some peer found it valid; ``refused``: peers refused it, and none found it valid; ``not judged``:
    none had recomputed it when the height was decided."""
    reasons: tuple[str, ...]
    """Why peers refused it."""


@dataclass(frozen=True, slots=True)
class FailedAttemptView:
    """An attempt to agree on a block that ended without a decision."""

    attempt: int
    """Its number, from 0."""
    reasons: tuple[str, ...]
    """Why peers left it, by the votes that they held."""


@dataclass(frozen=True, slots=True)
class BlockView:
    """A block in full."""

    summary: BlockSummary
    """Its summary, as in a list."""
    is_final: bool
    """False for an open candidate."""
    header: Header
    """Its header, which the proof of work seals."""
    transactions: tuple[PostView, ...]
    """Posts, in sender order."""
    missing: tuple[str, ...] | None
    """Addresses of the members that could post but whose posts it does not count; None if that is not known here, since
    the first block of its round is not held."""
    convictions: tuple[Conviction, ...]
    """Crimes that it proves."""
    changes: tuple[ChangeView, ...]
    """Changes of the membership that it counts."""
    certificate: CertificateView | None
    """Certificate that made it final; None for a candidate."""
    voters: tuple[Voter, ...]
    """Members that precommitted it, in the order of their addresses."""
    could_vote: tuple[str, ...] | None
    """Addresses of the members whose votes decided; None for the same reason."""
    lost: tuple[LostBlock, ...] | None = None
    """Blocks that lost to it; None if no peer's observations are at hand."""
    failed: tuple[FailedAttemptView, ...] = ()
    """Attempts before the one in which its voters agreed, as far as peers report why they failed."""


@dataclass(frozen=True, slots=True)
class TransactionView:
    """A post and the block that counts it."""

    post: PostView
    """The post itself."""
    block: BlockSummary
    """The block that counts it."""
    is_final: bool
    """Whether that block is final; otherwise it is an open candidate."""


@dataclass(frozen=True, slots=True)
class Absence:
    """A post that could have come but that the block does not count."""

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
    aggregator: str | None
    """Address of its designated aggregator; None if there is none."""
    blocks: tuple[BlockSummary, ...]
    """One for each closed phase."""
    transactions: tuple[PostView, ...]
    """Posts, by phase and sender."""
    missing: tuple[Absence, ...]
    """Posts that could have come but are not among them, by phase and address."""


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


NAMED_READERS = ("everybody", "aggregator", "next aggregator")
"""Readers of parts that are not named by an address."""


@dataclass(frozen=True, slots=True)
class PartsView:
    """Parts that one member listed for one reader: their bytes are no part of the chain."""

    round: int
    """Round of the post; 0 is the setup."""
    sender: str
    """Address of the member."""
    reader: str
    """Address of the member that reads them, everybody, the aggregator or the next aggregator."""
    count: int
    """How many."""
    size_bytes: int
    """Bytes of all of them, as they travel."""


@dataclass(frozen=True, slots=True)
class KnowledgeView:
    """The knowledge that a finished round left behind."""

    round: int
    """The round."""
    height: int
    """Height of the block that closed it."""
    knowledge_root: Hash
    """32 bytes: SHA-256 of the knowledge."""
    size_bytes: int
    """Bytes of the knowledge."""
    prototypes: tuple[Prototype, ...] | None
    """Class prototypes by label; None for a method without any."""
    parts: tuple[PartsView, ...]
    """Parts that it refers to, by round, sender and reader; empty for a method whose posts are whole."""


@dataclass(frozen=True, slots=True)
class Recomputation:
    """The knowledge of a block, made again from its posts."""

    height: int
    """Height of the block."""
    said: Hash
    """32 bytes: the root that its header commits to."""
    made: Hash | None
    """32 bytes: the root of the recomputed knowledge; None if it could not be recomputed."""
    missing: tuple[Hash, ...]
    """Payloads or knowledge that recomputing needs but that are not kept."""
    error: str
    """Any other reason why it could not be recomputed; empty if there is none."""


@dataclass(frozen=True, slots=True)
class TransactionProof:
    """Proof that a block counts a post, for a reader that holds nothing but headers."""

    block_hash: Hash
    """32 bytes: the block."""
    header: Header
    """Its header, whose hash is ``block_hash``."""
    merkle: MerkleProof
    """Path from the transaction's hash to the header's ``transactions_root``."""


def is_proven(proof: TransactionProof) -> bool:
    """Whether the proof holds. Its reader must know by other means that the header is on the chain."""
    return proof.header.hash == proof.block_hash and is_in_tree(proof.merkle, proof.header.transactions_root)
