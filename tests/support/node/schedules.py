"""Random schedules of one height: honest ``Agreement`` objects on a network that calms down, beside traitors.

Before the network is calm it delays messages by seconds, repairs a third of them only when it is calm, and may be cut
in two. Traitors know everything at once, say anything to anyone, and either vote at random or tell every member what
it voted itself. They may also tempt: just before a member prevotes, it gets a candidate that is better than all others,
and the traitors' last prevotes, all for the block that it prevoted itself.
"""

import heapq
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random

from fedchain.chain.certificate import Certificate
from fedchain.chain.exceptions import Refused
from fedchain.chain.vote import NIL, Vote, VoteKind
from fedchain.crypto.hashing import Hash, sha256
from fedchain.node.core.voting.agreement import Agreement, Cast

CALM_DELAY_MS = 100
LIMIT_MS = 400_000
CANDIDATES_MAX = 8

ATTEMPTS_MORE = 2
"""Attempts that may begin in calm beyond those that traitors lead: one that ends what was begun in the storm, and the
one that decides."""


@dataclass
class Outcome:
    """Result of one schedule."""

    agrees: bool = True
    is_decided: bool = False
    attempts: int = 0
    """The last attempt that an honest member began."""
    attempts_calm: int = 0
    """The number of attempts that the members began after the network was calm."""
    after_calm_ms: int = 0
    """How long after the network was calm the last honest member decided."""


@dataclass
class Rules:
    """Bounds of a schedule."""

    members: int
    traitors: int
    two_faced: bool = False
    """Whether traitors tell every member what it voted itself; otherwise they vote at random."""
    relays: bool = True
    """Whether honest members pass on the first vote of a slot that they see of a traitor."""
    tempts: bool = False
    """Whether traitors make better and better candidates, and show them and their votes just before others prevote."""
    is_quiet: bool = False
    """Whether traitors that tempt do nothing else."""
    kind: type[Agreement] = Agreement
    """The class under test."""
    hands_out: bool = True
    """Whether a quorum of prevotes is handed out by members that know it."""


class Member:
    """An honest member: its agreement and the candidates that it holds."""

    def __init__(self, number: int, schedule: "Schedule") -> None:
        self.number, self.schedule = number, schedule
        self.held: set[Hash] = set()
        self.decided: Hash | None = None
        self.handed_out: set[Hash] = set()
        self.tempted_in = -2
        rules, me = schedule.rules, number.to_bytes(32, "big")
        self.agreement = rules.kind(
            self, rules.members, schedule.quorum, schedule.faulty, schedule.timeout_ms, schedule.leader, me
        )

    # candidates, as the agreement sees them

    def preferred(self) -> Hash | None:
        return max(self.held, key=lambda block: self.schedule.candidates[block], default=None)

    def deserves_vote(self, block_hash: Hash) -> bool:
        return block_hash in self.held

    def is_complete(self, block_hash: Hash) -> bool:
        return False

    def is_valid(self, block_hash: Hash) -> bool:
        return block_hash in self.held

    # what arrives

    def on_candidate(self, block: Hash) -> None:
        self.held.add(block)
        self.advance()

    def on_vote(self, vote: Vote) -> None:
        ballots = self.agreement.ballots
        is_first = vote.voter not in ballots.ballot(vote.attempt, vote.kind).first
        with suppress(Refused):
            ballots.add(vote, self.agreement.attempt)
        if is_first and self.schedule.rules.relays and self.schedule.is_traitor(vote.voter):
            self.schedule.broadcast(self, lambda member: member.on_vote(vote))
        if vote.block_hash not in (NIL, *self.held):
            self.schedule.fetch(self, vote.block_hash)
        self.advance()

    def on_certificate(self, certificate: Certificate) -> None:
        self.agreement.ballots.add_certificate(certificate)
        if certificate.block_hash not in self.held:
            self.schedule.fetch(self, certificate.block_hash)
        self.advance()

    def advance(self) -> None:
        if self.decided is not None:
            return
        schedule, agreement = self.schedule, self.agreement
        while cast := agreement.advance(schedule.now_ms):
            for item in cast:
                vote = schedule.vote(self.number, item)
                agreement.ballots.add(vote, agreement.attempt)
                schedule.broadcast(self, partial(_take_vote, vote))
        polka, decision = agreement.ballots.newest_polka, agreement.ballots.decision
        for certificate in (polka if schedule.rules.hands_out else None, decision):
            if certificate is not None and certificate.hash not in self.handed_out:
                self.handed_out.add(certificate.hash)
                schedule.broadcast(self, partial(_take_certificate, certificate))
        if decision is not None and decision.block_hash in self.held:
            self.decided = decision.block_hash
            schedule.on_decided(self)
        elif (wake_ms := agreement.wakes_at_ms(schedule.now_ms)) is not None:
            if schedule.rules.tempts and agreement.attempt > self.tempted_in:
                self.tempted_in = agreement.attempt
                schedule.at(max(wake_ms - 1, schedule.now_ms), partial(schedule.tempt, self, agreement.attempt))
            schedule.at(max(wake_ms, schedule.now_ms + 1), self.advance)


def _take_vote(vote: Vote, member: Member) -> None:
    member.on_vote(vote)


def _take_certificate(certificate: Certificate, member: Member) -> None:
    member.on_certificate(certificate)


@dataclass(order=True)
class _Event:
    at_ms: int
    number: int
    act: Callable[[], None] = field(compare=False)


class Schedule:
    """One course of one height, drawn from ``seed``."""

    def __init__(self, rules: Rules, seed: int) -> None:
        self.rules, self.draw = rules, Random(seed)
        self.faulty = (rules.members - 1) // 3
        self.quorum = (rules.members + self.faulty) // 2 + 1
        self.timeout_ms = self.draw.choice((300, 1_000))
        self.calm_ms = self.draw.choice((0, 5_000, 30_000))
        self.is_cut = self.draw.random() < 0.5
        self.seed = seed
        self.attempt_when_calm: int | None = None
        self.now_ms = 0
        self.candidates: dict[Hash, tuple[int, float]] = {}
        self.outcome = Outcome()
        self._queue: list[_Event] = []
        self._count = 0
        self._side = [self.draw.randrange(2) for _ in range(rules.members)]
        self._keys = [number.to_bytes(32, "big") for number in range(rules.members)]
        self.honest = [Member(number, self) for number in range(rules.traitors, rules.members)]

    def run(self) -> Outcome:
        """Let time pass until all honest members have decided, or two of them differently."""
        for _ in range(self.draw.randrange(1, 4)):
            self.at(self.draw.randrange(2_000), partial(self._mine, self.draw.randrange(self.rules.members)))
        self.at(3_000, partial(self._mine, self.rules.members - 1))
        self.at(self.calm_ms + CALM_DELAY_MS, self._note_calm)
        if self.rules.traitors and not (self.rules.tempts and self.rules.is_quiet):
            self.at(self.draw.randrange(100, 1_000), self._betray)
        while self._queue and self._queue[0].at_ms < LIMIT_MS and not self.outcome.is_decided and self.outcome.agrees:
            event = heapq.heappop(self._queue)
            self.now_ms = max(self.now_ms, event.at_ms)
            event.act()
        self.outcome.attempts = self._last_attempt()
        if self.attempt_when_calm is not None:
            self.outcome.attempts_calm = max(0, self.outcome.attempts - self.attempt_when_calm)
        self.outcome.after_calm_ms = max(0, self.now_ms - self.calm_ms)
        return self.outcome

    def at(self, at_ms: int, act: Callable[[], None]) -> None:
        """Let something happen later."""
        self._count += 1
        heapq.heappush(self._queue, _Event(at_ms, self._count, act))

    def leader(self, attempt: int) -> bytes:
        return self._keys[(self.seed + attempt) % self.rules.members]

    def is_traitor(self, voter: bytes) -> bool:
        return int.from_bytes(voter, "big") < self.rules.traitors

    def vote(self, number: int, cast: Cast) -> Vote:
        """A vote of a member; nobody looks at its signature here."""
        return Vote(cast.kind, 1, cast.attempt, cast.block_hash, 0, 0, self._keys[number], bytes(64))

    def broadcast(self, sender: Member, act: Callable[[Member], None]) -> None:
        for member in self.honest:
            if member is not sender and member.decided is None:
                self.at(self.now_ms + self._delay_ms(sender.number, member.number), partial(act, member))

    def fetch(self, member: Member, block: Hash) -> None:
        """A block that a vote names can be had of somebody."""
        if block in self.candidates:
            delay_ms = self._delay_ms(member.number, member.number)
            self.at(self.now_ms + delay_ms, partial(member.on_candidate, block))

    def on_decided(self, member: Member) -> None:
        block = member.decided
        assert block is not None, "a member that decided"
        self.broadcast(member, lambda other: other.on_candidate(block))
        decided = {other.decided for other in self.honest}
        self.outcome.agrees = len(decided - {None}) <= 1
        self.outcome.is_decided = None not in decided

    def _last_attempt(self) -> int:
        return max(member.agreement.attempt for member in self.honest)

    def _note_calm(self) -> None:
        self.attempt_when_calm = max(0, self._last_attempt())

    def _delay_ms(self, sender: int, receiver: int) -> int:
        if self.now_ms >= self.calm_ms:
            return self.draw.randrange(CALM_DELAY_MS)
        cut = self.is_cut and self._side[sender] != self._side[receiver]
        if cut or self.draw.random() < 0.3:  # lost, and repaired later
            return self.calm_ms - self.now_ms + self.draw.randrange(CALM_DELAY_MS)
        return self.draw.randrange(3_000)

    def _mine(self, number: int) -> None:
        block = sha256(len(self.candidates).to_bytes(4, "big"))
        self.candidates[block] = self.draw.randrange(3), self.draw.random()
        if number < self.rules.traitors:
            for member in self.honest:
                if self.draw.random() < 0.5:
                    self.at(self.now_ms + self.draw.randrange(2_000), partial(member.on_candidate, block))
            return
        miner = self.honest[number - self.rules.traitors]
        miner.on_candidate(block)
        self.broadcast(miner, lambda member: member.on_candidate(block))

    # traitors

    def tempt(self, member: Member, attempt: int) -> None:
        """Show a member a candidate that is better than all others, and votes for the block that it prevoted last."""
        if member.decided is not None or member.agreement.attempt != attempt:
            return
        fresh = sha256(b"fresh %d %d" % (attempt, member.number))
        self.candidates[fresh] = max(posts for posts, _ in self.candidates.values()), 1.0 + len(self.candidates)
        member.on_candidate(fresh)
        own = member.agreement.ballots.ballot(attempt - 1, VoteKind.PREVOTE).first.get(self._keys[member.number])
        if own is not None:
            for traitor in range(self.rules.traitors):
                member.on_vote(self.vote(traitor, Cast(VoteKind.PREVOTE, attempt - 1, own.block_hash)))

    def _betray(self) -> None:
        self.at(self.now_ms + self.draw.randrange(100, 1_000), self._betray)
        if self.rules.two_faced and self.draw.random() < 0.5:
            self._echo()
            return
        top = max(member.agreement.attempt for member in self.honest)
        for traitor in range(self.rules.traitors):
            for _ in range(self.draw.randrange(4)):
                kind = self.draw.choice(tuple(VoteKind))
                attempt = max(0, top + self.draw.choice((-1, 0, 0, 0, 1)))
                for member in self.honest:
                    if self.draw.random() < 0.6:
                        cast = Cast(kind, attempt, self.draw.choice([NIL, *self.candidates]))
                        self._tell(traitor, member, cast, 500)
            if len(self.candidates) < CANDIDATES_MAX and self.draw.random() < 0.05:
                self._mine(traitor)

    def _echo(self) -> None:
        """Tell every member what it voted itself."""
        for member in self.honest:
            for kind in VoteKind:
                for attempt in (member.agreement.attempt - 1, member.agreement.attempt):
                    said = member.agreement.ballots.ballot(attempt, kind).first.get(self._keys[member.number])
                    if said is not None:
                        for traitor in range(self.rules.traitors):
                            self._tell(traitor, member, Cast(kind, attempt, said.block_hash), 200)

    def _tell(self, traitor: int, member: Member, cast: Cast, delay_max_ms: int) -> None:
        vote = self.vote(traitor, cast)
        self.at(self.now_ms + self.draw.randrange(delay_max_ms), partial(member.on_vote, vote))


@dataclass
class Figures:
    """Results of many schedules."""

    schedules: int
    disagreements: int
    undecided: int
    attempts_median: int
    attempts_99: int
    attempts_max: int
    calm_attempts_mean: float
    calm_attempts_max: int
    """Attempts that were begun after the network was calm."""
    after_calm_s_median: float
    after_calm_s_99: float


def run_many(rules: Rules, seeds: range) -> Figures:
    """Run a schedule for each seed."""
    outcomes = [Schedule(rules, seed).run() for seed in seeds]
    attempts = sorted(outcome.attempts for outcome in outcomes)
    after_s = sorted(outcome.after_calm_ms / 1_000 for outcome in outcomes)
    middle, last = len(outcomes) // 2, int(len(outcomes) * 0.99)
    return Figures(
        schedules=len(outcomes),
        disagreements=sum(not outcome.agrees for outcome in outcomes),
        undecided=sum(outcome.agrees and not outcome.is_decided for outcome in outcomes),
        attempts_median=attempts[middle],
        attempts_99=attempts[last],
        attempts_max=attempts[-1],
        calm_attempts_mean=sum(outcome.attempts_calm for outcome in outcomes) / len(outcomes),
        calm_attempts_max=max(outcome.attempts_calm for outcome in outcomes),
        after_calm_s_median=after_s[middle],
        after_calm_s_99=after_s[last],
    )
