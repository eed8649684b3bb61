"""Agreement on one height: Tendermint's attempts, locks and timeouts over candidates that proof of work proposes.

Source: Buchman, Kwon, Milosevic, "The latest gossip on BFT consensus", arXiv:1807.04938, Algorithm 1. Instead of a
proposer's value every member prevotes the candidate that it prefers; the paper's proof of agreement never uses the
proposer. Its proof of termination does, since better candidates can be mined at any time: so every attempt but the
first has a *leader*, and its prevote is the proposal. The names are the paper's where it has one: ``lock`` is
(lockedRound, lockedValue), and a *polka* is a quorum of prevotes for one block.

Pure: ``Candidates`` tells the held and preferred blocks, votes leave as ``Cast``, and the caller passes the time.
"""

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from fedchain.chain.exceptions import Refused
from fedchain.chain.vote import NIL, Vote, VoteKind
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.node.core.voting.ballot import Ballots

TIMEOUT_MS_MAX = 60_000
"""Limit in milliseconds of the timeouts, which grow with the attempt."""

Lock = tuple[int, Hash]
"""(attempt, block hash)."""


class Candidates(Protocol):
    """One peer's view of the blocks of the open height."""

    def preferred(self) -> Hash | None:
        """The best valid block that deserves a vote: most posts first, then the lowest hash; None if there is none."""

    def deserves_vote(self, block_hash: Hash) -> bool:
        """Whether a block is valid and deserves a vote, preferred or not."""

    def is_complete(self, block_hash: Hash) -> bool:
        """Whether a preferred block counts every post that it may, so that no better one can come."""

    def is_valid(self, block_hash: Hash) -> bool:
        """Whether the block is held and obeys every rule."""


@dataclass(frozen=True, slots=True)
class Cast:
    """A vote to be signed."""

    kind: VoteKind
    attempt: int
    block_hash: Hash
    grounds: tuple[Vote, ...] = field(default=(), repr=False, compare=False)
    """Votes that brought us to the attempt, or to giving it up. They are not to be forgotten before the vote, since we
    go back no more, and members that still wait need them."""


class Agreement:
    """One member's part in deciding one height. A peer that is no elector only counts votes.

    Args:
        candidates: the blocks of the height.
        electors: number of members that vote.
        quorum: number of votes that decide, q.
        faulty: number of electors that may lie, f.
        timeout_ms: timeout of the first attempt, in milliseconds.
        leader: the member that leads an attempt; all electors take turns.
        me: this member.
    """

    def __init__(
        self,
        candidates: Candidates,
        electors: int,
        quorum: int,
        faulty: int,
        timeout_ms: int,
        leader: Callable[[int], PublicKey],
        me: PublicKey,
    ) -> None:
        self.ballots = Ballots(quorum)
        self.attempt = -1
        self.lock: Lock | None = None
        self._candidates = candidates
        self._electors, self._quorum, self._faulty, self._timeout_ms = electors, quorum, faulty, timeout_ms
        self._leader, self._me = leader, me
        self._prevoted = self._precommitted = False  # in this attempt
        self._gather_until_ms: int | None = None  # before attempt 0: when it begins; later: when to prevote unled
        self._nil_prevote_ms: int | None = None
        self._nil_precommit_ms: int | None = None
        self._next_attempt_ms: int | None = None
        self._cast: list[Cast] = []
        self._entered: tuple[Vote, ...] = ()  # votes that brought us to this attempt, until we vote in it

    def gather_ms(self, attempt: int) -> int:
        """Milliseconds for which the first candidate, or the known ones after a failed attempt, wait for others."""
        return self.timeout_ms(attempt) // 4

    def timeout_ms(self, attempt: int) -> int:
        """Timeout of each step of an attempt, in milliseconds."""
        return min(TIMEOUT_MS_MAX, self._timeout_ms * (1 + attempt))

    def resume(self, attempt: int, lock: Lock | None, *, prevoted: bool, precommitted: bool) -> None:
        """Go on from the journal's attempt and lock. Votes that were cast then are not cast again.

        We may be further already. The newer lock holds in any case: line 28 of the paper allows it to replace the
        other, since a quorum of prevotes allowed each.
        """
        if lock is not None and (self.lock is None or lock[0] > self.lock[0]):
            self.lock = lock
        if attempt < self.attempt:
            return
        self.attempt = attempt
        self.ballots.reach(attempt)
        self._prevoted, self._precommitted = prevoted or precommitted, precommitted
        self._gather_until_ms = self._nil_prevote_ms = self._nil_precommit_ms = self._next_attempt_ms = None
        self._entered = ()

    def advance(self, now_ms: int) -> list[Cast]:
        """Apply all rules that votes, candidates and time allow; returns the votes to be signed, in order."""
        if self.attempt < 0:
            self._begin(now_ms)
        elif not self._prevoted and self._nil_prevote_ms is None:  # resumed
            self._nil_prevote_ms = now_ms + self.timeout_ms(self.attempt)
        while self._step(now_ms):
            pass
        cast, self._cast = self._cast, []
        return cast

    def heeds(self, vote: Vote) -> bool:
        """Whether a counted vote may change anything.

        It is beyond our attempt, or a quorum has voted in its slot, or the leader of our attempt cast it. A prevote of
        our attempt changes nothing once a polka is known there and we have precommitted: lines 34 and 36 of the paper
        are the only ones that count prevotes of this attempt, and ``_precommit`` has applied one of them.
        """
        is_done = vote.attempt == self.attempt and vote.kind is VoteKind.PREVOTE and self._precommitted
        if is_done and self.ballots.polka(vote.attempt) is not None:
            return False
        ballot = self.ballots.ballot(vote.attempt, vote.kind)
        if vote.attempt > self.attempt or len(ballot.first) + len(ballot.second) >= self._quorum:
            return True
        return 0 < vote.attempt == self.attempt and vote.voter == self._leader(vote.attempt)

    def proposal(self) -> Hash | None:
        """The block that the leader of this attempt prevoted; None if it has not, and in the first attempt."""
        prevotes = self.ballots.ballot(self.attempt, VoteKind.PREVOTE).first if self.attempt > 0 else {}
        vote = prevotes.get(self._leader(self.attempt)) if prevotes else None
        return None if vote is None or vote.block_hash == NIL else vote.block_hash

    def wakes_at_ms(self, now_ms: int) -> int | None:
        """The next time at which time alone may change something; None if there is none. Past timeouts do not count."""
        times = (self._gather_until_ms, self._nil_prevote_ms, self._nil_precommit_ms, self._next_attempt_ms)
        return min((time for time in times if time is not None and time > now_ms), default=None)

    def _begin(self, now_ms: int) -> None:
        """Begin attempt 0 a gathering time after the first candidate, or at once if no better one can come."""
        preferred = self._candidates.preferred()
        if preferred is None:
            return
        if self._gather_until_ms is None:
            self._gather_until_ms = now_ms + self.gather_ms(0)
        if now_ms >= self._gather_until_ms or self._candidates.is_complete(preferred):
            self._start(0, now_ms)

    def _start(self, attempt: int, now_ms: int, entered: Collection[Vote] = ()) -> None:
        self.attempt = attempt
        self._entered = tuple(entered) if attempt > 0 else ()  # all are in the first one
        self._prevoted = self._precommitted = False
        # After a failed attempt, candidates and quorums get some time to reach the leader, and its prevote as much.
        waits = 0 if attempt == 0 else 1 if self._leader(attempt) == self._me else 2
        self._gather_until_ms = now_ms + waits * self.gather_ms(attempt) if waits else None
        self._nil_prevote_ms = now_ms + self.timeout_ms(attempt)
        self._nil_precommit_ms = self._next_attempt_ms = None
        self.ballots.reach(attempt)

    def _step(self, now_ms: int) -> bool:
        """Apply one rule, if one applies now; returns whether one did."""
        later = self.ballots.attempt_of(self._faulty + 1)
        if later > self.attempt:  # an honest member is there
            ahead = self.ballots.ahead(later)
            self._start(later, now_ms, ahead)
            for vote in ahead:
                with suppress(Refused):  # as a rule it is held; one from far ahead was not
                    self.ballots.add(vote, later)
            return True
        if self.attempt < 0:
            return False
        return self._prevote(now_ms) or self._precommit(now_ms) or self._next(now_ms)

    def _prevote(self, now_ms: int) -> bool:
        if self._prevoted:
            return False
        value = self._prevote_value(now_ms)
        if value is None:
            return False
        self._vote(VoteKind.PREVOTE, value)
        return True

    def _prevote_value(self, now_ms: int) -> Hash | None:
        """The block to prevote: the leader's, else the lock, else an earlier polka's, else the preferred one, else nil.

        Without the leader's prevote, or with one that cannot be followed, the others wait until it is late for it.
        """
        proposal = self.proposal()
        if proposal is not None and self._may_follow(proposal):
            return proposal
        if self._gather_until_ms is not None and now_ms < self._gather_until_ms:
            return None
        is_late = self._nil_prevote_ms is not None and now_ms >= self._nil_prevote_ms
        polka = self.ballots.polka_before(self.attempt)
        if self.lock is not None and (polka is None or polka.attempt <= self.lock[0]):
            return self.lock[1]
        if polka is not None:
            if self._candidates.is_valid(polka.block_hash):
                return polka.block_hash
            return NIL if is_late else None
        return self._candidates.preferred() or (NIL if is_late else None)

    def _may_follow(self, proposal: Hash) -> bool:
        """Whether the leader's block may be prevoted here: a lock on another one asks for a newer polka (line 28)."""
        if not self._candidates.is_valid(proposal):
            return False
        if self.lock is not None and self.lock[1] == proposal:
            return True
        after = -1 if self.lock is None else self.lock[0]
        if self.ballots.has_polka(proposal, after, self.attempt):
            return True
        return self.lock is None and self._candidates.deserves_vote(proposal)

    def _precommit(self, now_ms: int) -> bool:
        if self._precommitted:
            return False
        polka = self.ballots.polka(self.attempt)
        if polka is not None and self._candidates.is_valid(polka.block_hash):
            self.lock = self.attempt, polka.block_hash
            self._vote(VoteKind.PRECOMMIT, polka.block_hash)
            return True
        if self._gives_up(VoteKind.PREVOTE, now_ms):
            self._vote(VoteKind.PRECOMMIT, NIL, self.ballots.ballot(self.attempt, VoteKind.PREVOTE).first.values())
            return True
        return False

    def _next(self, now_ms: int) -> bool:
        if self.ballots.decision is None and self._gives_up(VoteKind.PRECOMMIT, now_ms):
            given_up = self.ballots.ballot(self.attempt, VoteKind.PRECOMMIT).first
            self._start(self.attempt + 1, now_ms, given_up.values())
            return True
        return False

    def _gives_up(self, kind: VoteKind, now_ms: int) -> bool:
        """Whether a quorum voted without agreement, and the time is up or no block can get a quorum any more."""
        ballot = self.ballots.ballot(self.attempt, kind)
        if len(ballot.first) < self._quorum:
            return False
        outstanding = self._electors - len(ballot.first)
        if ballot.most() + outstanding < self._quorum:
            return True
        due_ms = now_ms + self.timeout_ms(self.attempt)
        if kind is VoteKind.PREVOTE:
            due_ms = self._nil_precommit_ms = due_ms if self._nil_precommit_ms is None else self._nil_precommit_ms
        else:
            due_ms = self._next_attempt_ms = due_ms if self._next_attempt_ms is None else self._next_attempt_ms
        return now_ms >= due_ms

    def _vote(self, kind: VoteKind, block_hash: Hash, given_up: Collection[Vote] = ()) -> None:
        self._prevoted = True  # after a precommit no prevote is cast
        if kind is VoteKind.PREVOTE:
            self._gather_until_ms = self._nil_prevote_ms = None
        else:
            self._precommitted = True
            self._nil_prevote_ms = self._gather_until_ms = self._nil_precommit_ms = None
        self._cast.append(Cast(kind, self.attempt, block_hash, (*self._entered, *given_up)))
        self._entered = ()
