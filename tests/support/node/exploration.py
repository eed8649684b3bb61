"""Every course that one height can take: honest ``Agreement`` objects, and traitors that may say anything to anyone.

The explorer runs the real class. It stands before each step of one member with the votes that others *have cast*, and
lets any of them arrive, in any combination with any votes of the traitors, whatever blocks the member holds and
prefers by then, and whether its timers end or not. A traitor leads all attempts: it may say what an honest leader says,
and a member that leads does what one does that hears nothing of its leader. Four observations keep the number of states
small; each only allows more courses than the real network does, so agreement in all of them is agreement.

* A vote that changed nothing when it arrived might as well arrive later, and so might a quorum of prevotes. So nothing
  that was received is kept between two steps, only what followed from it: attempts, own votes and locks.
* Which block a member prefers, and which it holds, may change from step to step in any way (policy does that too).
* A member knows others by their votes alone, so states that differ by the members' names are one.
* Nobody has to notice a decision: once precommits of a quorum *exist*, the traitors' included, it counts as made.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import combinations, product

from fedchain.chain.certificate import Certificate, certify
from fedchain.chain.vote import NIL, Vote, VoteKind
from fedchain.crypto.hashing import Hash
from fedchain.node.core.voting.agreement import Agreement

A, B = b"A" * 32, b"B" * 32
BLOCKS = (A, B)
ME = 0
"""Number of the member that takes a step, in its own view; others follow, and the traitors come last."""

GATHERED_MS, TIMED_OUT_MS = 1_000, 2_000
"""When a member's two timers end; a step begins at 0."""

Said = tuple[int, int, Hash]
"""(attempt, kind, block hash) of a vote."""

Polka = tuple[int, Hash]
"""(attempt, block hash) of a quorum of prevotes."""


@dataclass(frozen=True, slots=True)
class Local:
    """History of one honest member."""

    attempt: int = -1
    said: tuple[Said, ...] = ()

    @property
    def lock(self) -> Polka | None:
        """Its newest precommit for a block."""
        return max(((a, block) for a, kind, block in self.said if kind == 2 and block != NIL), default=None)

    def now(self) -> "Local":
        """The part that it still acts on: its lock, and its votes in this attempt."""
        held = None if (lock := self.lock) is None else (lock[0], int(VoteKind.PRECOMMIT), lock[1])
        return Local(self.attempt, tuple(item for item in self.said if item[0] == self.attempt or item == held))

    def has_said(self, kind: VoteKind) -> bool:
        """Whether it voted so in its attempt."""
        return any((attempt, number) == (self.attempt, kind) for attempt, number, _ in self.said)


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that may happen to a member."""

    held: frozenset[Hash] = frozenset()
    preference: Hash | None = None
    now_ms: int = 0
    votes: tuple[Vote, ...] = ()
    polkas: tuple[Polka, ...] = ()
    """Quorums of prevotes that it knows by then."""

    def preferred(self) -> Hash | None:
        return self.preference

    def deserves_vote(self, block_hash: Hash) -> bool:
        return block_hash in self.held

    def is_complete(self, block_hash: Hash) -> bool:
        return False

    def is_valid(self, block_hash: Hash) -> bool:
        return block_hash in self.held


HOLDINGS = [
    (frozenset(held), preference)
    for size in range(3)
    for held in combinations(BLOCKS, size)
    for preference in (held or (None,))
]


@dataclass
class Found:
    """Result of an exploration."""

    states: int = 0
    """Different states of all honest members together."""
    steps: int = 0
    """Steps between them."""
    depth: int = 0
    """Steps on the longest of the shortest ways to a state."""
    is_complete: bool = False
    """Whether there are no others."""
    disagreement: tuple[Local, ...] = ()
    """A state in which two blocks are decided; empty: there is none."""


@dataclass
class Explorer:
    """Explores breadth first.

    Args:
        members: n.
        traitors: how many of them may say anything.
        attempt_max: the last attempt that is looked at.
        kind: the class under test.
        checks_rules: whether a broken rule of a single member raises AssertionError; otherwise only agreement counts.
    """

    members: int
    traitors: int
    attempt_max: int
    kind: type[Agreement] = Agreement
    checks_rules: bool = True
    _next: dict[tuple[Local, tuple[object, ...]], frozenset[Local]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.faulty = (self.members - 1) // 3
        self.quorum = (self.members + self.faulty) // 2 + 1
        self.honest = self.members - self.traitors
        self._traitors = range(self.honest, self.members)
        self._leader = self.honest

    def explore(self, states_max: int = 10**9, depth_max: int = 10**9) -> Found:
        """Look at all states, or as many and as deep as allowed; it ends at the first disagreement."""
        numbers, locals_ = {Local(): 0}, [Local()]
        frontier = [(0,) * self.honest]
        seen, found = set(frontier), Found(states=1)
        while frontier and found.depth < depth_max and len(seen) < states_max:
            reached: list[tuple[int, ...]] = []
            for state in frontier:
                for place, number in enumerate(state):
                    if place and state[place - 1] == number:
                        continue  # the same step of another of them
                    others = state[:place] + state[place + 1 :]
                    for after in self._after(locals_[number], [locals_[other] for other in others]):
                        if after not in numbers:
                            numbers[after] = len(locals_)
                            locals_.append(after)
                        found.steps += 1
                        state_then = tuple(sorted((*others, numbers[after])))
                        if state_then not in seen:
                            seen.add(state_then)
                            reached.append(state_then)
            for state in reached:
                if len(self.decided([locals_[number] for number in state])) > 1:
                    found.disagreement = tuple(locals_[number] for number in state)
                    found.states = len(seen)
                    return found
            frontier, found.depth = reached, found.depth + bool(reached)
        found.states, found.is_complete = len(seen), not frontier
        return found

    def decided(self, state: list[Local]) -> set[Hash]:
        """Blocks for which precommits of a quorum exist."""
        said = [item for local in state for item in local.said if item[1] == VoteKind.PRECOMMIT and item[2] != NIL]
        return {item[2] for item in said if self._is_quorum(said, item)}

    # one member

    def _after(self, local: Local, others: list[Local]) -> set[Local]:
        """Everything that one step may make of a member."""
        reached: set[Local] = set()
        now = local.now()
        for view in self._views(local, others):
            if (now, view) not in self._next:
                moves = (item for step in self._steps(now, view) for item in self._moves(now, step))
                self._next[now, view] = frozenset(moves)
            reached |= {Local(after.attempt, _merge(local, after)) for after in self._next[now, view]}
        return reached

    def _views(self, local: Local, others: list[Local]) -> Iterator[tuple[object, ...]]:
        """The others' votes that may matter, a part at a time: alone, in its attempt, and in later ones."""
        said = [item for other in others for item in other.said]
        polkas = self._possible_polkas([*said, *local.said])
        if (lock := local.lock) is not None:  # older ones change nothing
            polkas = tuple(polka for polka in polkas if polka[0] > lock[0])
        yield (tuple(polka for polka in polkas if polka[0] <= local.attempt),)
        for kind in VoteKind if local.attempt >= 0 else ():
            values = sorted(block for attempt, number, block in said if (attempt, number) == (local.attempt, kind))
            yield tuple(polka for polka in polkas if polka[0] <= local.attempt), kind, tuple(values)
        ahead = sorted({max(attempt for attempt, _, _ in other.said) for other in others if other.said})
        yield polkas, "ahead", max(ahead, default=-1)

    def _possible_polkas(self, said: list[Said]) -> tuple[Polka, ...]:
        """Quorums of prevotes that exist, with the traitors' help."""
        prevotes = {item for item in said if item[1] == VoteKind.PREVOTE and item[2] != NIL}
        return tuple(sorted((a, block) for a, k, block in prevotes if self._is_quorum(said, (a, k, block))))

    def _is_quorum(self, said: list[Said], item: Said) -> bool:
        return said.count(item) + self.traitors >= self.quorum

    def _steps(self, local: Local, view: tuple[object, ...]) -> Iterator[Step]:
        """Everything that may happen with a part of the others' votes."""
        polkas, *part = view
        assert isinstance(polkas, tuple)
        by_attempt = [[item for item in polkas if item[0] == attempt] for attempt in range(self.attempt_max + 1)]
        for choice in product(*([None, *items] for items in by_attempt)):
            known = tuple(item for item in choice if item is not None)
            for held, preference in HOLDINGS:
                base = Step(held, preference, polkas=known)
                match part:
                    case []:
                        for now_ms, votes in product((0, GATHERED_MS, TIMED_OUT_MS), self._proposals(local.attempt)):
                            yield replace(base, now_ms=now_ms, votes=votes)
                    case ["ahead", int(last)]:
                        yield from (replace(base, votes=votes) for votes in self._calls_ahead(local.attempt, last))
                    case [VoteKind() as kind, tuple(values)]:
                        own = sum(item[:2] == (local.attempt, kind) for item in local.said)
                        for votes in self._arrivals(local.attempt, kind, values):
                            if len({vote.voter for vote in votes}) + own >= self.quorum:  # fewer change nothing
                                yield replace(base, votes=votes)

    def _proposals(self, attempt: int) -> Iterator[tuple[Vote, ...]]:
        """Prevotes that the leader may have cast by then."""
        yield ()
        if attempt > 0 and self.traitors:
            yield from ((_vote(VoteKind.PREVOTE, attempt, block, self._leader),) for block in BLOCKS)

    def _calls_ahead(self, attempt: int, last: int) -> Iterator[tuple[Vote, ...]]:
        """Votes of later attempts: traitors may be in any, but one honest member is ahead, or they are too many."""
        for target in range(attempt + 1, (self.attempt_max if self.traitors > self.faulty else last) + 1):
            told = [_vote(VoteKind.PREVOTE, target, NIL, number) for number in self._traitors]
            heard = [_vote(VoteKind.PREVOTE, last, NIL, 1)] if last >= target else []
            yield (*told, *heard)

    def _arrivals(self, attempt: int, kind: VoteKind, values: tuple[Hash, ...]) -> Iterator[tuple[Vote, ...]]:
        """Any of the others' votes of one slot, with nothing, one vote or two votes of each traitor."""
        some = {arrived for size in range(len(values) + 1) for arrived in combinations(values, size)}
        lies = [lie for size in range(3) for lie in combinations((NIL, A, B), size)]
        for arrived, told in product(sorted(some), product(lies, repeat=self.traitors)):
            true = [_vote(kind, attempt, block, number) for number, block in enumerate(arrived, 1)]
            said = zip(self._traitors, told, strict=True)
            yield (*true, *(_vote(kind, attempt, block, number) for number, blocks in said for block in blocks))

    def _moves(self, local: Local, step: Step) -> Iterator[Local]:
        """The member after a step, by the real class; and after the timeout that a quorum without agreement has."""
        agreement = self._restore(local, step)
        for vote in step.votes:
            agreement.ballots.add(vote, agreement.attempt)
        said = list(local.said)
        for timeout in (None, "_nil_precommit_ms", "_next_attempt_ms"):
            if timeout is not None:
                if getattr(agreement, timeout) is None:
                    continue
                setattr(agreement, timeout, step.now_ms)
            said += _advance(agreement, step.now_ms)
            after = Local(agreement.attempt, tuple(sorted(said)))
            if after.attempt > self.attempt_max:
                return
            if after != local:
                if self.checks_rules:
                    _check_rules(local, after, agreement)
                yield after

    def _restore(self, local: Local, step: Step) -> Agreement:
        """The member's ``Agreement`` before a step."""
        leader, me = self._leader.to_bytes(32, "big"), ME.to_bytes(32, "big")
        agreement = self.kind(step, self.members, self.quorum, self.faulty, 1_000, lambda attempt: leader, me)
        agreement.attempt, agreement.lock = local.attempt, local.lock
        agreement._precommitted = local.has_said(VoteKind.PRECOMMIT)
        agreement._prevoted = agreement._precommitted or local.has_said(VoteKind.PREVOTE)
        if not agreement._prevoted:
            agreement._gather_until_ms = None if local.attempt == 0 else GATHERED_MS
            agreement._nil_prevote_ms = None if local.attempt < 0 else TIMED_OUT_MS
        for attempt, block in step.polkas:
            agreement.ballots.add_certificate(_certificate(attempt, block, self.quorum))
        for attempt, kind, block in local.said:
            if attempt == local.attempt:
                agreement.ballots.add(_vote(VoteKind(kind), attempt, block, ME), attempt)
        return agreement


def _merge(local: Local, after: Local) -> tuple[Said, ...]:
    return tuple(sorted({*local.said, *after.said}))


def _check_rules(before: Local, after: Local, agreement: Agreement) -> None:
    """The rules of Algorithm 1 that every member keeps by itself."""
    slots = [(attempt, kind) for attempt, kind, _ in after.said]
    assert len(slots) == len({*slots}), "two votes in one slot"
    assert after.attempt >= before.attempt, "an attempt went back"
    for attempt, kind, block in {*after.said} - {*before.said}:
        polka = agreement.ballots.polka(attempt)
        if block == NIL:
            continue
        if kind == VoteKind.PRECOMMIT:
            assert polka is not None, "a precommit without a quorum of prevotes"
            assert polka.block_hash == block, "a precommit for another block than the quorum's"
        elif (lock := before.lock) is not None and block != lock[1]:
            newer = [agreement.ballots.polka(known) for known in range(lock[0] + 1, attempt)]
            blocks = {certificate.block_hash for certificate in newer if certificate is not None}
            assert block in blocks, "a lock was given up without a newer quorum"


def _advance(agreement: Agreement, now_ms: int) -> list[Said]:
    """Do all that can be done now, the own votes counted at once."""
    said: list[Said] = []
    while cast := agreement.advance(now_ms):
        for item in cast:
            said.append((item.attempt, int(item.kind), item.block_hash))
            agreement.ballots.add(_vote(item.kind, item.attempt, item.block_hash, ME), agreement.attempt)
    return said


@cache
def _vote(kind: VoteKind, attempt: int, block: Hash, number: int) -> Vote:
    """A vote of the member ``number``; nobody looks at its signature here."""
    return Vote(kind, 1, attempt, block, 0, 0, number.to_bytes(32, "big"), bytes(64))


@cache
def _certificate(attempt: int, block: Hash, quorum: int) -> Certificate:
    return certify(_vote(VoteKind.PREVOTE, attempt, block, number) for number in range(quorum))
