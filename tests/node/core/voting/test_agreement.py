"""Each rule of the agreement on one height by itself. ``test_agreement_exploration`` has all of them together."""

from contextlib import suppress

import pytest

from fedchain.chain.certificate import certify
from fedchain.chain.exceptions import AlreadyKnown
from fedchain.chain.vote import NIL, Vote, VoteKind
from fedchain.crypto.hashing import Hash
from fedchain.node.core.voting.agreement import TIMEOUT_MS_MAX, Agreement, Lock

A, B, C = b"A" * 32, b"B" * 32, b"C" * 32
PREVOTE, PRECOMMIT = VoteKind.PREVOTE, VoteKind.PRECOMMIT
TIMEOUT_MS, GATHER_MS = 1_000, 250
MEMBERS, QUORUM, FAULTY = 7, 5, 2
OTHERS = range(1, MEMBERS)


class Held:
    """Candidates, the best first."""

    def __init__(self) -> None:
        self.blocks: list[Hash] = []
        self.complete: set[Hash] = set()
        self.undeserving: set[Hash] = set()

    def preferred(self) -> Hash | None:
        return next((block for block in self.blocks if block not in self.undeserving), None)

    def deserves_vote(self, block_hash: Hash) -> bool:
        return block_hash in self.blocks and block_hash not in self.undeserving

    def is_complete(self, block_hash: Hash) -> bool:
        return block_hash in self.complete

    def is_valid(self, block_hash: Hash) -> bool:
        return block_hash in self.blocks


class Member:
    """An agreement with a clock, whose own votes count."""

    def __init__(self, *blocks: Hash) -> None:
        self.held = Held()
        self.held.blocks += blocks
        self.agreement = Agreement(self.held, MEMBERS, QUORUM, FAULTY, TIMEOUT_MS, _key, _key(0))
        self.now_ms = 0

    def advance(self, milliseconds: int = 0) -> list[tuple[str, int, Hash]]:
        """Let time pass; the votes that are cast."""
        self.now_ms += milliseconds
        said = []
        while cast := self.agreement.advance(self.now_ms):
            for item in cast:
                self.agreement.ballots.add(_vote(item.kind, item.attempt, item.block_hash, 0), self.agreement.attempt)
                said.append((item.kind.name.lower(), item.attempt, item.block_hash))
        return said

    def hear(self, kind: VoteKind, attempt: int, **voters: int) -> list[tuple[str, int, Hash]]:
        """Votes of so many others for each block (``A=3, nil=1``); the votes that are cast."""
        numbers = iter(OTHERS)
        for name, count in voters.items():
            block = NIL if name == "nil" else name.encode() * 32
            for _ in range(count):
                with suppress(AlreadyKnown):
                    self.agreement.ballots.add(_vote(kind, attempt, block, next(numbers)), self.agreement.attempt)
        return self.advance()

    @property
    def wakes_ms(self) -> int | None:
        return self.agreement.wakes_at_ms(self.now_ms)


def _key(number: int) -> bytes:
    """The key of a member. In a federation of seven, member a leads attempt a."""
    return (number % MEMBERS).to_bytes(32, "big")


def _vote(kind: VoteKind, attempt: int, block: Hash, number: int) -> Vote:
    return Vote(kind, 1, attempt, block, 0, 0, _key(number), bytes(64))


def _in_attempt_0(*blocks: Hash) -> Member:
    """A member that prevoted its best block."""
    member = Member(*blocks)
    member.advance()
    assert member.advance(GATHER_MS) == [("prevote", 0, blocks[0])]
    return member


def _in_attempt_1(*blocks: Hash, lock: Hash | None = None) -> Member:
    """A member whose first attempt was in vain; it may be locked."""
    member = _in_attempt_0(*blocks)
    if lock is None:
        assert member.hear(PREVOTE, 0, nil=6) == [("precommit", 0, NIL)]
    else:
        name = lock[:1].decode()
        assert member.hear(PREVOTE, 0, **{name: 6}) == [("precommit", 0, lock)]
    member.hear(PRECOMMIT, 0, nil=6)
    assert member.agreement.attempt == 1
    return member


# --- attempt 0


def test_without_a_candidate_nothing_happens_whatever_time_it_is() -> None:
    member = Member()
    assert member.advance(10**6) == []
    assert (member.agreement.attempt, member.wakes_ms) == (-1, None)


def test_the_first_candidate_waits_a_moment_for_better_ones() -> None:
    member = Member(B)
    assert member.advance() == []
    assert member.wakes_ms == GATHER_MS
    member.held.blocks.insert(0, A)
    assert member.advance(GATHER_MS - 1) == []
    assert member.advance(1) == [("prevote", 0, A)]


def test_a_candidate_that_counts_everybody_waits_for_nothing() -> None:
    member = Member(A)
    member.held.complete.add(A)
    assert member.advance() == [("prevote", 0, A)]


def test_a_candidate_that_deserves_no_vote_begins_nothing() -> None:
    member = Member(A)
    member.held.undeserving.add(A)
    assert member.advance(10**6) == []
    member.held.undeserving.clear()
    assert member.advance(1) == []
    assert member.advance(GATHER_MS) == [("prevote", 0, A)]


def test_one_honest_member_in_attempt_0_takes_the_others_there() -> None:
    member = Member()
    member.hear(PREVOTE, 0, A=FAULTY)
    assert member.agreement.attempt == -1, "they may all lie"
    member.hear(PREVOTE, 0, A=FAULTY + 1)
    assert member.agreement.attempt == 0
    assert member.advance(TIMEOUT_MS - 1) == []
    assert member.advance(1) == [("prevote", 0, NIL)]


def test_before_it_is_too_late_a_candidate_is_still_prevoted() -> None:
    member = Member()
    member.hear(PREVOTE, 0, A=3)
    member.held.blocks.append(B)
    assert member.advance(TIMEOUT_MS - 1) == [("prevote", 0, B)]
    assert member.advance(1) == []


# --- precommits


def test_a_quorum_of_prevotes_locks_and_is_precommitted_at_once() -> None:
    assert _in_attempt_0(A).hear(PREVOTE, 0, A=3) == []
    member = _in_attempt_0(A)
    assert member.hear(PREVOTE, 0, A=4) == [("precommit", 0, A)], "the own prevote is the fifth"
    assert member.agreement.lock == (0, A)


def test_a_quorum_for_another_block_than_ours_locks_us_too() -> None:
    member = _in_attempt_0(A, B)
    assert member.hear(PREVOTE, 0, B=5) == [("precommit", 0, B)]
    assert member.agreement.lock == (0, B)


def test_who_has_not_prevoted_precommits_and_does_not_go_back() -> None:
    member = Member(A)
    member.held.undeserving.add(A)
    assert member.hear(PREVOTE, 0, A=5) == [("precommit", 0, A)], "a quorum knows better"
    member.held.undeserving.clear()
    assert member.advance(10 * TIMEOUT_MS) == []


def test_a_block_that_is_not_held_is_not_precommitted_before_it_comes() -> None:
    member = _in_attempt_0(A)
    assert member.hear(PREVOTE, 0, B=5) == []
    member.held.blocks.append(B)
    assert member.advance(TIMEOUT_MS - 1) == [("precommit", 0, B)]


def test_a_block_that_does_not_come_is_given_up_after_the_timeout() -> None:
    member = _in_attempt_0(A)
    member.hear(PREVOTE, 0, B=5)
    assert member.advance(TIMEOUT_MS - 1) == []
    assert member.advance(1) == [("precommit", 0, NIL)]
    assert member.agreement.lock is None


def test_fewer_than_a_quorum_are_waited_for_without_end() -> None:
    member = _in_attempt_0(A)
    member.hear(PREVOTE, 0, B=3)
    assert member.advance(10**6) == []
    assert member.wakes_ms is None


def test_a_quorum_without_agreement_gives_the_last_votes_a_timeout() -> None:
    member = _in_attempt_0(A)
    assert member.hear(PREVOTE, 0, A=2, B=2) == []
    assert member.wakes_ms == member.now_ms + TIMEOUT_MS
    assert member.advance(TIMEOUT_MS - 1) == []
    assert member.advance(1) == [("precommit", 0, NIL)]


def test_the_timeout_begins_with_the_quorum_and_not_anew_with_each_vote() -> None:
    member = _in_attempt_0(A)
    member.hear(PREVOTE, 0, A=2, B=2)
    member.advance(TIMEOUT_MS - 1)
    member.agreement.ballots.add(_vote(PREVOTE, 0, A, 5), 0)
    assert member.advance() == []
    assert member.advance(1) == [("precommit", 0, NIL)]


def test_where_no_block_can_get_its_quorum_any_more_nobody_waits() -> None:
    member = _in_attempt_0(A)
    assert member.hear(PREVOTE, 0, A=1, B=2, nil=1) == [("precommit", 0, NIL)], "2 for A, 2 for B, 2 are to come"


def test_a_second_vote_of_a_liar_counts_for_no_voter_that_is_to_come() -> None:
    member = _in_attempt_0(A)
    member.hear(PREVOTE, 0, A=2, B=2)
    member.agreement.ballots.add(_vote(PREVOTE, 0, C, 1), 0)
    assert member.advance() == [], "the last two may still vote for A"


def test_a_second_vote_of_a_liar_makes_no_quorum_that_is_waited_for() -> None:
    member = _in_attempt_0(A)
    member.hear(PREVOTE, 0, A=1, B=2)
    member.agreement.ballots.add(_vote(PREVOTE, 0, C, 1), 0)
    assert member.advance() == []
    assert member.wakes_ms is None, "four have voted"


# --- the next attempt


def test_a_quorum_of_precommits_decides_in_whatever_attempt() -> None:
    for attempt in (0, 1):
        member = _in_attempt_1(A, B)
        for number in range(1, 6):  # of attempt 0 these are their second votes
            member.agreement.ballots.add(_vote(PRECOMMIT, attempt, B, number), 1)
        decision = member.agreement.ballots.decision
        assert decision is not None
        assert (decision.attempt, decision.block_hash) == (attempt, B)


def test_who_has_decided_begins_no_further_attempt() -> None:
    member = _in_attempt_0(A)
    member.hear(PREVOTE, 0, A=4)
    member.hear(PRECOMMIT, 0, A=4)
    assert member.agreement.ballots.decision is not None
    member.advance(10**6)
    assert member.agreement.attempt == 0


def test_precommits_without_agreement_lead_to_the_next_attempt() -> None:
    member = _in_attempt_0(A)
    member.hear(PREVOTE, 0, A=4)
    member.hear(PRECOMMIT, 0, A=2, nil=2)
    assert member.agreement.attempt == 0
    assert member.wakes_ms == member.now_ms + TIMEOUT_MS
    member.advance(TIMEOUT_MS)
    assert member.agreement.attempt == 1


def test_after_an_attempt_in_vain_the_candidates_get_a_moment_to_reach_everybody() -> None:
    member = _in_attempt_1(B)
    member.held.blocks.insert(0, A)
    wait_ms = 2 * member.agreement.gather_ms(1)
    assert member.wakes_ms == member.now_ms + wait_ms, "member 1 leads, and says nothing"
    assert member.advance(wait_ms - 1) == []
    assert member.advance(1) == [("prevote", 1, A)]


def test_timeouts_grow_with_the_attempt_up_to_a_bound() -> None:
    agreement = Member().agreement
    waits = [agreement.timeout_ms(attempt) for attempt in range(100)]
    assert waits[:3] == [1_000, 2_000, 3_000]
    assert waits == sorted(waits)
    assert waits[-1] == TIMEOUT_MS_MAX


@pytest.mark.parametrize("kind", [PREVOTE, PRECOMMIT])
def test_more_members_than_may_lie_in_a_later_attempt_take_us_there(kind: VoteKind) -> None:
    member = _in_attempt_0(A)
    member.hear(kind, 5, nil=FAULTY)
    assert member.agreement.attempt == 0
    member.hear(kind, 4, nil=FAULTY + 1)
    assert member.agreement.attempt == 4, "one of them is honest, and in attempt 4 or later"


def test_members_ahead_in_different_attempts_take_us_to_the_highest_that_an_honest_one_reached() -> None:
    member = _in_attempt_0(A)
    for number, attempt in ((1, 7), (2, 5), (3, 3)):
        member.agreement.ballots.add(_vote(PREVOTE, attempt, NIL, number), 0)
    member.advance()
    assert member.agreement.attempt == 3


# --- leaders


def _in_attempt(attempt: int, *blocks: Hash, lock: Lock | None = None) -> Member:
    """A member that has just gone to an attempt from the one before."""
    member = Member(*blocks)
    member.agreement.resume(attempt - 1, lock, prevoted=True, precommitted=True)
    member.hear(PRECOMMIT, attempt - 1, nil=6)
    assert (member.agreement.attempt, member.agreement.lock) == (attempt, lock)
    return member


def _leads(member: Member, attempt: int, block: Hash) -> list[tuple[str, int, Hash]]:
    """The leader of an attempt prevotes; the votes that are cast."""
    member.agreement.ballots.add(_vote(PREVOTE, attempt, block, attempt), member.agreement.attempt)
    return member.advance()


def test_what_the_leader_prevoted_is_prevoted_at_once_whatever_is_preferred() -> None:
    member = _in_attempt(2, A, B)
    assert member.hear(PREVOTE, 2, B=1) == [], "member 1 does not lead attempt 2"
    assert _leads(member, 2, B) == [("prevote", 2, B)]
    member = _in_attempt(2, A, B)
    _knows(member, 0, A)
    assert _leads(member, 2, B) == [("prevote", 2, B)], "also if a quorum prevoted another one"


def test_the_leader_itself_waits_for_candidates_and_quorums_alone() -> None:
    member = _in_attempt(MEMBERS, A, B)
    gather_ms = member.agreement.gather_ms(MEMBERS)
    assert member.advance(gather_ms - 1) == []
    assert member.advance(1) == [("prevote", MEMBERS, A)]


@pytest.mark.parametrize("proposed", [NIL, C])
def test_a_leader_that_prevotes_nothing_that_is_held_is_given_up(proposed: Hash) -> None:
    member = _in_attempt(1, A)
    assert _leads(member, 1, proposed) == []
    assert member.advance(2 * member.agreement.gather_ms(1) - 1) == []
    assert member.advance(1) == [("prevote", 1, A)]


def test_a_leader_s_block_that_comes_later_is_prevoted_then() -> None:
    member = _in_attempt(1, A)
    assert _leads(member, 1, B) == []
    member.held.blocks.append(B)
    assert member.advance(1) == [("prevote", 1, B)]


def test_a_leader_s_block_that_deserves_no_vote_is_followed_if_a_quorum_prevoted_it() -> None:
    member = _in_attempt(2, A, B)
    member.held.undeserving.add(B)
    assert _leads(member, 2, B) == []
    _knows(member, 1, B)
    assert member.advance() == [("prevote", 2, B)]


@pytest.mark.parametrize(("known", "follows"), [(None, False), ((0, B), False), ((1, B), False), ((2, B), True)])
def test_a_locked_member_follows_to_another_block_only_for_a_newer_quorum(known: Lock | None, follows: bool) -> None:
    member = _in_attempt(3, A, B, lock=(1, A))
    if known is not None:
        _knows(member, *known)
    assert _leads(member, 3, B) == ([("prevote", 3, B)] if follows else [])
    member.advance(2 * member.agreement.gather_ms(3))
    assert member.agreement.ballots.ballot(3, PREVOTE).tally == ({B: 2} if follows else {A: 1, B: 1})


def test_a_locked_member_follows_to_its_own_block_at_once() -> None:
    member = _in_attempt(3, A, B, lock=(1, B))
    assert _leads(member, 3, B) == [("prevote", 3, B)]


def test_a_prevote_of_the_leader_is_heeded_and_no_other_single_one() -> None:
    member = _in_attempt(2, A)
    votes = [_vote(kind, 2, A, number) for kind, number in ((PREVOTE, 2), (PREVOTE, 3))]
    for vote in votes:
        member.agreement.ballots.add(vote, 2)
    assert [member.agreement.heeds(vote) for vote in votes] == [True, False]
    assert not _in_attempt_0(A).agreement.heeds(_vote(PREVOTE, 0, A, 0)), "nobody leads attempt 0"


def test_prevotes_beyond_a_quorum_are_slept_through_once_one_block_had_it_and_a_precommit_followed() -> None:
    late = _vote(PREVOTE, 0, A, 6)
    member = _in_attempt_0(A)
    for number in (1, 2, 3, 4):
        member.agreement.ballots.add(_vote(PREVOTE, 0, A, number), 0)
    assert member.agreement.heeds(late), "the polka is there, and nothing was precommitted"
    assert member.advance() == [("precommit", 0, A)]
    assert not member.agreement.heeds(late)
    assert member.hear(PREVOTE, 0, A=6) == [], "nothing follows, indeed"
    split = _in_attempt_0(A)
    assert split.hear(PREVOTE, 0, B=3, nil=2) == [("precommit", 0, NIL)]
    assert split.agreement.heeds(late), "no block had a quorum: a later one may be heard of"
    before = split.agreement.attempt
    for number in (1, 2, 3, 4, 5):
        member.agreement.ballots.add(_vote(PRECOMMIT, 0, A, number), 0)
    assert member.agreement.heeds(_vote(PRECOMMIT, 0, A, 6)), "precommits decide"
    assert before == 0


# --- locks


def test_a_lock_is_prevoted_whatever_is_preferred() -> None:
    member = _in_attempt_1(A, B, lock=A)
    member.advance(2 * member.agreement.gather_ms(1))
    ballot = member.agreement.ballots.ballot(1, PREVOTE)
    assert ballot.tally == {A: 1}
    member = _in_attempt_0(A, B)
    member.hear(PREVOTE, 0, B=5)
    member.held.blocks.remove(B)
    member.hear(PRECOMMIT, 0, nil=6)
    member.advance(2 * member.agreement.gather_ms(1))
    assert member.agreement.ballots.ballot(1, PREVOTE).tally == {B: 1}, "also if the block is not held any more"


def _knows(member: Member, attempt: int, block: Hash) -> None:
    votes = [_vote(PREVOTE, attempt, block, number) for number in range(1, 6)]
    member.agreement.ballots.add_certificate(certify(votes))


def test_a_lock_is_given_up_for_a_newer_quorum_of_prevotes() -> None:
    member = _in_attempt_1(A, B, lock=A)
    _knows(member, 1, B)
    member.hear(PRECOMMIT, 1, nil=6)
    assert member.agreement.attempt == 2
    member.advance(2 * member.agreement.gather_ms(2))
    assert member.agreement.ballots.ballot(2, PREVOTE).tally == {B: 1}
    assert member.agreement.lock == (1, B), "it was of the attempt that we were in"


def test_a_lock_is_given_up_for_a_quorum_of_the_very_next_attempt() -> None:
    member = Member(A, B)
    member.agreement.resume(3, (1, A), prevoted=False, precommitted=False)
    _knows(member, 2, B)
    assert member.advance() == [("prevote", 3, B)]


@pytest.mark.parametrize(("heard", "holds"), [(None, (2, A)), ((1, B), (2, A)), ((2, A), (2, A)), ((3, B), (3, B))])
@pytest.mark.parametrize("attempt", [1, 4, 6])
def test_of_two_locks_the_newer_one_holds_whichever_was_there_before(
    heard: Lock | None, holds: Lock, attempt: int
) -> None:
    member = Member(A, B)
    member.agreement.resume(4, (2, A), prevoted=False, precommitted=False)
    member.agreement.resume(attempt, heard, prevoted=False, precommitted=False)
    assert (member.agreement.lock, member.agreement.attempt) == (holds, max(4, attempt))
    assert member.advance(TIMEOUT_MS) == [("prevote", max(4, attempt), holds[1])]


def test_a_lock_is_not_given_up_for_a_quorum_of_its_own_attempt_or_an_older_one() -> None:
    member = Member(A, B)
    member.agreement.resume(3, (2, A), prevoted=False, precommitted=False)
    _knows(member, 1, B)
    assert member.advance() == [("prevote", 3, A)]


def test_who_is_not_locked_prevotes_what_a_quorum_prevoted_last() -> None:
    member = Member(A, B, C)
    member.agreement.resume(3, None, prevoted=False, precommitted=False)
    _knows(member, 0, C)
    _knows(member, 2, B)
    assert member.advance() == [("prevote", 3, B)]


def test_what_a_quorum_prevoted_but_is_not_held_is_waited_for_and_then_given_up() -> None:
    for comes in (True, False):
        member = Member(A)
        member.agreement.resume(1, None, prevoted=False, precommitted=False)
        _knows(member, 0, B)
        assert member.advance() == []
        assert member.advance(2 * TIMEOUT_MS - 1) == []
        if comes:
            member.held.blocks.append(B)
        assert member.advance(1) == [("prevote", 1, B if comes else NIL)], "never what we like better"


def test_a_quorum_that_is_known_too_late_locks_nobody_but_is_followed() -> None:
    member = _in_attempt_0(A, B)
    member.hear(PREVOTE, 0, A=2, nil=2)
    assert member.advance(TIMEOUT_MS) == [("precommit", 0, NIL)]
    _knows(member, 0, B)
    assert member.advance() == []
    assert member.agreement.lock is None
    member.hear(PRECOMMIT, 0, nil=6)
    member.advance(2 * member.agreement.gather_ms(1))
    assert member.agreement.ballots.ballot(1, PREVOTE).tally == {B: 1}


# --- going on


@pytest.mark.parametrize(("prevoted", "precommitted"), [(False, False), (True, False), (True, True), (False, True)])
def test_what_was_voted_before_a_crash_is_not_voted_again(prevoted: bool, precommitted: bool) -> None:
    member = Member(A)
    member.agreement.resume(2, None, prevoted=prevoted, precommitted=precommitted)
    said = member.advance() + member.advance(10**6)
    assert ("prevote" in {kind for kind, _, _ in said}) == (not prevoted and not precommitted)
    said = member.hear(PREVOTE, 2, A=6)
    assert ("precommit" in {kind for kind, _, _ in said}) == (not precommitted)


def test_what_was_voted_in_the_attempt_that_we_are_in_is_remembered_after_a_silence() -> None:
    member = Member(A)
    member.agreement.resume(2, None, prevoted=False, precommitted=False)
    member.agreement.resume(2, None, prevoted=True, precommitted=True)
    assert member.advance(10**6) == []


def test_after_a_crash_nil_is_prevoted_when_time_is_up() -> None:
    member = Member()
    member.agreement.resume(2, None, prevoted=False, precommitted=False)
    assert member.advance() == []
    assert member.wakes_ms == 3 * TIMEOUT_MS
    assert member.advance(3 * TIMEOUT_MS) == [("prevote", 2, NIL)]


def test_a_moment_that_is_past_hides_none_that_is_to_come() -> None:
    member = _in_attempt_1(A)
    member.held.undeserving.add(A)
    wait_ms = 2 * member.agreement.gather_ms(1)
    assert member.advance(wait_ms) == []
    assert member.wakes_ms == member.now_ms - wait_ms + 2 * TIMEOUT_MS, "when to prevote nil"
