"""A certificate: votes of one kind and attempt for one block, which prove something to peers that were not there.

Precommits of a quorum prove that a block is final; the next block carries them. Prevotes of a quorum prove that a
member was right to lock on a block.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from fedchain.chain.encoding import encode, expect_record, expect_size
from fedchain.chain.exceptions import InvalidEncoding
from fedchain.chain.vote import Vote, VoteKind, read_kind, split_turnout, turnout_fields
from fedchain.crypto.hashing import HASH_SIZE, ZERO_HASH, Hash, sha256


@dataclass(frozen=True, slots=True)
class Certificate:
    """Votes of one kind and attempt for the same block."""

    kind: VoteKind
    """Prevotes or precommits."""
    height: int
    """Height of the block."""
    attempt: int
    """Attempt in which all of them voted."""
    block_hash: Hash
    """32 bytes: the block."""
    votes: tuple[Vote, ...] = field(repr=False)
    """In voter order."""
    hash: Hash = field(init=False, repr=False, compare=False)
    """32 bytes: SHA-256 of the encoded certificate; a header commits to it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "hash", sha256(encode(self.to_record())))

    @property
    def clock_ms(self) -> int:
        """Median of the voters' clocks: the time of the block. A minority cannot move it outside the others' clocks."""
        return median(vote.clock_ms for vote in self.votes)

    @property
    def mining_ms(self) -> int:
        """Median of the mining times that the voters saw, in milliseconds."""
        return median(vote.mining_ms for vote in self.votes)

    def to_record(self) -> list[Any]:
        """The canonical fields; the values that all votes share are written once."""
        votes = [
            [vote.voter, vote.clock_ms, vote.mining_ms, *turnout_fields(vote.turnout), vote.signature]
            for vote in self.votes
        ]
        return [int(self.kind), self.height, self.attempt, self.block_hash, votes]

    @classmethod
    def from_record(cls, value: Any) -> "Certificate":
        """Read the canonical fields; raises InvalidEncoding."""
        number, height, attempt, block_hash, entries = expect_record(value, "certificate", (int, int, int, bytes, list))
        kind, _ = read_kind(number), expect_size(block_hash, HASH_SIZE, "certificate block hash")
        if not entries:  # it would have no medians
            raise InvalidEncoding("certificate", "0 votes found, at least 1 expected")
        votes = []
        for entry in entries:
            turnout, plain = split_turnout(entry, 4)
            voter, clock_ms, mining_ms, signature = expect_record(plain, "certificate vote", (bytes, int, int, bytes))
            said = [clock_ms, mining_ms, voter, *turnout_fields(turnout), signature]
            votes.append(Vote.from_record([number, height, attempt, block_hash, *said]))
        return cls(kind, height, attempt, block_hash, tuple(votes))


def certify(votes: Iterable[Vote]) -> Certificate:
    """Put votes of one slot for one block together, in voter order. There must be at least one."""
    ordered = tuple(sorted(votes, key=lambda vote: vote.voter))
    first = ordered[0]
    return Certificate(first.kind, first.height, first.attempt, first.block_hash, ordered)


def certificate_root(certificate: Certificate | None) -> Hash:
    """Hash for the header's ``certificate_root``; the zero hash for the first block, whose parent nobody voted for."""
    return ZERO_HASH if certificate is None else certificate.hash


def median(values: Iterable[int]) -> int:
    """The lower median: always one of the values."""
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2]
