"""Recombination: every well-formed message that can be put together from the parts of others.

Each recipe takes an object, exchanges at most one part of it for the same part of another object, and asks a
``Choice`` where there are several ways. With a random choice that is an actor; with one that goes through all ways,
an exhaustive test.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, Protocol, TypeVar

from fedchain.chain.block import Block, evidence_root, sign_block, transactions_root
from fedchain.chain.certificate import Certificate, certificate_root, certify
from fedchain.chain.evidence import Evidence, Statement
from fedchain.chain.post import sign_post
from fedchain.chain.proof_of_work import search_nonce
from fedchain.chain.state import genesis_state
from fedchain.chain.vote import NIL, Vote, VoteKind
from fedchain.crypto.hashing import Hash, sha256
from fedchain.network.bitmaps import to_bitmap
from fedchain.network.messages import (
    CandidateMessage,
    CertificateMessage,
    Chunk,
    EvidenceMessage,
    FinalMessage,
    GetCandidate,
    GetCertificate,
    GetContent,
    GetFinal,
    GetPayloads,
    GetPosts,
    GetVotes,
    HeldVotes,
    Message,
    Payloads,
    PostMessage,
    Status,
    VoteMessage,
)
from fedchain.simulator.adversaries.hoard import Hoard, Slot

NONCES_MAX = 64
"""Number of hashes that are spent on a block of our own."""

FAR = 10**12
"""A height that nobody has."""

T = TypeVar("T")


class Choice(Protocol):
    """Decides wherever a recipe may go on in several ways."""

    def pick(self, options: Sequence[T]) -> T:
        """One of some options. Raises NothingToChoose if there are none."""


class NothingToChoose(Exception):
    """A recipe lacks an ingredient."""


class Recombination:
    """Recipes over the objects in a hoard; each raises NothingToChoose if something is missing.

    Args:
        hoard: the objects to combine.
        choice: decides between the ways that a recipe can go on.
    """

    def __init__(self, hoard: Hoard, choice: Choice) -> None:
        self._hoard, self._choice = hoard, choice

    def recipes(self) -> tuple[Callable[[], Message], ...]:
        """All recipes."""
        return (
            self.final,
            self.candidate,
            self.certificate_message,
            self.vote_message,
            self.evidence_message,
            self.post_message,
            self.status,
            self.chunk,
            self.payloads,
            self.question,
        )

    # messages

    def final(self) -> FinalMessage:
        """A block with a certificate: any certificate if the block is whole, one that names the block otherwise."""
        block, is_whole = self._block()
        if is_whole:
            return FinalMessage(block, self._certificate())
        slots = [slot for slot in self._hoard.slots() if slot[3] == block.hash]
        if slots:
            return FinalMessage(block, certify(self._hoard.votes_of(self._pick(slots))))
        return FinalMessage(block, self._relabelled(self._quorum(), block_hash=block.hash, height=block.header.height))

    def candidate(self) -> CandidateMessage:
        """A block as if it had just been mined."""
        return CandidateMessage(self._block()[0])

    def certificate_message(self) -> CertificateMessage:
        """A certificate, as a locked member hands it out."""
        return CertificateMessage(self._certificate())

    def vote_message(self) -> VoteMessage:
        """A vote, ours or another member's, as it is or with one field of another vote."""
        votes = [vote for slot in self._hoard.slots() for vote in self._hoard.votes_of(slot)]
        vote = self._pick(votes)
        votes = [other for other in votes if other.voter == vote.voter or other.slot == vote.slot]
        fields = ("kind", "height", "attempt", "block_hash", "voter", "signature", "clock_ms", "turnout")
        field = self._pick((None, *fields))
        return VoteMessage(vote if field is None else self._exchange(vote, field, votes))

    def evidence_message(self) -> EvidenceMessage:
        """Two statements of one member, or of one slot, in either order."""
        hoard = self._hoard
        held = [vote for slot in hoard.slots() for vote in hoard.votes_of(slot)]
        first: Statement = self._pick([*held, *hoard.posts.values(), *(item.first for item in hoard.evidence.values())])
        others = [item for item in (held if isinstance(first, Vote) else [*hoard.posts.values()]) if item != first]
        alike = [item for item in others if _author(item) == _author(first) or _place(item) == _place(first)]
        second = self._pick(alike)
        if self._pick((False, True)):  # the author of one below the signature of the other
            author = _author(first)
            second = replace(second, voter=author) if isinstance(second, Vote) else replace(second, sender=author)
        return EvidenceMessage(Evidence(*sorted((first, second), key=lambda item: item.hash)))

    def post_message(self) -> PostMessage:
        """A post with a payload that may not be its own, or a post of ours over a content that may be anybody's."""
        hoard = self._hoard
        posts, contents = list(hoard.posts.values()), [*hoard.contents.values()]
        post = self._pick(posts)
        field = self._pick((None, "round", "phase", "sender", "payload_hash", "payload_size", "signature", "ours"))
        if field == "ours":
            data = self._pick(contents)
            post = sign_post(self._pick(hoard.keys), hoard.genesis.chain_id, post.round, post.phase, data)
        elif field is not None:
            post = self._exchange(post, field, posts)
        own = hoard.contents.get(post.payload_hash)
        return PostMessage(post, self._pick([None, *(data for data in contents if field is None or data is own)]))

    def status(self) -> Status:
        """A status: heights that are held or not, anybody's posts and votes, blocks and locks of other heights."""
        hoard, everybody = self._hoard, self._everybody()
        height = self._pick([0, *hoard.heights(), FAR])
        heads = [hoard.genesis.chain_id] if height == 0 else hoard.hashes(height) or [bytes(32)]
        status = Status(height, self._pick(heads), b"", (), (), None)
        every = [block.hash for block in hoard.blocks.values()]
        match self._pick(("nothing", "posts", "candidates", "votes", "lock", "head")):
            case "posts":
                return replace(status, posts=everybody)
            case "candidates":
                return replace(status, candidates=(self._pick([*every, sha256(b"no block")]),))
            case "votes":
                kind, attempt = self._pick([*VoteKind]), self._pick((0, 1, 2**40))
                return replace(status, votes=(HeldVotes(kind, attempt, everybody),))
            case "lock":
                return replace(status, lock=(self._pick((0, 1, 2**40)), self._pick([*every, sha256(b"no block")])))
            case "head":
                return replace(status, head_hash=self._pick([*every, sha256(b"no block")]))
        return status

    def chunk(self) -> Chunk:
        """Bytes of one content under the hash of another one, or of a header's knowledge or state."""
        hoard = self._hoard
        headers = [block.header for block in hoard.blocks.values()]
        names = {*hoard.contents, *(h.knowledge_root for h in headers), *(h.state_root for h in headers)}
        names |= {post.payload_hash for post in hoard.posts.values()}
        return Chunk(self._pick(sorted(names)), self._pick((0, 1, FAR)), self._pick([b"", *hoard.contents.values()]))

    def payloads(self) -> Payloads:
        """Payloads for a height, whether they belong to it or not."""
        contents = list(self._hoard.contents.values())
        height = self._pick([*self._hoard.heights(), FAR])
        return Payloads(height, self._pick([(), tuple(contents), *((data,) for data in contents)]))

    def question(self) -> Message:
        """A request for anything."""
        hoard, everybody = self._hoard, self._everybody()
        height = self._pick([0, *hoard.heights(), FAR])
        hashes = sorted({block.hash for block in hoard.blocks.values()} | hoard.contents.keys())
        rounds = sorted({post.round for post in hoard.posts.values()} | {FAR})
        makers: tuple[Callable[[], Message], ...] = (
            lambda: GetFinal(height, self._pick((0, 1, FAR))),
            lambda: GetPayloads(height),
            lambda: GetVotes(height, self._pick([*VoteKind]), self._pick((0, 1, FAR)), everybody),
            lambda: GetCertificate(height, self._pick((0, 1, FAR)), self._pick(hashes)),
            lambda: GetCandidate(self._pick(hashes)),
            lambda: GetContent(self._pick(hashes), self._pick((0, 1, FAR))),
            lambda: GetPosts(self._pick(rounds), self._pick((0, 1)), everybody),
        )
        return self._pick(makers)()

    # parts

    def _block(self) -> tuple[Block, bool]:
        """A block, and whether it is unaltered; otherwise it is our own, or has a part or field of another one."""
        blocks = list(self._hoard.blocks.values())
        block = self._pick(blocks)
        part = self._pick(("whole", "signature", "transactions", "certificate", "evidence", "header", "ours"))
        if part == "whole":
            return block, True
        if part == "certificate":
            return replace(block, certificate=self._quorum()), False
        if part == "ours":
            return self._own_block(block), False
        others = [other for other in blocks if other != block]
        if part == "header":
            return replace(block, header=self._foreign_header(block, others)), False
        values = list(dict.fromkeys(getattr(other, part) for other in others))
        return replace(block, **{part: self._pick([value for value in values if value != getattr(block, part)])}), False

    def _foreign_header(self, block: Block, others: Sequence[Block]) -> Any:
        """The header with a field of another one; neither its proof of work nor its signature fits any more."""
        field = self._pick(("parent_hash", "height", "round", "state_root", "knowledge_root", "bits", "miner"))
        return self._exchange(block.header, field, [other.header for other in others])

    def _own_block(self, block: Block) -> Block:
        """A block of our own like ``block``, with one part of another one, mined and signed."""
        hoard = self._hoard
        others = [other for other in hoard.blocks.values() if other.hash != block.hash]
        part = self._pick(("same", "transactions", "certificate", "evidence", "header", "fewer posts"))
        header, posts, certificate, evidence = block.header, block.transactions, block.certificate, block.evidence
        match part:
            case "transactions":
                posts = self._pick(others).transactions
            case "fewer posts":
                posts = posts[1:]
            case "certificate":
                certificate = self._quorum()
            case "evidence":
                evidence = (self._pick(list(hoard.evidence.values())),)
            case "header":
                header = self._foreign_header(block, others)
        key = self._pick(hoard.keys)
        header = replace(
            header,
            miner=key.public_key,
            transactions_root=transactions_root(posts),
            certificate_root=certificate_root(certificate),
            evidence_root=evidence_root(evidence),
        )
        sealed = search_nonce(hoard.genesis.proof_function, header, 0, NONCES_MAX)
        if sealed is None:
            raise NothingToChoose("no nonce was found")
        return sign_block(key, hoard.genesis.chain_id, sealed, posts, certificate, evidence)

    def _certificate(self) -> Certificate:
        """Votes of one slot: a quorum or fewer, relabelled, with one vote twice, or mixed with another slot's votes."""
        change = self._pick((None, "fewer", "kind", "height", "attempt", "block_hash", "doubled", "mixed"))
        if change == "fewer":
            slot = self._slot()
            votes = self._hoard.votes_of(slot)
            sizes = range(1, len(votes))
            return certify(self._pick([part for size in sizes for part in combinations(votes, size)]))
        whole = self._quorum()
        if change is None:
            return whole
        if change == "doubled":
            return replace(whole, votes=tuple(sorted([*whole.votes[:-1], whole.votes[0]], key=lambda vote: vote.voter)))
        if change == "mixed":
            return self._mixed(whole)
        slots = self._hoard.slots()
        values = {"kind": 0, "height": 1, "attempt": 2, "block_hash": 3}
        options = sorted({slot[values[change]] for slot in slots} - {getattr(whole, change)})
        label: dict[str, Any] = {change: self._pick(options)}
        return self._relabelled(whole, **label)

    def _mixed(self, whole: Certificate) -> Certificate:
        """A certificate with half of its votes from another slot, under this slot's label."""
        slots = [slot for slot in self._hoard.slots() if slot[:3] != (whole.kind, whole.height, whole.attempt)]
        other = self._relabelled(certify(self._hoard.votes_of(self._pick(slots))), like=whole)
        kept = whole.votes[: len(whole.votes) // 2]
        voters = {vote.voter for vote in kept}
        return certify((*kept, *(vote for vote in other.votes if vote.voter not in voters)))

    def _quorum(self) -> Certificate:
        """All votes of a slot, which may be few."""
        return certify(self._hoard.votes_of(self._slot()))

    def _slot(self) -> Slot:
        return self._pick([slot for slot in self._hoard.slots() if slot[3] != NIL])

    @staticmethod
    def _relabelled(certificate: Certificate, *, like: Certificate | None = None, **changes: Any) -> Certificate:
        """The same signatures under another label."""
        if like is not None:
            fields = ("kind", "height", "attempt", "block_hash")
            changes = {field: getattr(like, field) for field in fields}
        votes = tuple(replace(vote, **changes) for vote in certificate.votes)
        return replace(certificate, votes=votes, **changes)

    def _exchange(self, item: Any, field: str, others: Sequence[Any]) -> Any:
        """``item`` with another item's value of a field, a different value."""
        values = dict.fromkeys(getattr(other, field) for other in others)
        return replace(item, **{field: self._pick([value for value in values if value != getattr(item, field)])})

    def _everybody(self) -> bytes:
        count = len(genesis_state(self._hoard.genesis).roster)
        return to_bitmap(range(count), count)

    def _pick(self, options: Sequence[T]) -> T:
        if not options:
            raise NothingToChoose("there are no options")
        return self._choice.pick(options)


def _author(statement: Statement) -> Hash:
    return statement.voter if isinstance(statement, Vote) else statement.sender


def _place(statement: Statement) -> tuple[int, ...]:
    """The slot, or round and phase, in which its author may make only one statement."""
    return statement.slot if isinstance(statement, Vote) else (statement.round, statement.phase)
