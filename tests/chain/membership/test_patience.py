"""Patience is a budget: what waiting costs those that are waited for, how it is paid back, and how it bounds rounds."""

import random
from dataclasses import replace

import pytest

from fedchain.chain.certificate import Certificate, certify
from fedchain.chain.genesis import Genesis
from fedchain.chain.membership.amendment import amendment_of
from fedchain.chain.membership.change import propose_amendment
from fedchain.chain.membership.member import SHORTENED_MAX, Due, Member, Standing
from fedchain.chain.membership.patience import grant_ms, longest_ms, mark_due, settle_waits, turnout_of
from fedchain.chain.membership.turnout import SEATS_MARKED, Turnout, mark_seats
from fedchain.chain.state import expected_contributors, patience_of
from fedchain.chain.vote import VoteKind, sign_vote
from fedchain.crypto.keys import PublicKey
from tests.support.chain.builders import ChainBuilder, keys
from tests.support.chain.changes import UNTIL, approved, living, living_genesis, own

TIMEOUT_MS, QUORUM_MS, MINING_MS = 60_000, 1_000, 4_000
FOUNDING = living_genesis(10, phase_timeout_ms=TIMEOUT_MS)
FAULTY = 3
PAID_MS = (QUORUM_MS + MINING_MS) // FAULTY
EVERYBODY = mark_seats(range(10))


def _records(**fields: object) -> list[Member]:
    records = [Member(key, Standing.ACTIVE, Standing.ACTIVE, 0, due=Due.ONCE) for key in FOUNDING.members]
    return [replace(records[0], **fields), *records[1:]]  # type: ignore[arg-type]


def _settled(records: list[Member], turnout: Turnout | None, genesis: Genesis = FOUNDING) -> list[Member]:
    return [*settle_waits(genesis, records, turnout, MINING_MS, len(records))]


def test_waiting_is_owed_by_those_that_were_waited_for_and_by_nobody_else() -> None:
    after = _settled(_records(), Turnout(QUORUM_MS, 9_000, EVERYBODY, mark_seats([0, 2])))
    assert [record.owed_ms for record in after] == [9_000, 0, 9_000, *[0] * 7]


def test_a_round_pays_back_a_share_of_the_time_that_it_took_without_waiting() -> None:
    records = _records(owed_ms=20_000)
    after = _settled(records, Turnout(QUORUM_MS, 50_000, EVERYBODY, b""))
    assert after[0].owed_ms == 20_000 - PAID_MS
    twice = replace(FOUNDING, patience_percent=200)
    assert _settled(records, Turnout(QUORUM_MS, 50_000, EVERYBODY, b""), twice)[0].owed_ms == 20_000 - 10_000 // FAULTY
    assert _settled(_records(owed_ms=5), Turnout(QUORUM_MS, 0, EVERYBODY, b""))[0].owed_ms == 0
    assert _settled(records, None) == records, "nobody says anything"


def test_a_member_that_owed_no_post_is_not_charged() -> None:
    after = _settled(_records(due=Due.NOT), Turnout(QUORUM_MS, 9_000, EVERYBODY, mark_seats([0])))
    assert after[0].owed_ms == 0


def test_a_member_whose_seat_has_no_mark_is_charged_with_every_wait() -> None:
    """Nobody can say that it was late: it could have each phase wait for it, and owe nothing."""
    (record, *_) = _records()
    records = [record] * (SEATS_MARKED + 2)
    records[-1] = replace(record, due=Due.NOT)
    *_, last_marked, first_unmarked, absent = _settled(records, Turnout(QUORUM_MS, 9_000, b"", b""))
    assert [found.owed_ms for found in (last_marked, first_unmarked, absent)] == [0, 9_000, 0]


def test_a_member_is_waited_for_as_long_as_its_budget_lasts() -> None:
    (record, *_) = _records(owed_ms=15_000)
    assert grant_ms(FOUNDING, record, is_punctual=True) == 45_000
    assert grant_ms(FOUNDING, replace(record, owed_ms=TIMEOUT_MS + 1), is_punctual=True) == 0


def test_a_member_that_was_late_is_tried_again_once_nothing_is_owed_and_it_lives() -> None:
    (record, *_) = _records()
    assert grant_ms(FOUNDING, record, is_punctual=False) == TIMEOUT_MS
    assert grant_ms(FOUNDING, replace(record, owed_ms=1), is_punctual=False) == 0
    assert grant_ms(FOUNDING, replace(record, idle=1), is_punctual=False) == 0


def test_a_member_that_was_waited_for_in_vain_is_not_waited_for_before_the_votes_say_so() -> None:
    (record, *_) = mark_due(_records(), set(range(10)), {0})
    assert record.due is Due.IN_VAIN
    assert grant_ms(FOUNDING, record, is_punctual=True) == 0
    (record, other, *_) = mark_due([record, *_records()[1:]], {0}, set())
    assert (record.due, other.due) == (Due.ONCE, Due.NOT)


def _quiet(records: list[Member], phases: int) -> list[Member]:
    """Phases in which everybody came at once."""
    for _ in range(phases):
        records = _settled(records, Turnout(QUORUM_MS, 0, EVERYBODY, b""))
    return records


def _longest_ms(records: list[Member], genesis: Genesis = FOUNDING) -> list[int]:
    return [longest_ms(genesis.phase_timeout_ms, record.shortened) for record in records]


def test_the_first_wait_for_a_member_that_came_soon_is_hardly_longer_than_a_round_without_it() -> None:
    records = _quiet(_records(), 1)
    assert _longest_ms(records) == [TIMEOUT_MS - TIMEOUT_MS // 8] * 10, "one phase says little"
    records = _quiet(records, 30)
    round_ms = QUORUM_MS + FOUNDING.target_mining_time_ms
    (wait_ms,) = {grant_ms(FOUNDING, record, is_punctual=True) for record in records}
    assert round_ms <= wait_ms < round_ms * 8 / 7
    (after, *_) = _longest_ms(_settled(records, Turnout(30_000, 0, EVERYBODY, b"")))
    assert 30_000 + FOUNDING.target_mining_time_ms <= after < 40_000, "as training takes"
    patient = replace(FOUNDING, phase_floor_ms=20_000)
    assert 20_000 <= _longest_ms(_settled(records, Turnout(QUORUM_MS, 0, EVERYBODY, b""), patient))[0] < 23_000
    hasty = replace(FOUNDING, phase_timeout_ms=3_000, phase_floor_ms=0)
    assert _longest_ms(_settled(records, Turnout(QUORUM_MS, 0, EVERYBODY, b""), hasty), hasty)[0] == 3_000
    assert _quiet(records, 1) == records, "what fits stays as it is"


def test_the_longest_wait_is_bounded_below() -> None:
    long = replace(FOUNDING, phase_timeout_ms=2**40, phase_floor_ms=0)
    records = _records(shortened=SHORTENED_MAX)
    assert _settled(records, Turnout(QUORUM_MS, 0, EVERYBODY, b""), long)[0].shortened == SHORTENED_MAX


def test_a_member_that_comes_later_is_waited_for_twice_as_long() -> None:
    quiet = _quiet(_records(), 30)
    first_ms, *others_ms = _longest_ms(_settled(quiet, Turnout(QUORUM_MS, 16_000, EVERYBODY, mark_seats([0]))))
    assert 32_000 <= first_ms < 32_000 * 8 / 7
    assert 16_000 <= min(others_ms) == max(others_ms) < 16_000 * 8 / 7, "they may have taken half of that"
    assert _longest_ms(_settled(quiet, Turnout(QUORUM_MS, 50_000, EVERYBODY, mark_seats([0]))))[0] == TIMEOUT_MS


def test_a_slow_phase_is_remembered_through_the_quick_ones_of_its_round() -> None:
    records = _settled(_quiet(_records(), 30), Turnout(QUORUM_MS, 16_000, EVERYBODY, mark_seats([0])))
    assert _longest_ms(_quiet(records, 3))[0] > 16_000


def test_a_member_that_was_late_is_tried_again_with_all_of_the_timeout() -> None:
    others = mark_seats(range(1, 10))
    quiet = _quiet(_records(), 30)
    (record, other, *_) = _settled(quiet, Turnout(QUORUM_MS, 5_000, others, mark_seats([0])))
    assert (record.owed_ms, record.shortened, other) == (5_000, 0, quiet[1])
    assert grant_ms(FOUNDING, replace(record, owed_ms=0), is_punctual=False) == TIMEOUT_MS


def test_nothing_is_learned_of_a_member_that_owed_no_post() -> None:
    records = [replace(record, due=Due.NOT) for record in _quiet(_records(), 5)]
    assert _settled(records, Turnout(QUORUM_MS, 50_000, b"", b"")) == records
    assert _settled(records, Turnout(QUORUM_MS, 0, EVERYBODY, b"")) == records


def test_a_member_that_needs_long_has_what_its_budget_leaves() -> None:
    (record, *_) = _records(owed_ms=50_000, shortened=4)
    assert grant_ms(FOUNDING, record, is_punctual=True) == 10_000
    assert grant_ms(FOUNDING, replace(record, owed_ms=1_000), is_punctual=True) == TIMEOUT_MS * 7**4 // 8**4


# --- the bound


@pytest.mark.parametrize("percent", [10, 100, 300])
@pytest.mark.parametrize("saves", [False, True])
def test_f_members_add_to_rounds_no_more_than_the_document_says(percent: int, *, saves: bool) -> None:
    """However they take turns: at most the named share of the time without them, and three timeouts each.

    Those that save are late only with a full budget, and once more before the votes for that block are on the chain.
    """
    genesis = replace(FOUNDING, patience_percent=percent)
    draw, rounds = random.Random(percent), 2_000
    records, reported, waited_ms = _records(), list[Turnout](), 0
    for _ in range(rounds):
        asked = [replace(records[seat], shortened=0) for seat in range(FAULTY)]  # however long each was before
        grants = {seat: grant_ms(genesis, record, is_punctual=True) for seat, record in enumerate(asked)}
        late = {seat: ms for seat, ms in grants.items() if (ms == TIMEOUT_MS if saves else draw.random() < 0.5)}
        late = dict([*late.items()][:1]) if saves else late  # one after the other
        wait_ms = max(late.values(), default=0)
        waited_ms += wait_ms
        awaited = mark_seats(seat for seat, granted in late.items() if 2 * granted > wait_ms)
        reported.append(Turnout(QUORUM_MS, wait_ms, EVERYBODY, awaited))
        if len(reported) > 1:  # a block's votes stand in the next one
            records = _settled(records, reported[-2], genesis)
    assert waited_ms <= rounds * (QUORUM_MS + MINING_MS) * percent // 100 + 3 * FAULTY * TIMEOUT_MS


# --- on the chain


def _seen(chain: ChainBuilder, turnout: Turnout, liars: dict[int, Turnout | None] | None = None) -> Certificate:
    """Precommits of four of five members for the tip, with what they saw."""
    head, said = chain.state, dict.fromkeys(range(4), turnout) | (liars or {})
    slot = head.height, 0, int(VoteKind.PRECOMMIT)
    clock_ms = chain.genesis.created_ms + 10_000 * head.height
    return certify(
        sign_vote(
            key, chain.genesis.chain_id, slot, chain.tip, clock_ms=clock_ms, mining_ms=MINING_MS, turnout=said[number]
        )
        for number, key in enumerate(keys(4))
    )


LATE = 4


def test_a_quorum_says_who_was_in_time_and_no_miner() -> None:
    chain = living(5)
    member = chain.genesis.members[LATE]
    others = chain.posts(members=chain.genesis.members[:LATE])
    chain.extend(posts=others)
    assert chain.state.records[LATE].due is Due.IN_VAIN
    assert chain.state.punctuality == bytes([2] * 5), "the votes are not on the chain yet"
    chain.extend(certificate=_seen(chain, Turnout(1_000, 0, mark_seats(range(5)), b"")))
    assert chain.state.punctuality[LATE] == 2, "a miner left it out, and it was in time"
    chain.extend(certificate=_seen(chain, Turnout(1_000, 0, mark_seats(range(4)), b"")))
    assert chain.state.punctuality[LATE] == 0, "a miner counts it, and it was late"
    assert member in expected_contributors(chain.state), "it owes nothing"
    chain.extend(certificate=_seen(chain, Turnout(1_000, 0, mark_seats(range(5)), b"")))
    assert chain.state.punctuality[LATE] == 1


def test_who_was_on_time_once_is_waited_for_although_it_owes() -> None:
    chain = living(5)
    records = [*chain.state.records]
    records[LATE] = replace(records[LATE], owed_ms=1)
    for mark in range(3):
        state = replace(chain.state, records=tuple(records), punctuality=bytes([2, 2, 2, 2, mark]))
        assert (chain.genesis.members[LATE] in patience_of(state)) is (mark > 0)


def test_who_was_not_drawn_is_as_punctual_as_before() -> None:
    chain = living(5, contributors_per_round=3)
    chain.extend()
    drawn = [record.due is not Due.NOT for record in chain.state.records]
    assert drawn.count(True) == 3
    chain.extend(certificate=_seen(chain, Turnout(1_000, 0, b"", b"")))
    assert [mark == 0 for mark in chain.state.punctuality] == drawn


def test_a_liar_makes_nobody_late_and_charges_nobody() -> None:
    chain = living(5)
    chain.extend()
    lie = Turnout(0, 10**9, b"", mark_seats(range(5)))
    chain.extend(certificate=_seen(chain, Turnout(1_000, 3_000, mark_seats(range(5)), b""), {0: lie}))
    assert chain.state.punctuality == bytes([2] * 5)
    assert {record.owed_ms for record in chain.state.records} == {0}


def test_waiting_is_charged_on_the_chain_and_shortens_the_next_wait() -> None:
    chain = living(5)
    chain.extend()
    chain.extend(certificate=_seen(chain, Turnout(1_000, 7_000, mark_seats(range(5)), mark_seats([LATE]))))
    assert [record.owed_ms for record in chain.state.records] == [0] * 4 + [7_000]
    granted, timeout_ms = patience_of(chain.state), chain.genesis.phase_timeout_ms
    assert set(granted.values()) == {timeout_ms - timeout_ms // 8}, "nothing more is known of anybody yet"
    for _ in range(2):
        chain.extend(certificate=_seen(chain, Turnout(1_000, 29_000, mark_seats(range(5)), mark_seats([LATE]))))
    owed_ms = chain.state.records[LATE].owed_ms
    assert owed_ms == 7_000 - 2 * (1_000 + MINING_MS) + 2 * 29_000
    granted = patience_of(chain.state)
    assert granted[chain.genesis.members[LATE]] == timeout_ms - owed_ms
    assert [*granted.values()] == sorted(granted.values(), reverse=True), "peers read the longest off its front"
    assert len({*granted.values()}) > 1


def test_waits_are_shortened_by_the_rules_in_force() -> None:
    """Not by those that the document says: nobody would wait as long as all agreed on."""
    chain = living(5)
    amendment = amendment_of({"phase_floor_ms": chain.genesis.phase_timeout_ms})
    change = propose_amendment(amendment, "models are larger", sequence=0, until=UNTIL)
    chain.extend(changes=[approved(chain, change)])
    shortened = []
    for _ in range(3):
        chain.extend(certificate=_seen(chain, Turnout(1_000, 0, mark_seats(range(5)), b"")))
        shortened.append({record.shortened for record in chain.state.records})
    assert shortened == [{1}, {0}, {0}]


def test_a_liar_that_says_nothing_silences_nobody() -> None:
    """It voted early, and stands in a certificate beside no more than the others that a quorum needs."""
    chain = living(4)
    chain.extend(posts=chain.posts(members=chain.genesis.members[:3]))
    seen = Turnout(1_000, 7_000, mark_seats(range(3)), mark_seats([3]))
    slot = chain.state.height, 0, int(VoteKind.PRECOMMIT)
    clock_ms, chain_id = chain.genesis.created_ms + 10_000, chain.genesis.chain_id
    votes = (
        sign_vote(key, chain_id, slot, chain.tip, clock_ms=clock_ms, turnout=None if number == 2 else seen)
        for number, key in enumerate(keys(3))
    )
    chain.extend(certificate=certify(votes))
    assert (chain.state.punctuality[3], chain.state.records[3].owed_ms) == (0, 7_000)


def test_votes_that_say_nothing_leave_all_as_it_was() -> None:
    chain = living(5)
    chain.extend(posts=chain.posts(members=chain.genesis.members[:LATE]))
    nothing: dict[int, Turnout | None] = dict.fromkeys(range(3))
    chain.extend(certificate=_seen(chain, Turnout(1_000, 7_000, b"", EVERYBODY), nothing))
    assert chain.state.punctuality == bytes([2] * 5)
    assert {record.owed_ms for record in chain.state.records} == {0}


def _late_once(chain: ChainBuilder, late: PublicKey) -> None:
    """Close a phase without a member, and have its voters say so."""
    chain.extend(posts=chain.posts(members=sorted(chain.state.roster.contributors - {late})))
    seats = chain.state.roster.seats
    there = (seats[member] for member in chain.state.roster.contributors if member != late)
    _let_speak(chain, Turnout(1_000, 7_000, mark_seats(there), mark_seats([seats[late]])))


def _let_speak(chain: ChainBuilder, seen: Turnout) -> None:
    """A block that brings the votes of all that decided the tip, with what they saw."""
    slot = chain.state.height, 0, int(VoteKind.PRECOMMIT)
    clock_ms = chain.genesis.created_ms + 10_000 * chain.state.height
    votes = (
        sign_vote(
            chain.key(member),
            chain.genesis.chain_id,
            slot,
            chain.tip,
            clock_ms=clock_ms,
            mining_ms=MINING_MS,
            turnout=seen,
        )
        for member in chain.state.deciders
    )
    chain.extend(certificate=certify(votes))


def _assert_charged(chain: ChainBuilder, late: PublicKey) -> None:
    seat = chain.state.roster.seats[late]
    assert (chain.state.punctuality[seat], chain.state.records[seat].owed_ms) == (0, 7_000)
    assert late not in patience_of(chain.state), "a member that is down would be waited for in every other round"


def test_those_that_left_do_not_silence_the_others() -> None:
    """Thirteen seats bear four liars, and there are four voters, of whom one may lie."""
    genesis, seen = living_genesis(13), Turnout(1_000, 7_000, mark_seats(range(4)), b"")
    certificate = certify(
        sign_vote(key, genesis.chain_id, (3, 0, VoteKind.PRECOMMIT), bytes(32), turnout=seen) for key in keys(4)
    )
    assert turnout_of(genesis, certificate, electors=4, seats=13) == seen
    assert turnout_of(genesis, certificate, electors=13, seats=13) is None


def test_a_committee_says_who_was_late() -> None:
    """Thirteen members bear four liars, and four are drawn."""
    chain = living(13, committee_size=4)
    late = chain.genesis.members[LATE]
    _late_once(chain, late)
    _assert_charged(chain, late)


def test_a_debt_is_paid_back_as_fast_as_members_that_count_allow() -> None:
    """f of seven is two, and f of the four that stayed is one: each round pays back twice as much."""
    chain = living(7)
    for number in range(3):
        chain.extend(changes=[own(chain, number)])
    chain.extend_many(2)
    late = chain.genesis.members[LATE]
    _late_once(chain, late)
    _let_speak(chain, Turnout(1_000, 0, mark_seats(range(7)), b""))
    assert chain.state.records[LATE].owed_ms == 7_000 - (1_000 + MINING_MS)
