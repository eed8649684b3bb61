"""Turnout: its form in votes and certificates, and what voters say together, which a minority cannot move."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedchain.chain.certificate import Certificate, certify
from fedchain.chain.exceptions import InvalidEncoding, InvalidVote
from fedchain.chain.membership.turnout import MARKS_SIZE_MAX, Turnout, agree, is_marked, mark_seats
from fedchain.chain.validation import CLOCK_MS_MAX, validate_vote
from fedchain.chain.vote import NIL, Vote, VoteKind, sign_vote
from fedchain.crypto.keys import is_valid_signature
from tests.support.chain.builders import genesis, keys
from tests.support.chain.changes import living_genesis

KEY, BLOCK = keys(1)[0], bytes(range(32))
SEEN = Turnout(1_000, 2_000, mark_seats([0, 9]), mark_seats([9]))
FOUNDING = living_genesis(4)


def _vote(seen: Turnout | None = SEEN, kind: VoteKind = VoteKind.PRECOMMIT, block: bytes = BLOCK) -> Vote:
    return sign_vote(KEY, FOUNDING.chain_id, (3, 1, kind), block, turnout=seen)


@given(st.sets(st.integers(0, 40)))
def test_seats_that_are_marked_are_the_marked_ones(seats: set[int]) -> None:
    marks = mark_seats(seats)
    assert {seat for seat in range(60) if is_marked(marks, seat)} == seats
    assert not marks.endswith(b"\0")


def test_a_seat_without_a_place_is_not_marked() -> None:
    assert mark_seats([8 * MARKS_SIZE_MAX]) == b""
    assert len(mark_seats([8 * MARKS_SIZE_MAX - 1])) == MARKS_SIZE_MAX


@pytest.mark.parametrize("seen", [None, SEEN])
def test_votes_and_certificates_survive_being_encoded(seen: Turnout | None) -> None:
    vote = _vote(seen)
    assert Vote.from_record(vote.to_record()) == vote
    certificate = certify([vote])
    assert Certificate.from_record(certificate.to_record()) == certificate
    assert len(vote.to_record()) == (8 if seen is None else 9)


@pytest.mark.parametrize("record", [[1, 2, b""], [1, b"", b"", b""], 7, [1, 2, b"", b"", b""]])
def test_other_forms_are_refused(record: Any) -> None:
    values = _vote().to_record()
    values[-2] = record
    with pytest.raises(InvalidEncoding):
        Vote.from_record(values)


@pytest.mark.parametrize("place", [2, 3])
def test_marks_are_bounded_before_a_vote_is_judged(place: int) -> None:
    """Votes are kept by their number, some before they are judged."""
    record: list[Any] = [1, 2, b"", b""]
    record[place] = bytes([1]) * MARKS_SIZE_MAX
    assert Turnout.from_record(record).size == MARKS_SIZE_MAX
    record[place] += b"\1"
    with pytest.raises(InvalidEncoding, match="1025 bytes of marks found, at most 1024 are allowed"):
        Turnout.from_record(record)


def test_the_signature_covers_it() -> None:
    assert _vote().signature != _vote(None).signature
    validate_vote(FOUNDING, frozenset({KEY.public_key}), _vote(), is_valid_signature)


@pytest.mark.parametrize(
    "vote",
    [
        _vote(kind=VoteKind.PREVOTE),
        _vote(block=NIL),
        _vote(Turnout(0, 0, b"\1\0", b"")),
        _vote(Turnout(0, 0, b"", bytes(MARKS_SIZE_MAX) + b"\1")),
        _vote(Turnout(CLOCK_MS_MAX + 1, 0, b"", b"")),
        _vote(Turnout(0, CLOCK_MS_MAX + 1, b"", b"")),
    ],
)
def test_no_honest_member_signs_another_one(vote: Vote) -> None:
    with pytest.raises(InvalidVote):
        validate_vote(FOUNDING, frozenset({KEY.public_key}), vote, is_valid_signature)


def test_as_many_marks_and_times_as_late_as_there_may_be_are_signed() -> None:
    full = bytes([1]) * MARKS_SIZE_MAX
    vote = _vote(Turnout(CLOCK_MS_MAX, CLOCK_MS_MAX, full, full))
    validate_vote(FOUNDING, frozenset({KEY.public_key}), vote, is_valid_signature)


def test_version_2_knows_none() -> None:
    old = genesis(4)
    vote = sign_vote(KEY, old.chain_id, (3, 1, VoteKind.PRECOMMIT), BLOCK, turnout=SEEN)
    with pytest.raises(InvalidVote):
        validate_vote(old, frozenset({KEY.public_key}), vote, is_valid_signature)


TURNOUTS = st.builds(Turnout, st.integers(0, 99), st.integers(0, 99), st.binary(max_size=2), st.binary(max_size=2))


@given(st.integers(0, 3), st.data())
def test_a_minority_moves_neither_numbers_nor_marks(faulty: int, data: st.DataObject) -> None:
    honest = Turnout(5, 7, mark_seats([0, 3]), mark_seats([3]))
    liars = data.draw(st.lists(TURNOUTS, max_size=faulty))
    said = data.draw(st.permutations([*[honest] * (2 * faulty + 1 - len(liars)), *liars]))
    assert agree(said, faulty, 10) == honest


@given(st.integers(1, 3), st.data())
def test_liars_that_leave_it_out_silence_nobody(faulty: int, data: st.DataObject) -> None:
    """A quorum of 2 f + 1 votes has f liars', of which some say nothing, and the others anything."""
    honest = Turnout(5, 7, mark_seats([0, 3]), mark_seats([3]))
    liars = data.draw(st.lists(TURNOUTS, max_size=faulty))
    assert agree(data.draw(st.permutations([*[honest] * (faulty + 1), *liars])), faulty, 10) == honest


def test_so_few_that_all_of_them_could_be_liars_say_nothing() -> None:
    assert agree([SEEN] * 2, 2, 10) is None
    assert agree([SEEN] * 3, 2, 10) == SEEN
    assert agree([], 0, 10) is None


def test_half_of_the_voters_mark_nobody() -> None:
    one, other = Turnout(0, 0, mark_seats([1]), b""), Turnout(4, 4, mark_seats([2]), b"")
    assert agree([one, one, other, other], 0, 4) == Turnout(0, 0, b"", b"")
    assert agree([one, one, other], 0, 4) == one
