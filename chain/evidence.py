"""Evidence: two signatures by which a member proves its own crime. A peer that has both can convince all others.

A member votes once in each (height, attempt, kind) and posts once in each (round, phase). A slow network or a crash
cannot produce two different statements for one of them.
"""

from dataclasses import dataclass, field
from typing import Any

from fedchain.chain.encoding import encode, expect_record
from fedchain.chain.exceptions import InvalidEncoding
from fedchain.chain.post import Post
from fedchain.chain.vote import Vote
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import PublicKey

EVIDENCE_MAX = 8
"""Crimes that one block may prove; the next block has room for more."""

_VOTES, _POSTS = 1, 2

Statement = Vote | Post
"""A vote or a post; a member signs only one in each slot or phase."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Two statements of one member that exclude each other; the one with the lower hash comes first."""

    first: Statement
    second: Statement
    hash: Hash = field(init=False, repr=False, compare=False)
    """32 bytes: identity of the evidence."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "hash", sha256(encode(self.to_record())))

    @property
    def culprit(self) -> PublicKey:
        """32 bytes: the member whose crime it is, if both signatures are valid."""
        return self.first.voter if isinstance(self.first, Vote) else self.first.sender

    @property
    def crime(self) -> str:
        """Description of the crime, for people."""
        if isinstance(self.first, Vote):
            kind = self.first.kind.name.lower()
            return f"two different {kind}s at height {self.first.height}, attempt {self.first.attempt}"
        return f"two different posts in round {self.first.round}, phase {self.first.phase}"

    def to_record(self) -> list[Any]:
        """The canonical fields."""
        kind = _VOTES if isinstance(self.first, Vote) else _POSTS
        return [kind, self.first.to_record(), self.second.to_record()]

    @classmethod
    def from_record(cls, value: Any) -> "Evidence":
        """Read the canonical fields; raises InvalidEncoding."""
        kind, first, second = expect_record(value, "evidence", (int, list, list))
        if kind == _VOTES:
            return cls(Vote.from_record(first), Vote.from_record(second))
        if kind == _POSTS:
            return cls(Post.from_record(first), Post.from_record(second))
        raise InvalidEncoding("evidence", f"kind {kind} found, 1 or 2 expected")


def excludes(one: Statement, other: Statement) -> bool:
    """Whether both are one member's, for the same slot or phase, with different contents: a member may not sign both.

    Two precommits for one block that differ only in their measurements are no crime: they decide the same.
    """
    match one, other:
        case Vote(), Vote():
            return one.voter == other.voter and one.slot == other.slot and one.block_hash != other.block_hash
        case Post(), Post():
            return one.key == other.key and _promise(one) != _promise(other)
        case _:
            return False


def evidence_of(one: Statement, other: Statement) -> Evidence:
    """Put two statements that exclude each other into their order."""
    assert excludes(one, other), "only what excludes each other is evidence"
    return Evidence(*sorted((one, other), key=lambda statement: statement.hash))


def _promise(post: Post) -> tuple[Hash, int]:
    """Hash and size of the promised payload. One of two sizes is a lie, and a peer cannot use the post that has it."""
    return post.payload_hash, post.payload_size
