"""Ballots: what is counted, and that nobody can make them grow or hide a quorum."""

import sys
from contextlib import suppress

import pytest

from fedchain.chain.certificate import Certificate, certify
from fedchain.chain.exceptions import AlreadyKnown, LimitReached, OutOfWindow
from fedchain.chain.vote import NIL, Vote, VoteKind
from fedchain.crypto.hashing import Hash, sha256
from fedchain.node.core.voting.ballot import ATTEMPT_NOTED_MAX, ATTEMPTS_AHEAD, ATTEMPTS_BEHIND, Ballots

A, B, C = b"A" * 32, b"B" * 32, b"C" * 32
PREVOTE, PRECOMMIT = VoteKind.PREVOTE, VoteKind.PRECOMMIT


def _vote(number: int, block: Hash = A, attempt: int = 0, kind: VoteKind = PREVOTE, clock_ms: int = 0) -> Vote:
    return Vote(kind, 1, attempt, block, clock_ms, 0, number.to_bytes(32, "big"), bytes(64))


def _certificate(block: Hash, attempt: int = 0, kind: VoteKind = PREVOTE) -> Certificate:
    return certify(_vote(number, block, attempt, kind) for number in range(3))


def test_a_quorum_of_prevotes_for_a_block_is_noted_once() -> None:
    ballots = Ballots(3)
    for number in range(2):
        assert ballots.add(_vote(number), 0) is None
    assert ballots.polka(0) is None
    ballots.add(_vote(2), 0)
    polka = ballots.polka(0)
    assert polka is not None
    assert (polka.block_hash, len(polka.votes)) == (A, 3)
    ballots.add(_vote(3), 0)
    assert ballots.polka(0) == polka
    assert ballots.decision is None


def test_a_quorum_of_precommits_for_a_block_decides() -> None:
    ballots = Ballots(3)
    for number in range(3):
        ballots.add(_vote(number, kind=PRECOMMIT, attempt=4), 2)
    assert ballots.decision is not None
    assert (ballots.decision.attempt, ballots.decision.block_hash) == (4, A)


def test_a_quorum_for_nothing_decides_nothing() -> None:
    ballots = Ballots(3)
    for kind in VoteKind:
        for number in range(3):
            ballots.add(_vote(number, NIL, kind=kind), 0)
    assert (ballots.polka(0), ballots.decision) == (None, None)
    assert ballots.ballot(0, PREVOTE).most() == 0


def test_votes_of_one_kind_and_attempt_count_together_and_no_others() -> None:
    ballots = Ballots(3)
    for number, attempt, kind in ((0, 0, PREVOTE), (1, 1, PREVOTE), (2, 0, PRECOMMIT)):
        ballots.add(_vote(number, attempt=attempt, kind=kind), 0)
    assert (ballots.polka(0), ballots.polka(1), ballots.decision) == (None, None, None)


def test_a_vote_counts_once_also_with_other_measurements() -> None:
    ballots = Ballots(3)
    ballots.add(_vote(0, kind=PRECOMMIT), 0)
    for clock_ms in (0, 5):
        with pytest.raises(AlreadyKnown):
            ballots.add(_vote(0, kind=PRECOMMIT, clock_ms=clock_ms), 0)
    assert ballots.ballot(0, PRECOMMIT).tally == {A: 1}


def test_of_who_votes_twice_both_votes_count_and_are_evidence_and_no_third_does() -> None:
    ballots = Ballots(3)
    ballots.add(_vote(0, A), 0)
    evidence = ballots.add(_vote(0, B), 0)
    assert evidence is not None
    assert {evidence.first, evidence.second} == {_vote(0, A), _vote(0, B)}
    for block, error in ((A, AlreadyKnown), (B, AlreadyKnown), (C, LimitReached), (NIL, LimitReached)):
        with pytest.raises(error):
            ballots.add(_vote(0, block), 0)
    assert ballots.ballot(0, PREVOTE).tally == {A: 1, B: 1}
    assert len(ballots.ballot(0, PREVOTE).first) == 1, "it is one voter"


@pytest.mark.parametrize("block", [A, B])
def test_the_second_vote_of_a_two_faced_voter_may_complete_either_quorum(block: Hash) -> None:
    ballots = Ballots(3)
    ballots.add(_vote(0, A), 0)
    ballots.add(_vote(0, B), 0)
    for number in (1, 2):
        ballots.add(_vote(number, block), 0)
    polka = ballots.polka(0)
    assert polka is not None
    assert polka.block_hash == block
    assert [vote.block_hash for vote in polka.votes] == [block] * 3


def test_a_certificate_counts_although_its_voters_told_us_two_other_things() -> None:
    """A traitor that fills its two places here cannot hide a quorum that others saw."""
    ballots = Ballots(3)
    for kind in VoteKind:
        for block in (B, C):
            ballots.add(_vote(0, block, kind=kind), 0)
        ballots.add_certificate(_certificate(A, kind=kind))
    polka = ballots.polka(0)
    assert polka is not None
    assert ballots.decision is not None
    assert (polka.block_hash, ballots.decision.block_hash) == (A, A)


def test_the_first_decision_stays() -> None:
    ballots = Ballots(3)
    ballots.add_certificate(_certificate(A, 0, PRECOMMIT))
    ballots.add_certificate(_certificate(A, 1, PRECOMMIT))
    assert ballots.decision is not None
    assert ballots.decision.attempt == 0


def test_the_first_quorum_of_prevotes_of_an_attempt_stays() -> None:
    """Others were shown it, and a journal may hold it as the proof of a lock."""
    ballots, first = Ballots(3), _certificate(A)
    ballots.add_certificate(first)
    ballots.add_certificate(certify(_vote(number) for number in range(1, 4)))
    assert ballots.polka(0) == first


def test_a_quorum_is_found_between_two_attempts_and_not_in_them() -> None:
    ballots = Ballots(3)
    ballots.add_certificate(_certificate(A, 2))
    found = [ballots.has_polka(A, after, before) for after, before in ((1, 3), (2, 3), (1, 2))]
    assert found == [True, False, False]


def test_the_newest_quorum_before_an_attempt_is_found() -> None:
    ballots = Ballots(3)
    for attempt, block in ((1, A), (4, B), (2, C)):
        ballots.add_certificate(_certificate(block, attempt))
    found = {attempt: ballots.polka_before(attempt) for attempt in (1, 2, 4, 5)}
    names = {attempt: None if polka is None else polka.block_hash for attempt, polka in found.items()}
    assert names == {1: None, 2: A, 4: C, 5: B}
    assert ballots.newest_polka == ballots.polka(4)


# --- bounds


def test_votes_far_from_our_attempt_are_not_kept_but_those_ahead_are_noted() -> None:
    ballots = Ballots(3)
    for attempt in (50 + ATTEMPTS_AHEAD + 1, 50 - ATTEMPTS_BEHIND - 1, ATTEMPT_NOTED_MAX, 2**64 - 1):
        with pytest.raises(LimitReached if attempt > 50 else OutOfWindow):
            ballots.add(_vote(0, attempt=attempt), 50)
    assert ballots.slots(50) == []
    assert ballots.attempt_of(1) == ATTEMPT_NOTED_MAX, "and not the last one that there is"
    assert ballots.attempt_of(2) == -1
    for attempt in (50 + ATTEMPTS_AHEAD, 50 - ATTEMPTS_BEHIND):
        ballots.add(_vote(1, attempt=attempt), 50)
    assert ballots.attempt_of(2) == 50 + ATTEMPTS_AHEAD


def test_attempts_are_noted_up_to_a_bound_that_leaves_attempts_enough() -> None:
    """Beyond it, only those are that our own attempt comes near."""
    ballots = Ballots(3)
    for attempt in (2**32 + 1, 2**32 + ATTEMPTS_AHEAD, 2**64 - 1):
        with pytest.raises(LimitReached):
            ballots.add(_vote(0, attempt=attempt), 50)
        assert ballots.attempt_of(1) == -1
    with pytest.raises(LimitReached):
        ballots.add(_vote(0, attempt=2**32), 50)
    assert ballots.attempt_of(1) == 2**32
    ballots.reach(2**32)
    assert ballots.attempt_of(1) == -1
    for attempt, noted in ((2**32 + ATTEMPTS_AHEAD + 1, -1), (2**32 + ATTEMPTS_AHEAD, 2**32 + ATTEMPTS_AHEAD)):
        with suppress(LimitReached):
            ballots.add(_vote(0, attempt=attempt), 2**32)
        assert ballots.attempt_of(1) == noted


def test_the_highest_attempt_that_so_many_reached_is_known() -> None:
    ballots = Ballots(3)
    for number, attempt in ((0, 9), (1, 7), (1, 3), (2, 5)):
        ballots.add(_vote(number, attempt=attempt), 2)
    assert [ballots.attempt_of(count) for count in (1, 2, 3, 4)] == [9, 7, 5, -1]
    ballots.reach(7)
    assert [ballots.attempt_of(count) for count in (1, 2)] == [9, -1], "who is not ahead of us counts no more"


def test_whatever_members_send_ballots_stay_small() -> None:
    members = 4
    ballots, attempt_now = Ballots(3), 0
    for attempt in range(400):
        attempt_now = attempt // 2
        ballots.reach(attempt_now)
        for number in range(members):
            for kind in VoteKind:
                for block in (A, B, C, sha256(bytes([attempt % 256]))):
                    try:
                        ballots.add(_vote(number, block, attempt % 256, kind), attempt_now)
                    except (AlreadyKnown, LimitReached, OutOfWindow):
                        continue
    slots = ballots.slots(attempt_now)
    assert len(slots) <= 2 * (ATTEMPTS_BEHIND + 1 + ATTEMPTS_AHEAD)
    votes = sum(len(ballots.ballot(*slot).first) + len(ballots.ballot(*slot).second) for slot in slots)
    assert votes <= 2 * members * len(slots)
    assert len(ballots._polkas) <= ATTEMPTS_BEHIND + 1 + ATTEMPTS_AHEAD + 2
    assert len(ballots._ahead) <= members
    assert sys.getsizeof(ballots._ballots) < 10_000


def test_votes_of_attempts_far_behind_ours_are_dropped() -> None:
    ballots = Ballots(3)
    for attempt in (0, 1):
        ballots.add(_vote(0, attempt=attempt), 0)
    ballots.reach(ATTEMPTS_BEHIND + 1)
    assert [len(ballots.ballot(attempt, PREVOTE).first) for attempt in (0, 1)] == [0, 1]
    assert dict(ballots.sizes()) == {"ballots": 1, "votes": 1}


def test_the_two_newest_quorums_are_kept_however_old_they_are() -> None:
    ballots = Ballots(3)
    for attempt in (0, 1, 2):
        ballots.add_certificate(_certificate(A, attempt))
    ballots.reach(1_000)
    assert [ballots.polka(attempt) is not None for attempt in (0, 1, 2)] == [False, True, True]


def test_quorums_of_attempts_whose_votes_are_kept_are_kept() -> None:
    """A leader may propose the block of any of them."""
    ballots = Ballots(3)
    for attempt in (0, 1, 2):
        ballots.add_certificate(_certificate(A, attempt))
    ballots.reach(ATTEMPTS_BEHIND)
    assert [ballots.polka(attempt) is not None for attempt in (0, 1, 2)] == [True] * 3


def test_votes_ahead_of_everybody_do_not_come_first_in_a_list() -> None:
    ballots = Ballots(3)
    for attempt in range(3 + ATTEMPTS_AHEAD):
        for kind in VoteKind:
            ballots.add(_vote(0, attempt=attempt, kind=kind), 2)
    shown = ballots.slots(2)
    assert shown[:6] == [(2, PRECOMMIT), (2, PREVOTE), (1, PRECOMMIT), (1, PREVOTE), (0, PRECOMMIT), (0, PREVOTE)]
    assert {attempt for attempt, _ in shown[6:]} == {*range(3, 3 + ATTEMPTS_AHEAD)}
