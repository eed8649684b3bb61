"""The signing journal: the newest statements of this key. It lies beside the key, and it never goes back.

A node that lost its data folder, or was copied, must not sign a second, different statement about the same thing.
Therefore it writes the newest votes, the lock and the posts of open phases down before it sends them, apart from the
chain. (Ethereum validators keep such a file too, EIP-3076.)
"""

from dataclasses import dataclass, replace
from typing import Any

from fedchain.chain.certificate import Certificate
from fedchain.chain.encoding import decode, encode, expect_record, expect_size
from fedchain.chain.exceptions import InvalidEncoding
from fedchain.chain.post import Post
from fedchain.chain.vote import NIL, Slot, Vote, VoteKind
from fedchain.crypto.hashing import HASH_SIZE, Hash
from fedchain.node.core.voting.agreement import Lock

JOURNAL_SIZE_MAX = 2**23
"""Most bytes of an encoded journal: room for the prevotes of a quorum of the largest federation, 65,536 members."""

JOURNAL_ROOM = 2**20
"""Bytes for which every journal file has room: the precommits for the block below are left out where they have none."""

JOURNAL_VERSION = 1

NOTHING_SIGNED: Slot = (0, 0, 0)

NOTHING_POSTED = (0, -1)
"""The value of ``posted`` before the first post: the phase before the first one of the setup, which is round 0."""

ROUNDS_KEPT = 2
"""Rounds whose own posts are kept at least, to be sent again: the newest one, and the one before."""


@dataclass(frozen=True, slots=True)
class Journal:
    """The signed statements that could still be contradicted."""

    slot: Slot = NOTHING_SIGNED
    """(height, attempt, kind) up to which no further vote may be signed."""
    votes: tuple[Vote, ...] = ()
    """The votes of that height and attempt, to be sent again after a crash."""
    lock: Lock | None = None
    """(attempt, block hash) that this member is locked on at that height."""
    proof: Certificate | None = None
    """Prevotes of a quorum that allowed the lock. After a crash of all members only they can convince the others.

    Until there is a lock: precommits for the block below. This member may be the only one that heard all of them, and
    where it has lost its store it has no other word at that height any more."""
    posts: tuple[Post, ...] = ()
    """Own posts of the newest rounds, at most one for each phase, to be sent again after a crash."""

    @property
    def height(self) -> int:
        """Height of the newest vote."""
        return self.slot[0]

    @property
    def posted(self) -> tuple[int, int]:
        """(round, phase) of the newest post, up to which no further one may be signed."""
        return max(((post.round, post.phase) for post in self.posts), default=NOTHING_POSTED)

    def allows(self, slot: Slot) -> bool:
        """Whether a vote in ``slot`` contradicts nothing."""
        return slot > self.slot

    def allows_post(self, round_number: int, phase: int) -> bool:
        """Whether a post in a phase contradicts nothing. Forgotten posts are of phases before the newest one."""
        return (round_number, phase) > self.posted

    def with_vote(self, vote: Vote, proof: Certificate | None = None, settled: Certificate | None = None) -> "Journal":
        """The journal after another vote.

        Args:
            vote: an own vote in a later slot than all before.
            proof: what allows the lock, if the vote is one: a precommit for a block.
            settled: the precommits that made the block below final; others are left out, as where the chain is beyond
                that height.
        """
        assert self.allows(vote.slot), "a journal does not go back"
        votes = (*self.votes, vote) if vote.slot[:2] == self.slot[:2] else (vote,)
        below = settled if settled is not None and settled.height == vote.height - 1 else None
        lock, reason = (self.lock, self.proof) if vote.height == self.height else (None, below)
        if _locks(vote):
            lock, reason = (vote.attempt, vote.block_hash), proof
        return replace(self, slot=vote.slot, votes=votes, lock=lock, proof=reason)

    def with_post(self, post: Post, late_rounds: int = 0) -> "Journal":
        """The journal after another post.

        Posts are kept of the last two rounds, or of all in which they may still be counted; older ones are forgotten.

        Args:
            post: an own post of a later phase than all before.
            late_rounds: rounds after its own in which a post may be counted.
        """
        assert self.allows_post(post.round, post.phase), "a journal does not go back"
        return self._keep(post, late_rounds)

    def adopt(self, statement: Vote | Post, late_rounds: int = 0, settled: Certificate | None = None) -> "Journal":
        """The journal after learning that this key made a statement; it allows nothing that contradicts the statement.

        Statements come in any order. An older vote may bring a newer lock, and an older post is sent again.

        Args:
            statement: an own vote or post.
            late_rounds: see :meth:`with_post`.
            settled: see :meth:`with_vote`.
        """
        if isinstance(statement, Vote):
            if self.allows(statement.slot):
                return self.with_vote(statement, settled=settled)
            if self._brings_lock(statement):
                return replace(self, lock=(statement.attempt, statement.block_hash), proof=None)
            return self
        is_kept = statement.round > self.posted[0] - _rounds_kept(late_rounds)
        is_new = self.post(statement.round, statement.phase) is None
        return self._keep(statement, late_rounds) if is_kept and is_new else self

    def _keep(self, post: Post, late_rounds: int) -> "Journal":
        oldest = max(post.round, self.posted[0]) - _rounds_kept(late_rounds) + 1
        kept = tuple(known for known in self.posts if known.round >= oldest)
        return replace(self, posts=(*kept, post))

    def _brings_lock(self, vote: Vote) -> bool:
        """Whether a vote of this height is a lock that is newer than ours."""
        is_newer = self.lock is None or vote.attempt > self.lock[0]
        return _locks(vote) and vote.height == self.height and is_newer

    def post(self, round_number: int, phase: int) -> Post | None:
        """The own post of a phase; None if it is not among the newest."""
        return next((post for post in self.posts if (post.round, post.phase) == (round_number, phase)), None)

    def vouches_for(self, statement: Vote | Post) -> bool:
        """Whether a statement in our own name may be ours: it is here, or was forgotten and adds nothing."""
        if isinstance(statement, Vote):
            same = [vote for vote in self.votes if vote.slot == statement.slot]
            is_said = statement.slot <= self.slot and all(vote.block_hash == statement.block_hash for vote in same)
            return is_said and not self._brings_lock(statement) and not self._contradicts_lock(statement)
        known = self.post(statement.round, statement.phase)
        return known == statement or (known is None and any(post.round > statement.round for post in self.posts))

    def _contradicts_lock(self, vote: Vote) -> bool:
        """Whether a vote is a precommit for another block in the attempt of our lock."""
        if self.lock is None or not _locks(vote) or (vote.height, vote.attempt) != (self.height, self.lock[0]):
            return False
        return vote.block_hash != self.lock[1]

    def encode(self) -> bytes:
        """The canonical bytes of the journal."""
        lock = [] if self.lock is None else [list(self.lock)]
        proof = [] if self.proof is None else [self.proof.to_record()]
        votes, posts = [vote.to_record() for vote in self.votes], [post.to_record() for post in self.posts]
        data = encode([JOURNAL_VERSION, list(self.slot), votes, lock, proof, posts])
        is_needed = self.proof is None or self.lock is not None
        return data if is_needed or len(data) <= JOURNAL_ROOM else replace(self, proof=None).encode()

    @classmethod
    def decode(cls, data: bytes) -> "Journal":
        """Read :meth:`encode`'s bytes; raises InvalidEncoding."""
        value: Any = decode(data, JOURNAL_SIZE_MAX)
        version, slot, votes, lock, proof, posts = expect_record(value, "journal", (int, list, list, list, list, list))
        if version != JOURNAL_VERSION:
            raise InvalidEncoding("journal version", f"{version} found, {JOURNAL_VERSION} expected")
        height, attempt, kind = expect_record(slot, "journal slot", (int, int, int))
        return cls(
            (height, attempt, kind),
            tuple(Vote.from_record(record) for record in votes),
            _read_lock(lock),
            Certificate.from_record(expect_record(proof, "journal proof", (list,))[0]) if proof else None,
            tuple(Post.from_record(record) for record in posts),
        )


def is_behind(old: bytes, new: bytes) -> bool:
    """Whether the journal ``new`` goes back behind ``old``, that is, allows a statement that ``old`` forbids."""
    before, after = Journal.decode(old), Journal.decode(new)
    if after.slot < before.slot:
        return True
    if not (all(map(after.vouches_for, before.votes)) and all(map(after.vouches_for, before.posts))):
        return True
    # At the same height a later attempt is of no use without the lock.
    if before.lock is None or after.height != before.height:
        return False
    return after.lock is None or (after.lock != before.lock and after.lock[0] <= before.lock[0])


def _rounds_kept(late_rounds: int) -> int:
    """Rounds whose own posts are kept."""
    return max(ROUNDS_KEPT, late_rounds + 1)


def _locks(vote: Vote) -> bool:
    """Whether a vote is a lock on its block."""
    return vote.kind is VoteKind.PRECOMMIT and vote.block_hash != NIL


def _read_lock(value: list[Any]) -> tuple[int, Hash] | None:
    if not value:
        return None
    attempt, block_hash = expect_record(expect_record(value, "journal lock", (list,))[0], "journal lock", (int, bytes))
    return attempt, expect_size(block_hash, HASH_SIZE, "journal lock")
