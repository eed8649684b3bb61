"""A hoard: every signature and object of the newest heights that passed by, by class, and the keys of a coalition.

Votes that a coalition could sign itself count as held, so an adversary that combines objects from a hoard need not
ask which signatures are honest ones.
"""

from collections.abc import Sequence
from itertools import islice
from typing import TypeVar

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.evidence import Evidence
from fedchain.chain.genesis import Genesis
from fedchain.chain.post import Post
from fedchain.chain.vote import NIL, Vote, VoteKind, sign_vote
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.network.messages import (
    CandidateMessage,
    CertificateMessage,
    Chunk,
    EvidenceMessage,
    FinalMessage,
    Message,
    Payloads,
    PostMessage,
    VoteMessage,
)

KEPT_HEIGHTS = 3
"""Number of heights below the open one that objects are kept of."""

BLOCKS_MAX = 48
VOTES_MAX = 1_024
POSTS_MAX = 256
CONTENTS_MAX = 128
EVIDENCE_MAX = 32

K = TypeVar("K")
V = TypeVar("V")

Slot = tuple[VoteKind, int, int, Hash]
"""(kind, height, attempt, block hash): votes of one slot make a certificate."""


class Hoard:
    """Keeps the objects that pass by, the newest of each class.

    Args:
        genesis: the federation's founding document.
        keys: the coalition's keys.
    """

    def __init__(self, genesis: Genesis, keys: Sequence[PrivateKey]) -> None:
        self.genesis, self.keys = genesis, tuple(keys)
        self.blocks: dict[tuple[Hash, bytes], Block] = {}
        """Blocks by hash and the miner's signature."""
        self.votes: dict[Slot, dict[PublicKey, Vote]] = {}
        self.posts: dict[Hash, Post] = {}
        self.evidence: dict[Hash, Evidence] = {}
        self.contents: dict[Hash, bytes] = {}
        """Payloads, knowledge and states by their hash."""
        self._ours: dict[tuple[PublicKey, Slot, int, int], Vote] = {}  # signed so far
        # Derived from the rest, until something is noted.
        self._slots: list[Slot] | None = None
        self._votes_of: dict[Slot, list[Vote]] = {}

    def note(self, message: Message) -> None:
        """Keep the objects that a message holds."""
        self._begin_anew()
        match message:
            case PostMessage(post, data):
                self._keep_post(post)
                if data is not None:
                    self.keep_content(data)
            case CandidateMessage(block):
                self._keep_block(block)
            case VoteMessage(vote):
                self._keep_vote(vote)
            case EvidenceMessage(evidence):
                self._keep_evidence(evidence)
            case CertificateMessage(certificate):
                self._keep_certificate(certificate)
            case FinalMessage(block, certificate):
                self._keep_block(block)
                self._keep_certificate(certificate)
            case Chunk(content_hash, 0, data) if sha256(data) == content_hash:
                self.keep_content(data)
            case Payloads(_, payloads):
                for data in payloads:
                    self.keep_content(data)
            case _:
                pass  # statuses and requests hold nothing that is signed

    def keep_content(self, data: bytes) -> None:
        """Keep a payload, a knowledge or a state."""
        self.contents[sha256(data)] = data
        _drop_oldest(self.contents, CONTENTS_MAX)

    def forget_before(self, height: int) -> None:
        """Forget blocks and votes of heights below ``height``."""
        self._begin_anew()
        self.blocks = {name: block for name, block in self.blocks.items() if block.header.height >= height}
        self.votes = {slot: votes for slot, votes in self.votes.items() if slot[1] >= height}

    def heights(self) -> list[int]:
        """Heights with a known block, in ascending order."""
        return sorted({block.header.height for block in self.blocks.values()})

    def hashes(self, height: int) -> list[Hash]:
        """Hashes of the blocks of a height."""
        return sorted({block.hash for block in self.blocks.values() if block.header.height == height})

    def slots(self) -> list[Slot]:
        """Slots with honest votes, and slots that our own votes could fill: for every known block, and for NIL."""
        if self._slots is not None:
            return self._slots
        tried = {(height, attempt) for _, height, attempt, _ in self.votes} | {(height, 0) for height in self.heights()}
        found = set(self.votes)
        for height, attempt in tried:
            for block_hash in (*self.hashes(height), NIL):
                found |= {(kind, height, attempt, block_hash) for kind in VoteKind}
        self._slots = sorted(found)
        return self._slots

    def votes_of(self, slot: Slot) -> list[Vote]:
        """All votes of a slot that we have or can sign, in voter order."""
        if slot not in self._votes_of:
            heard = self.votes.get(slot, {})
            ours = (self.own_vote(key, slot, list(heard.values())) for key in self.keys if key.public_key not in heard)
            self._votes_of[slot] = sorted((*heard.values(), *ours), key=lambda vote: vote.voter)
        return self._votes_of[slot]

    def own_vote(self, key: PrivateKey, slot: Slot, beside: Sequence[Vote]) -> Vote:
        """A vote of our own; it repeats the measurements of the votes ``beside`` it, if there are any."""
        kind, height, attempt, block_hash = slot
        measures = kind is VoteKind.PRECOMMIT and block_hash != NIL
        clock_ms = beside[0].clock_ms if beside else self.genesis.created_ms + 1_000 * height
        mining_ms = beside[0].mining_ms if beside else self.genesis.target_mining_time_ms
        if not measures:
            clock_ms = mining_ms = 0
        name, chain_id = (key.public_key, slot, clock_ms, mining_ms), self.genesis.chain_id
        if name not in self._ours:
            self._ours[name] = sign_vote(
                key, chain_id, (height, attempt, kind), block_hash, clock_ms=clock_ms, mining_ms=mining_ms
            )
            _drop_oldest(self._ours, VOTES_MAX)
        return self._ours[name]

    def _begin_anew(self) -> None:
        self._slots = None
        self._votes_of.clear()

    def _keep_block(self, block: Block) -> None:
        self.blocks[block.hash, block.signature] = block
        _drop_oldest(self.blocks, BLOCKS_MAX)
        for post in block.transactions:
            self._keep_post(post)
        for evidence in block.evidence:
            self._keep_evidence(evidence)
        if block.certificate is not None:
            self._keep_certificate(block.certificate)

    def _keep_certificate(self, certificate: Certificate) -> None:
        for vote in certificate.votes:
            self._keep_vote(vote)

    def _keep_vote(self, vote: Vote) -> None:
        self.votes.setdefault((vote.kind, vote.height, vote.attempt, vote.block_hash), {})[vote.voter] = vote
        _drop_oldest(self.votes, VOTES_MAX)

    def _keep_post(self, post: Post) -> None:
        self.posts[post.hash] = post
        _drop_oldest(self.posts, POSTS_MAX)

    def _keep_evidence(self, evidence: Evidence) -> None:
        self.evidence[evidence.hash] = evidence
        _drop_oldest(self.evidence, EVIDENCE_MAX)


def _drop_oldest(items: dict[K, V], count: int) -> None:
    for key in list(islice(items, max(0, len(items) - count))):
        del items[key]
