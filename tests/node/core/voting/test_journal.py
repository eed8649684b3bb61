"""The signing journal: it never goes back, whatever is written into it and wherever a crash cuts it off."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedchain.chain.certificate import certify
from fedchain.chain.encoding import encode
from fedchain.chain.exceptions import InvalidEncoding
from fedchain.chain.membership.turnout import Turnout
from fedchain.chain.post import Post
from fedchain.chain.vote import NIL, Vote, VoteKind, sign_vote
from fedchain.crypto.hashing import sha256
from fedchain.node.core.voting.ballot import Ballots
from fedchain.node.core.voting.journal import JOURNAL_SIZE_MAX, Journal, is_behind
from fedchain.node.custody.journal_file import content_size_max
from tests.support.chain.builders import genesis, keys, payload, post

FOUNDING = genesis(4)
KEY = keys(1)[0]
A, B = sha256(b"A"), sha256(b"B")


@cache
def _vote(height: int, attempt: int, kind: VoteKind, block: bytes = A) -> Vote:
    return sign_vote(KEY, FOUNDING.chain_id, (height, attempt, kind), block)


@cache
def _post(round_number: int, phase: int = 0, number: int = 0) -> Post:
    return post(KEY, FOUNDING, round_number, payload(number), phase=phase)


PREVOTE, PRECOMMIT = VoteKind.PREVOTE, VoteKind.PRECOMMIT


def test_a_slot_is_signed_once_and_none_before_it_any_more() -> None:
    journal = Journal().with_vote(_vote(5, 2, PREVOTE))
    for slot in ((5, 2, 1), (5, 1, 2), (5, 0, 1), (4, 9, 2)):
        assert not journal.allows(slot)
    for slot in ((5, 2, 2), (5, 3, 1), (6, 0, 1)):
        assert journal.allows(slot)
    with pytest.raises(AssertionError, match="does not go back"):
        journal.with_vote(_vote(5, 2, PREVOTE, B))


def test_a_lock_lasts_as_long_as_its_height() -> None:
    proof = certify(sign_vote(key, FOUNDING.chain_id, (5, 1, PREVOTE), A) for key in keys(3))
    journal = Journal().with_vote(_vote(5, 1, PREVOTE)).with_vote(_vote(5, 1, PRECOMMIT), proof)
    assert (journal.lock, journal.proof) == ((1, A), proof)
    journal = journal.with_vote(_vote(5, 2, PREVOTE)).with_vote(_vote(5, 2, PRECOMMIT, NIL))
    assert (journal.lock, journal.proof) == ((1, A), proof), "a precommit for nothing gives up no lock"
    journal = journal.with_vote(_vote(5, 3, PRECOMMIT, B))
    assert (journal.lock, journal.proof) == ((3, B), None)
    journal = journal.with_vote(_vote(6, 0, PREVOTE))
    assert (journal.lock, journal.proof) == (None, None)


def test_what_settled_the_block_below_is_kept_until_there_is_a_lock() -> None:
    """With the lock a quorum has voted at the height, so that others have heard it, too."""
    settled, proof = (
        certify(sign_vote(key, FOUNDING.chain_id, slot, A) for key in keys(3))
        for slot in ((5, 1, PRECOMMIT), (6, 1, PREVOTE))
    )
    journal = Journal().with_vote(_vote(5, 1, PRECOMMIT)).with_vote(_vote(6, 0, PREVOTE), None, settled)
    journal = journal.with_vote(_vote(6, 0, PRECOMMIT, NIL), None, settled).with_vote(_vote(6, 1, PREVOTE))
    assert (journal.lock, journal.proof) == (None, settled)
    assert Journal.decode(journal.encode()) == journal
    journal = journal.with_vote(_vote(6, 1, PRECOMMIT), proof, settled)
    assert (journal.lock, journal.proof) == ((1, A), proof)


@pytest.mark.parametrize("members", [2_000, 12_000])
def test_what_settled_the_block_below_is_left_out_where_a_journal_has_no_room_for_it(members: int) -> None:
    turnout = Turnout(2**40, 2**40, bytes([255]) * 250, bytes([255]) * 250)
    votes = [
        Vote(PRECOMMIT, 5, 1, A, 2**40, 2**40, number.to_bytes(32, "big"), bytes(64), turnout)
        for number in range(FOUNDING.fault_model.quorum(members))
    ]
    journal = Journal().with_vote(_vote(6, 0, PREVOTE), None, certify(votes)).with_post(_post(3))
    read = Journal.decode(journal.encode())
    assert len(journal.encode()) <= content_size_max(members)
    assert read == (journal if members == 2_000 else replace(journal, proof=None))


def test_votes_of_the_newest_attempt_are_kept_to_be_said_again() -> None:
    journal = Journal().with_vote(_vote(5, 1, PREVOTE)).with_vote(_vote(5, 1, PRECOMMIT))
    assert [vote.slot for vote in journal.votes] == [(5, 1, 1), (5, 1, 2)]
    assert [vote.slot for vote in journal.with_vote(_vote(5, 2, PREVOTE)).votes] == [(5, 2, 1)]


def test_posts_of_the_last_two_rounds_are_kept() -> None:
    journal = Journal()
    for round_number in (1, 2, 3):
        for phase in (0, 1):
            journal = journal.with_post(_post(round_number, phase))
    assert [(item.round, item.phase) for item in journal.posts] == [(2, 0), (2, 1), (3, 0), (3, 1)]
    assert journal.post(3, 1) == _post(3, 1)
    assert journal.post(1, 0) is None


def test_posts_are_kept_that_may_still_be_counted_late() -> None:
    said, heard = Journal(), Journal().with_post(_post(9), late_rounds=3)
    for round_number in range(1, 10):
        said = said.with_post(_post(round_number), late_rounds=3)
        heard = heard.adopt(_post(round_number), late_rounds=3)
    for journal in (said, heard):
        assert sorted(item.round for item in journal.posts) == [6, 7, 8, 9]
    assert {item.round for item in said.with_post(_post(10), late_rounds=1).posts} == {9, 10}


def test_it_vouches_for_what_it_knows_and_for_what_is_past() -> None:
    journal = Journal().with_vote(_vote(5, 1, PREVOTE)).with_post(_post(3))
    for ours in (_vote(5, 1, PREVOTE), _vote(5, 0, PRECOMMIT, NIL), _vote(1, 7, PRECOMMIT), _post(3), _post(1)):
        assert journal.vouches_for(ours)
    assert not journal.vouches_for(_vote(5, 0, PRECOMMIT, B)), "a lock, which it would not have forgotten"
    for foreign in (_vote(5, 1, PREVOTE, B), _vote(5, 1, PRECOMMIT), _vote(6, 0, PREVOTE), _post(3, 0, 9), _post(4)):
        assert not journal.vouches_for(foreign)


def test_one_vote_with_two_measurements_is_one_vote() -> None:
    vote = _vote(5, 1, PRECOMMIT)
    journal = Journal().with_vote(vote)
    assert journal.vouches_for(replace(vote, clock_ms=vote.clock_ms + 1))


def test_what_was_heard_of_us_is_never_contradicted() -> None:
    journal = Journal().with_post(_post(3))
    heard = journal.adopt(_vote(5, 1, PRECOMMIT)).adopt(_post(4))
    assert heard.lock == (1, A)
    assert not heard.allows((5, 1, 2))
    assert heard.post(4, 0) == _post(4)
    assert heard.adopt(_vote(5, 0, PREVOTE)) == heard, "what is past contradicts nothing"
    assert heard.adopt(_post(4, 0, 9)) == heard, "what was said here comes first"
    assert heard.adopt(_post(1)) == heard


def _full() -> Journal:
    proof = certify(sign_vote(key, FOUNDING.chain_id, (5, 1, PREVOTE), A) for key in keys(3))
    journal = Journal().with_vote(_vote(5, 1, PREVOTE)).with_vote(_vote(5, 1, PRECOMMIT), proof)
    return journal.with_post(_post(3)).with_post(_post(4, 1))


@pytest.mark.parametrize("journal", [Journal(), _full(), Journal().with_vote(_vote(7, 2**63, PRECOMMIT, NIL))])
def test_a_journal_has_one_byte_string(journal: Journal) -> None:
    assert Journal.decode(journal.encode()) == journal


def test_damaged_journals_are_refused() -> None:
    data = _full().encode()
    for bad in (
        b"",
        data[:-1],
        data + b"\x00",
        encode([2, [0, 0, 0], [], [], [], []]),
        encode([0, [0, 0, 0], [], [], [], []]),
        encode([1, [0, 0], [], [], [], []]),
        encode([1, [0, 0, 0], [], [[1, b"short"]], [], []]),
        encode([1, [0, 0, 0], [], [], []]),
        bytes(JOURNAL_SIZE_MAX + 1),
    ):
        with pytest.raises(InvalidEncoding):
            Journal.decode(bad)


@pytest.mark.parametrize("members", [10_000, 15_300, 65_536])
def test_a_lock_of_the_largest_federations_is_read_and_written(members: int) -> None:
    """Were its votes those of all members, and not only of a quorum, one of 10,200 would not have been read again."""
    quorum = FOUNDING.fault_model.quorum(members)
    far = 2**62, 2**62
    votes = [Vote(PREVOTE, *far, A, 0, 0, number.to_bytes(32, "big"), bytes(64)) for number in range(members)]
    ballots = Ballots(quorum)
    ballots.add_certificate(certify(votes))
    proof = ballots.polka(far[1])
    assert proof is not None
    assert len(proof.votes) == quorum
    journal = Journal().with_vote(_vote(*far, PREVOTE)).with_vote(_vote(*far, PRECOMMIT), proof)
    for round_number in (2**40, 2**40 + 1):
        for phase in range(64):
            journal = journal.with_post(_post(round_number, phase))
    data = journal.encode()
    assert len(data) <= content_size_max(members)
    assert Journal.decode(data) == journal


# --- never back

STATEMENTS = st.lists(
    st.one_of(
        st.builds(
            lambda height, attempt, kind, block: (height, attempt, kind, block),
            st.integers(1, 3),
            st.integers(0, 2),
            st.sampled_from(VoteKind),
            st.sampled_from([NIL, A, B]),
        ),
        st.builds(lambda *step: step, st.integers(1, 4), st.integers(0, 1), st.integers(0, 2)),
    ),
    max_size=24,
)


@given(STATEMENTS, st.sets(st.integers(0, 24)))
@settings(max_examples=300, deadline=None)
def test_wherever_it_crashes_no_slot_and_no_phase_has_two_statements(
    wishes: list[tuple[int, ...]], crashes: set[int]
) -> None:
    """A signer that wishes for anything writes the journal, then says it; it may crash between both, or after."""
    written, journal = Journal().encode(), Journal()
    said: dict[object, Vote | Post] = {}
    for number, wish in enumerate(wishes):
        if len(wish) == 4:
            height, attempt, kind, block = wish
            vote = _vote(height, attempt, VoteKind(kind), block)
            if not journal.allows(vote.slot):
                continue
            key: object = vote.slot
            statement: Vote | Post = vote
            after = journal.with_vote(vote)
        else:
            statement = _post(*wish)
            if not journal.allows_post(*wish[:2]):
                continue
            key, after = statement.key, journal.with_post(statement)
        assert not is_behind(written, after.encode())
        assert after.encode() == written or is_behind(after.encode(), written), "only the newer one forbids it"
        journal, written = after, after.encode()
        if number in crashes:
            journal = Journal.decode(written)
            if number % 2:
                continue  # before it was said
        assert said.setdefault(key, statement) == statement
        assert journal.vouches_for(statement)


def test_an_older_journal_is_behind() -> None:
    new = _full()
    for old in (Journal(), Journal().with_vote(_vote(5, 1, PREVOTE)).with_post(_post(3)).with_post(_post(4, 1))):
        assert is_behind(new.encode(), old.encode())
        assert not is_behind(old.encode(), new.encode())
    without_post = Journal().with_vote(_vote(5, 1, PREVOTE)).with_vote(_vote(5, 1, PRECOMMIT)).with_post(_post(3))
    assert is_behind(new.encode(), without_post.encode()), "it would allow another post"
    assert not is_behind(new.encode(), new.with_vote(_vote(9, 0, PREVOTE)).encode())
    unlocked = Journal().with_vote(_vote(5, 3, PREVOTE)).with_post(_post(3)).with_post(_post(4, 1))
    assert is_behind(new.encode(), unlocked.encode()), "it is past the attempt, but it forgot the lock"
    assert not is_behind(new.encode(), new.with_vote(_vote(6, 0, PREVOTE)).encode())


def test_one_that_says_something_else_is_behind() -> None:
    """A node that imported it would say the other thing, too."""
    said = Journal().with_vote(_vote(5, 0, PRECOMMIT)).with_vote(_vote(5, 1, PREVOTE)).with_post(_post(3))
    other_vote = Journal().with_vote(_vote(5, 0, PRECOMMIT)).with_vote(_vote(5, 1, PREVOTE, B)).with_post(_post(3))
    other_lock = Journal().with_vote(_vote(5, 0, PRECOMMIT, B)).with_vote(_vote(5, 1, PREVOTE)).with_post(_post(3))
    other_post = Journal().with_vote(_vote(5, 0, PRECOMMIT)).with_vote(_vote(5, 1, PREVOTE)).with_post(_post(3, 0, 9))
    for other in (other_vote, other_lock, other_post):
        assert is_behind(said.encode(), other.encode())
        assert is_behind(other.encode(), said.encode())


# --- whatever order


def _histories() -> Iterator[list[Vote]]:
    """All that one member may have said at a height: any precommit, or none, in each of three attempts."""
    for precommits in product((None, NIL, A, B), repeat=3):
        votes = []
        for attempt, block in enumerate(precommits):
            votes.append(_vote(5, attempt, PREVOTE, A if block is None else block))
            votes += [] if block is None else [_vote(5, attempt, PRECOMMIT, block)]
        yield votes


def test_in_whatever_order_own_statements_are_heard_the_newest_lock_holds() -> None:
    """All 64 histories of three attempts in all orders: a statement that is vouched for never brings anything new."""
    for votes in _histories():
        locks = [(vote.attempt, vote.block_hash) for vote in votes if vote.kind is PRECOMMIT and vote.block_hash != NIL]
        for order in permutations(votes):
            journal = Journal()
            for vote in order:
                after = journal.adopt(vote)
                assert after == journal or not journal.vouches_for(vote)
                assert not is_older(after, journal)
                journal = after
            assert journal.lock == max(locks, default=None)
            assert journal.slot == votes[-1].slot
            assert all(journal.vouches_for(vote) and journal.adopt(vote) == journal for vote in votes)


def test_a_precommit_of_another_block_in_the_attempt_of_our_lock_is_not_ours() -> None:
    """Also once the vote that locked us is no longer among those that are said again."""
    journal = Journal().with_vote(_vote(5, 1, PRECOMMIT, A)).with_vote(_vote(5, 2, PREVOTE, A))
    assert journal.votes == (_vote(5, 2, PREVOTE, A),)
    assert journal.vouches_for(_vote(5, 1, PRECOMMIT, A))
    assert not journal.vouches_for(_vote(5, 1, PRECOMMIT, B))


def test_a_lock_that_was_heard_of_does_not_come_with_the_proof_of_the_one_before() -> None:
    proof = certify(sign_vote(key, FOUNDING.chain_id, (5, 1, PREVOTE), A) for key in keys(3))
    journal = Journal().with_vote(_vote(5, 1, PRECOMMIT, A), proof).with_vote(_vote(5, 3, PREVOTE, A))
    journal = journal.adopt(_vote(5, 2, PRECOMMIT, B))
    assert (journal.lock, journal.proof, journal.slot) == ((2, B), None, (5, 3, 1))


def is_older(one: Journal, other: Journal) -> bool:
    """Whether one journal of a height allows what the other forbids."""
    locks = [(-1, NIL) if journal.lock is None else journal.lock for journal in (one, other)]
    return one.slot < other.slot or locks[0][0] < locks[1][0]


def test_one_that_an_import_would_take_has_the_newest_lock() -> None:
    """All pairs of what two machines may have heard of one key's history."""
    for votes in _histories():
        heard = [Journal()]
        for vote in reversed(votes):
            heard += [journal.adopt(vote) for journal in heard]
        for old, new in product(set(heard), repeat=2):
            if not is_behind(old.encode(), new.encode()):
                assert not is_older(new, old)


def test_a_phase_before_the_newest_post_takes_none() -> None:
    journal = Journal().with_post(_post(2, 1))
    for step in ((0, 0), (1, 1), (2, 0), (2, 1)):
        assert not journal.allows_post(*step)
    assert journal.allows_post(2, 2)
    assert journal.allows_post(3, 0)
    for number in range(3, 8):
        journal = journal.with_post(_post(number))
        assert not any(journal.allows_post(earlier, phase) for earlier in range(number + 1) for phase in range(1))
    with pytest.raises(AssertionError, match="does not go back"):
        journal.with_post(_post(4, 0, 9))


def test_posts_that_are_heard_in_any_order_leave_one_mark() -> None:
    posts = [_post(round_number, phase) for round_number in (3, 4, 5) for phase in (0, 1)]
    for order in permutations(posts):
        journal = Journal()
        for heard in order:
            journal = journal.adopt(heard)
        assert journal.posted == (5, 1)
        assert {(item.round, item.phase) for item in journal.posts} <= {(4, 0), (4, 1), (5, 0), (5, 1)}
        assert not any(journal.allows_post(item.round, item.phase) for item in posts)
