"""Every calm attempt with an honest leader: whatever its members know, hold and are locked on, what do they prevote?

Messages arrive in time: when the leader prevotes, it knows each quorum of prevotes that some honest member is locked
on; when another member prevotes, it also knows the newest one that the leader knows, and holds the leader's block.
Beyond that, anyone may know any quorum of an earlier attempt and hold and prefer any block, such as one with a lower
hash that was mined a moment ago. The real class decides what they prevote.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, combinations, product

from fedchain.chain.certificate import certify
from fedchain.chain.vote import Vote, VoteKind
from fedchain.crypto.hashing import Hash
from fedchain.node.core.voting.agreement import Agreement, Lock

A, B, FRESH = b"A" * 32, b"B" * 32, b"F" * 32
ATTEMPT, MEMBERS, QUORUM, FAULTY, TIMEOUT_MS = 2, 4, 3, 1, 1_000
LEADER, MEMBER = b"L" * 32, b"M" * 32


@dataclass(frozen=True, slots=True)
class View:
    """The blocks that a member holds, the preferred one first; all deserve a vote."""

    held: tuple[Hash, ...]

    def preferred(self) -> Hash | None:
        return self.held[0]

    def deserves_vote(self, block_hash: Hash) -> bool:
        return self.is_valid(block_hash)

    def is_complete(self, block_hash: Hash) -> bool:
        return False

    def is_valid(self, block_hash: Hash) -> bool:
        return block_hash in self.held


@dataclass(frozen=True, slots=True)
class Attempt:
    """Outcome of one attempt."""

    polkas: tuple[Lock, ...]
    """Quorums of prevotes that exist, of earlier attempts."""
    proposed: Hash
    """The leader's prevote."""
    prevoted: frozenset[Hash]
    """Blocks that the other members may prevote."""


def attempts(kind: type[Agreement] = Agreement) -> Iterator[Attempt]:
    """All attempts that there can be, up to the names of blocks and members.

    Args:
        kind: the class under test.
    """
    for blocks in product((None, A, B), repeat=ATTEMPT):
        polkas = tuple((attempt, block) for attempt, block in enumerate(blocks) if block is not None)
        for locked, extra in product(_some(polkas), repeat=2):
            known = tuple(sorted({*locked, *extra}))
            for lock, preferred in product((None, *locked), (A, B, FRESH)):
                proposed = _prevote(kind, LEADER, lock, known, preferred, None)
                heard = {*locked, *known[-1:]}
                prevoted = {
                    _prevote(kind, MEMBER, theirs, tuple(sorted({*heard, *more})), better, proposed)
                    for theirs, better, more in product((None, *locked), (A, B, FRESH), _some(polkas))
                }
                yield Attempt(polkas, proposed, frozenset(prevoted))


def _some(polkas: tuple[Lock, ...]) -> list[tuple[Lock, ...]]:
    return list(chain.from_iterable(combinations(polkas, size) for size in range(len(polkas) + 1)))


def _prevote(
    kind: type[Agreement],
    me: bytes,
    lock: Lock | None,
    known: tuple[Lock, ...],
    preferred: Hash,
    proposed: Hash | None,
) -> Hash:
    """A member's prevote: the leader's when it has gathered, another one's at once, or when it is late for a leader."""
    view = View((preferred, *(block for block in (A, B, FRESH) if block != preferred)))
    agreement = kind(view, MEMBERS, QUORUM, FAULTY, TIMEOUT_MS, lambda attempt: LEADER, me)
    agreement.resume(ATTEMPT - 1, lock, prevoted=True, precommitted=True)
    for attempt, block in known:
        agreement.ballots.add_certificate(certify(_vote(attempt, block, number) for number in range(QUORUM)))
    for number in range(QUORUM):
        agreement.ballots.add(_vote(ATTEMPT - 1, bytes(32), number, VoteKind.PRECOMMIT), ATTEMPT - 1)
    assert agreement.advance(0) == [], "the attempt has just begun"
    if proposed is not None:
        agreement.ballots.add(_vote(ATTEMPT, proposed, LEADER), ATTEMPT)
    if proposed is None:
        (cast,) = agreement.advance(agreement.gather_ms(ATTEMPT))
        return cast.block_hash
    (cast,) = agreement.advance(1) or agreement.advance(2 * agreement.gather_ms(ATTEMPT))
    return cast.block_hash


def _vote(attempt: int, block: Hash, voter: int | bytes, kind: VoteKind = VoteKind.PREVOTE) -> Vote:
    key = voter if isinstance(voter, bytes) else voter.to_bytes(32, "big")
    return Vote(kind, 1, attempt, block, 0, 0, key, bytes(64))
