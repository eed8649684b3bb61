"""Ballots: the votes for one height, counted. Their memory is bounded whatever peers send."""

from collections.abc import Iterator

from fedchain.chain.certificate import Certificate, certify
from fedchain.chain.evidence import Evidence, evidence_of, excludes
from fedchain.chain.exceptions import AlreadyKnown, LimitReached, OutOfWindow
from fedchain.chain.vote import NIL, Vote, VoteKind
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey

ATTEMPTS_AHEAD = 8
"""Attempts beyond our own whose votes are counted; for later ones only the attempt is noted."""

ATTEMPTS_BEHIND = 32
"""Attempts before our own whose votes are kept, since they may still make a block final."""

ATTEMPT_NOTED_MAX = 2**32
"""The highest attempt far beyond ours that is noted of a member. If few vote, one member can take the others with it,
and there have to be attempts left."""

Slot = tuple[int, VoteKind]
"""(attempt, kind)."""


class Ballot:
    """Votes of one kind and attempt. If a member votes twice, both votes count: each may complete a quorum."""

    __slots__ = ("first", "second", "tally")

    def __init__(self) -> None:
        self.first: dict[PublicKey, Vote] = {}
        self.second: dict[PublicKey, Vote] = {}
        self.tally: dict[Hash, int] = {}

    def count(self, votes: dict[PublicKey, Vote], vote: Vote) -> int:
        """Add a vote to ``votes``, which is ``first`` or ``second``; returns the votes for its block so far."""
        votes[vote.voter] = vote
        self.tally[vote.block_hash] = self.tally.get(vote.block_hash, 0) + 1
        return self.tally[vote.block_hash]

    def votes_for(self, block_hash: Hash) -> list[Vote]:
        """The votes for one block, or for nil."""
        return [vote for votes in (self.first, self.second) for vote in votes.values() if vote.block_hash == block_hash]

    def most(self) -> int:
        """Number of votes for the block with the most votes, apart from ``NIL``."""
        return max((count for choice, count in self.tally.items() if choice != NIL), default=0)


class Ballots:
    """All ballots of one height.

    Args:
        quorum: number of votes that decide.
    """

    def __init__(self, quorum: int) -> None:
        self._quorum = quorum
        self._ballots: dict[Slot, Ballot] = {}
        self._ahead: dict[PublicKey, Vote] = {}  # of each member that is beyond our attempt the vote in its highest one
        self._polkas: dict[int, Certificate] = {}  # prevotes of a quorum for one block, by attempt
        self._decision: Certificate | None = None

    def ballot(self, attempt: int, kind: VoteKind) -> Ballot:
        """The votes of a kind in an attempt."""
        return self._ballots.get((attempt, kind), _EMPTY)

    def slots(self, attempt_now: int) -> list[Slot]:
        """Slots with votes: first those up to our attempt, newest first, then those ahead.

        Votes ahead of all others cost a single traitor nothing; they must not hide those that matter.
        """
        return sorted(self._ballots, key=lambda slot: (slot[0] > attempt_now, -slot[0], -slot[1]))

    def sizes(self) -> Iterator[tuple[str, int]]:
        """Numbers of ballots and votes that are held."""
        yield "ballots", len(self._ballots)
        yield "votes", sum(len(ballot.first) + len(ballot.second) for ballot in self._ballots.values())

    @property
    def decision(self) -> Certificate | None:
        """Precommits of a quorum for one block; None until there are."""
        return self._decision

    @property
    def newest_polka(self) -> Certificate | None:
        """The newest quorum of prevotes for one block, or None. (Tendermint: validValue and validRound)"""
        return self._polkas[max(self._polkas)] if self._polkas else None

    def polka(self, attempt: int) -> Certificate | None:
        """The quorum of prevotes for one block in an attempt; None if there is none."""
        return self._polkas.get(attempt)

    def polka_before(self, attempt: int) -> Certificate | None:
        """The newest quorum of prevotes for one block in an earlier attempt; None if there is none."""
        earlier = [known for known in self._polkas if known < attempt]
        return self._polkas[max(earlier)] if earlier else None

    def has_polka(self, block_hash: Hash, after: int, before: int) -> bool:
        """Whether a quorum of prevotes for a block is known, of an attempt between two others."""
        return any(after < known < before and polka.block_hash == block_hash for known, polka in self._polkas.items())

    def add(self, vote: Vote, attempt_now: int) -> Evidence | None:
        """Count a valid vote of an elector; returns the evidence if it proves a crime, otherwise None.

        Raises:
            AlreadyKnown: the vote is held.
            LimitReached: its voter has voted twice in this slot already, or its attempt is too far ahead to be kept;
                the voter's attempt is noted nevertheless.
            OutOfWindow: its attempt is too far behind ours.
        """
        low, high = attempt_now - ATTEMPTS_BEHIND, attempt_now + ATTEMPTS_AHEAD
        if attempt_now < vote.attempt <= max(high, ATTEMPT_NOTED_MAX):
            highest = self._ahead.get(vote.voter)
            self._ahead[vote.voter] = vote if highest is None or vote.attempt > highest.attempt else highest
        if not low <= vote.attempt <= high:
            far = LimitReached if vote.attempt > high else OutOfWindow
            raise far("vote's attempt", f"{vote.attempt} found, {low} to {high} are kept")
        ballot = self._ballots.get((vote.attempt, vote.kind))
        if ballot is None:
            ballot = self._ballots[vote.attempt, vote.kind] = Ballot()
        first, second = ballot.first.get(vote.voter), ballot.second.get(vote.voter)
        if first is not None and not excludes(first, vote):
            raise AlreadyKnown("vote", f"{vote.voter.hex()[:16]}… has voted so")
        if second is not None:
            known = second.block_hash == vote.block_hash
            raise (AlreadyKnown if known else LimitReached)("vote", f"{vote.voter.hex()[:16]}… has voted twice")
        if ballot.count(ballot.first if first is None else ballot.second, vote) >= self._quorum:
            self._note_quorum(vote, ballot)
        return None if first is None else evidence_of(first, vote)

    def add_certificate(self, certificate: Certificate) -> None:
        """Take a valid certificate as a whole: a traitor's two other votes cannot hide it.

        Only a quorum of a polka's votes is kept: they prove as much, and a journal has room for no more.
        """
        if certificate.kind is VoteKind.PREVOTE:
            is_longer = len(certificate.votes) > self._quorum
            kept = certify(certificate.votes[: self._quorum]) if is_longer else certificate
            self._polkas.setdefault(certificate.attempt, kept)
        elif self._decision is None:
            self._decision = certificate

    def attempt_of(self, count: int) -> int:
        """The highest attempt beyond ours that ``count`` members have reached; -1 if fewer are beyond ours."""
        if len(self._ahead) < count:
            return -1
        return sorted((vote.attempt for vote in self._ahead.values()), reverse=True)[count - 1]

    def ahead(self, attempt: int) -> tuple[Vote, ...]:
        """Votes of members that are beyond our attempt and have reached another one, one of each."""
        return tuple(vote for vote in self._ahead.values() if vote.attempt >= attempt)

    def reach(self, attempt: int) -> None:
        """Go to ``attempt``: drop old ballots, but keep the two newest quorums of prevotes."""
        self._ahead = {voter: theirs for voter, theirs in self._ahead.items() if theirs.attempt > attempt}
        for slot in [known for known in self._ballots if known[0] < attempt - ATTEMPTS_BEHIND]:
            del self._ballots[slot]
        for old in sorted(self._polkas)[:-2]:
            if old < attempt - ATTEMPTS_BEHIND:
                del self._polkas[old]

    def _note_quorum(self, vote: Vote, ballot: Ballot) -> None:
        is_known = self._decision is not None or (vote.kind is VoteKind.PREVOTE and vote.attempt in self._polkas)
        if vote.block_hash != NIL and not is_known:
            self.add_certificate(certify(ballot.votes_for(vote.block_hash)))


_EMPTY = Ballot()
"""A ballot without votes; no code adds to it."""
