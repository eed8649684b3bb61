"""The state after a block: whose turn it is, who votes, how hard the next block is, what time it was."""

from collections import Counter
from collections.abc import Callable
from dataclasses import fields, replace
from itertools import combinations
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedchain.chain.applying import apply_block
from fedchain.chain.certificate import Certificate, certify
from fedchain.chain.difficulty import bits_from_attempts, next_bits, target_from_bits, work_from_bits
from fedchain.chain.encoding import decode, encode
from fedchain.chain.evidence import Evidence
from fedchain.chain.exceptions import InvalidEncoding
from fedchain.chain.genesis import AggregatorRule, Contributor, FaultModel, PhaseRule
from fedchain.chain.membership.amendment import Amendment, Amendments
from fedchain.chain.membership.change import PLACES_MAX
from fedchain.chain.membership.member import Due, FormerKey, Member, Standing
from fedchain.chain.membership.turnout import Turnout
from fedchain.chain.roster import draw
from fedchain.chain.state import (
    DELAYS_MAX,
    NUMBER_MAX,
    PUNCTUAL,
    STATE_ITEMS_MAX,
    STATE_SIZE_MAX,
    State,
    block_time_ms,
    decode_state,
    expected_contributors,
    genesis_state,
    liars_left,
    may_close_empty,
    phase_rule,
    posts_required,
    state_size_max,
    votes_required,
)
from fedchain.chain.validation import CLOCK_MS_MAX
from fedchain.chain.vote import Vote, VoteKind
from fedchain.crypto.hashing import sha256
from tests.support.chain.builders import (
    BLOCK_MS,
    CREATED_MS,
    EASY_BITS,
    GLOBAL,
    UPDATE,
    ChainBuilder,
    double_post,
    double_vote,
    genesis,
    keys,
)
from tests.support.chain.changes import living, living_genesis
from tests.support.chain.states import read_anew

MEMBERS = [key.public_key for key in keys(10)]
KEY_SHARES = PhaseRule("key_shares", Contributor.PARTICIPANT)
FIXED: dict[str, Any] = {"phases": (UPDATE, GLOBAL), "aggregator": AggregatorRule.FIXED}


def test_a_member_that_was_convicted_is_no_liar_that_may_still_vote() -> None:
    chain = ChainBuilder(genesis(7))
    chain.extend()
    assert liars_left(chain.genesis, chain.state) == 2
    chain.extend(evidence=[double_vote(keys(7)[1], chain.genesis, 1)])
    assert liars_left(chain.genesis, chain.state) == 1


def test_a_state_in_which_everybody_was_convicted_may_be_fetched() -> None:
    chain = ChainBuilder(genesis(10))
    chain.extend()
    for make in (double_vote, double_post):
        crimes = tuple(make(key, chain.genesis, 2**63) for key in keys(10))
        assert len(replace(chain.state, convicted=crimes).encode()) <= state_size_max(chain.genesis)


def test_the_state_before_the_first_block() -> None:
    document = genesis(4)
    state = genesis_state(document)
    assert state.block_hash == state.round_seed == document.chain_id
    assert (state.height, state.round, state.phase, state.finished) == (0, 1, 0, False)
    assert (state.work, state.bits, state.posts) == (0, EASY_BITS, 0)
    assert state.knowledge_root == sha256(b"")
    assert (state.settled_time_ms, state.delays_ms) == (CREATED_MS, ((),))
    assert (state.punctuality, state.convicted, state.deciders) == (bytes([2, 2, 2, 2]), (), frozenset())
    assert state.roster.contributors == state.roster.electors == set(MEMBERS[:4])


def test_a_state_follows_from_its_block() -> None:
    builder = ChainBuilder(genesis(4))
    before = builder.state
    block = builder.extend(posts=builder.posts(members=MEMBERS[:3]))
    state = builder.state
    assert state.block_hash == block.hash
    assert (state.height, state.round, state.phase) == (1, 2, 0)
    assert state.knowledge_root == block.header.knowledge_root
    assert state.work == before.work + work_from_bits(block.header.bits) == 2
    assert state.posts == 3
    assert state.round_seed == block.hash
    assert state.deciders == before.roster.electors
    assert before == genesis_state(builder.genesis)  # untouched


def _steps(builder: ChainBuilder, count: int) -> list[tuple[int, int]]:
    steps = []
    for _ in range(count):
        steps.append((builder.state.round, builder.state.phase))
        builder.extend()
    return steps


def test_each_block_closes_a_phase() -> None:
    phases = (UPDATE, PhaseRule("share", Contributor.PARTICIPANT), UPDATE)
    assert _steps(ChainBuilder(genesis(2, phases=phases)), 7) == [
        (1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2), (3, 0),
    ]  # fmt: skip


def test_the_setup_is_round_0_and_happens_once() -> None:
    builder = ChainBuilder(genesis(2, setup=(KEY_SHARES, UPDATE), phases=(UPDATE,)))
    assert phase_rule(builder.genesis, builder.state) == KEY_SHARES
    assert _steps(builder, 5) == [(0, 0), (0, 1), (1, 0), (2, 0), (3, 0)]


def test_the_federation_ends_with_its_last_round() -> None:
    builder = ChainBuilder(genesis(2, setup=(KEY_SHARES,), phases=(UPDATE, UPDATE), rounds=2))
    finished = []
    for _ in range(5):
        finished.append(builder.state.finished)
        builder.extend()
    assert finished == [False] * 5
    assert builder.state.finished


def test_the_setup_is_not_the_only_round_of_a_federation() -> None:
    builder = ChainBuilder(genesis(2, setup=(KEY_SHARES,), rounds=1))
    finished = [builder.state.finished]
    for _ in range(2):
        builder.extend()
        finished.append(builder.state.finished)
    assert finished == [False, False, True]


def test_without_a_last_round_it_never_ends() -> None:
    builder = ChainBuilder(genesis(2, setup=(KEY_SHARES,)))
    builder.extend_many(5)
    assert not any(state.finished for state in builder.states.values())


def test_the_seed_changes_with_the_round_not_with_the_phase() -> None:
    builder = ChainBuilder(genesis(2, phases=(UPDATE, UPDATE)))
    first, second, third = builder.extend_many(3)
    assert builder.states[first.hash].round_seed == builder.genesis.chain_id
    assert builder.states[second.hash].round_seed == builder.states[third.hash].round_seed == second.hash


def test_a_state_of_members_that_change_holds_no_seed() -> None:
    chain = living(4)
    chain.extend_many(2)
    for state in chain.states.values():
        assert state.round_seed == b""
        assert read_anew(chain.genesis, state) == state
        assert decode(state.encode(), STATE_SIZE_MAX)[11] == [record.to_record() for record in state.records]


def test_a_state_of_as_many_members_as_there_are_places_is_read() -> None:
    """Records have more items for their bytes than anything else; what is held in the process is not read at all."""
    rules, count = living_genesis(4), 4_500
    record = decode(genesis_state(rules).encode(), STATE_SIZE_MAX)
    others = [Member(sha256(b"%d" % number), Standing.AWAY, Standing.AWAY, 0) for number in range(count - 4)]
    record[11] += [other.to_record() for other in others]
    record[12], record[14] = bytes([PUNCTUAL]) * count, bytes(count)
    assert len(decode_state(rules, encode(record)).records) == count

    def items(value: Any) -> int:
        return 2 + sum(map(items, value)) if isinstance(value, list) else 1

    key, turnout = MEMBERS[0], Turnout(1, 1, b"1", b"1")
    member = Member(key, Standing.ACTIVE, Standing.AWAY, 9, former=FormerKey(MEMBERS[1], 7, 9, True), first=MEMBERS[2])
    crime = Evidence(*(Vote(VoteKind.PRECOMMIT, 1, 0, bytes(32), 1, 1, key, bytes(64), turnout) for _ in range(2)))
    assert (items(member.to_record()), items(crime.to_record())) == (25, 35)
    assert PLACES_MAX * items(member.to_record()) + PLACES_MAX // 3 * items(crime.to_record()) < STATE_ITEMS_MAX


def test_work_adds_up() -> None:
    builder = ChainBuilder(genesis(2, initial_bits=bits_from_attempts(10)))
    blocks = builder.extend_many(3)
    assert builder.state.work == sum(work_from_bits(block.header.bits) for block in blocks)


# --- time, delays and difficulty, which the votes for a block settle when the next one carries them


def test_a_block_settles_the_time_of_its_parent() -> None:
    builder = ChainBuilder(genesis(4))
    for height in range(1, 5):
        builder.extend()
        certificate = builder.certificate(builder.tip)
        assert builder.state.settled_time_ms == CREATED_MS + (height - 1) * BLOCK_MS
        assert block_time_ms(builder.state, certificate) == CREATED_MS + height * BLOCK_MS


def test_time_never_goes_back_and_never_stands() -> None:
    builder = ChainBuilder(genesis(4))
    builder.extend()
    times = []
    for clock_ms in (CREATED_MS - 5, 0, CREATED_MS + 7, CREATED_MS + 7, CREATED_MS + 100):
        builder.extend(certificate=builder.certificate(builder.tip, clock_ms=clock_ms))
        times.append(builder.state.settled_time_ms - CREATED_MS)
    assert times == [1, 2, 7, 8, 100]


def test_mining_time_moves_the_difficulty_of_the_next_block() -> None:
    builder = ChainBuilder(genesis(3, initial_bits=bits_from_attempts(8)))
    builder.extend()
    before = builder.state.bits
    builder.extend(certificate=builder.certificate(builder.tip, mining_ms=1_000))
    assert before == bits_from_attempts(8)
    assert builder.state.bits == next_bits(before, 1_000, 4_000) != before
    assert builder.extend().header.bits == next_bits(before, 1_000, 4_000)


def test_waiting_is_not_mining() -> None:
    """Half of the rounds run into their timeout: the first edition fell from 50,000 hashes to 2 in 60 rounds."""
    builder = ChainBuilder(genesis(3, initial_bits=bits_from_attempts(64)))
    builder.extend()
    clock_ms = CREATED_MS
    for number in range(60):
        clock_ms += 60_000 if number % 2 else 5_000
        builder.extend(certificate=builder.certificate(builder.tip, clock_ms=clock_ms, mining_ms=4_000))
    assert builder.state.bits == bits_from_attempts(64)


def test_a_delay_is_what_a_phase_took_without_the_mining() -> None:
    builder = ChainBuilder(genesis(3))
    builder.extend()
    builder.extend(certificate=builder.certificate(builder.tip, clock_ms=CREATED_MS + 9_000, mining_ms=2_500))
    assert list(builder.state.delays_ms) == [(6_500,)]
    builder.extend(certificate=builder.certificate(builder.tip, clock_ms=CREATED_MS + 12_000, mining_ms=1_000))
    assert list(builder.state.delays_ms) == [(6_500, 2_000)]


def test_a_delay_is_never_negative() -> None:
    builder = ChainBuilder(genesis(3))
    builder.extend()
    builder.extend(certificate=builder.certificate(builder.tip, clock_ms=0, mining_ms=CLOCK_MS_MAX))
    assert builder.state.delays_ms == ((0,),)


def test_delays_are_kept_for_each_phase_and_for_the_last_rounds() -> None:
    builder = ChainBuilder(genesis(2, setup=(KEY_SHARES,), phases=(UPDATE, UPDATE)))
    builder.extend()
    for height in range(1, 2 * DELAYS_MAX + 8):
        certificate = builder.certificate(builder.tip, clock_ms=CREATED_MS + height * (height + 1) // 2, mining_ms=0)
        builder.extend(certificate=certificate)
    first, second = builder.state.delays_ms
    # The block at height h takes h ms; heights 2, 4, … close the first phase, 3, 5, … the second, 1 the setup.
    assert first == tuple(range(8, 40, 2))
    assert second == tuple(range(9, 41, 2))
    assert len(first) == len(second) == DELAYS_MAX


def test_the_setup_says_nothing_about_delays() -> None:
    builder = ChainBuilder(genesis(2, setup=(KEY_SHARES, UPDATE), phases=(UPDATE, UPDATE)))
    counts = []
    for _ in range(5):
        builder.extend()
        counts.append([len(delays) for delays in builder.state.delays_ms])
    assert counts == [[0, 0], [0, 0], [0, 0], [1, 0], [1, 1]]


def test_a_phase_that_closed_empty_says_nothing_about_delays() -> None:
    builder = ChainBuilder(genesis(3, **FIXED))
    builder.extend()
    builder.extend(posts=())
    builder.extend()
    builder.extend()
    assert [len(delays) for delays in builder.state.delays_ms] == [2, 0]
    builder.extend()
    assert [len(delays) for delays in builder.state.delays_ms] == [2, 1]


# --- f liars move neither median outside what honest members saw


def _said(values: dict[int, int], read: Callable[[Certificate], int]) -> int:
    votes = (
        Vote(VoteKind.PRECOMMIT, 1, 0, bytes(32), value, value, place.to_bytes(32, "big"), b"")
        for place, value in values.items()
    )
    return read(certify(votes))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
def test_liars_never_move_a_median_outside_what_honest_members_saw(count: int) -> None:
    rng = Random(count)
    quorum, faulty = FaultModel.BYZANTINE.quorum(count), FaultModel.BYZANTINE.faulty(count)
    for lie in (0, CLOCK_MS_MAX):
        honest = {member: rng.randrange(1_000, 9_000) for member in range(faulty, count)}
        values = dict.fromkeys(range(faulty), lie) | honest
        for size in range(quorum, count + 1):
            for voters in combinations(range(count), size):
                said = {member: values[member] for member in voters}
                for median in (lambda c: c.clock_ms, lambda c: c.mining_ms):
                    assert min(honest.values()) <= _said(said, median) <= max(honest.values())


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 40), st.data())
def test_no_lies_and_no_choice_of_voters_help(count: int, data: st.DataObject) -> None:
    quorum, faulty = FaultModel.BYZANTINE.quorum(count), FaultModel.BYZANTINE.faulty(count)
    honest = data.draw(st.lists(st.integers(0, CLOCK_MS_MAX), min_size=count - faulty, max_size=count - faulty))
    lies = data.draw(st.lists(st.integers(0, CLOCK_MS_MAX), min_size=faulty, max_size=faulty))
    voters = data.draw(st.permutations(range(count)))[: data.draw(st.integers(quorum, count))]
    values = [*lies, *honest]
    median = _said({member: values[member] for member in voters}, lambda certificate: certificate.clock_ms)
    assert min(honest) <= median <= max(honest)


def test_one_liar_more_can_move_it() -> None:
    """Shows that the tests above can fail."""
    said = {0: 0, 1: 0, 2: 5_000}
    assert _said(said, lambda certificate: certificate.clock_ms) == 0


# --- who is on time


def test_missed_phases_are_remembered_until_a_member_was_on_time_twice() -> None:
    builder = ChainBuilder(genesis(4, contribution_quorum=1))
    counts, waited = [], []
    for absent in ({0, 1}, {0}, {1}, set[int](), set[int]()):
        members = [member for place, member in enumerate(MEMBERS[:4]) if place not in absent]
        builder.extend(posts=builder.posts(members=members))
        counts.append(tuple(builder.state.punctuality))
        waited.append({MEMBERS.index(member) for member in expected_contributors(builder.state)})
        roster = builder.state.roster
        assert roster.contributors == roster.electors == set(MEMBERS[:4])  # nobody loses a vote by it
    assert counts == [(0, 0, 2, 2), (0, 1, 2, 2), (1, 0, 2, 2), (2, 1, 2, 2), (2, 2, 2, 2)]
    assert waited == [{2, 3}, {2, 3}, {2, 3}, {0, 2, 3}, {0, 1, 2, 3}]


def test_where_nobody_was_on_time_all_are_waited_for() -> None:
    """An aggregator that trained too slowly would be passed over in its own phase without a moment's wait."""
    builder = ChainBuilder(genesis(4, **FIXED))
    builder.extend(posts=builder.posts(members=MEMBERS[1:4]))
    assert builder.state.punctuality[0] < PUNCTUAL
    assert expected_contributors(builder.state) == builder.state.roster.contributors == {MEMBERS[0]}


def test_only_members_that_were_drawn_can_miss() -> None:
    builder = ChainBuilder(genesis(6, contributors_per_round=3, contribution_quorum=1))
    drawn = sorted(builder.state.roster.contributors)
    builder.extend(posts=builder.posts(members=drawn[:1]))
    counts = dict(zip(builder.genesis.members, builder.state.punctuality, strict=True))
    assert {member for member, times in counts.items() if times < PUNCTUAL} == set(drawn[1:])


def test_an_aggregators_phase_and_an_empty_one_count_for_nobody() -> None:
    builder = ChainBuilder(genesis(3, **FIXED))
    builder.extend(posts=builder.posts(members=MEMBERS[:2]))
    before = builder.state.punctuality
    builder.extend(posts=())
    builder.extend(posts=())
    builder.extend()
    assert builder.state.punctuality == before == bytes([2, 2, 0])


def test_an_aggregator_that_missed_a_phase_of_all_does_not_make_up_for_it_in_its_own() -> None:
    builder = ChainBuilder(genesis(3, **FIXED))
    builder.extend(posts=builder.posts(members=MEMBERS[1:3]))
    builder.extend()
    assert builder.state.posts == 1
    assert builder.state.punctuality == bytes([0, 2, 2])


# --- who posts and who votes


def test_the_aggregator_alone_posts_in_its_phase_and_takes_turns() -> None:
    builder = ChainBuilder(genesis(3, phases=(UPDATE, GLOBAL), aggregator=AggregatorRule.ROTATING))
    seen = []
    for _ in range(6):
        if builder.state.phase == 1:
            seen.append(builder.state.roster.contributors)
            assert posts_required(builder.genesis, builder.state) == 1
            assert may_close_empty(builder.genesis, builder.state)
        else:
            assert builder.state.roster.contributors == set(MEMBERS[:3])
            assert posts_required(builder.genesis, builder.state) == 2
            assert not may_close_empty(builder.genesis, builder.state)
        builder.extend()
    assert seen == [{MEMBERS[1]}, {MEMBERS[2]}, {MEMBERS[0]}]


@pytest.mark.parametrize("drawn", [0, 2])
def test_a_dedicated_aggregator_posts_in_its_phase_alone_and_votes_like_all_others(drawn: int) -> None:
    rules: dict[str, Any] = {"phases": (UPDATE, GLOBAL), "aggregator": AggregatorRule.DEDICATED}
    builder = ChainBuilder(genesis(5, **rules, contributors_per_round=drawn, setup=(UPDATE,)))
    aggregator = builder.genesis.members[-1]
    for _ in range(9):
        state = builder.state
        assert state.roster.electors == set(builder.genesis.members)
        if phase_rule(builder.genesis, state).by is Contributor.AGGREGATOR:
            assert state.roster.contributors == {aggregator}
        else:
            assert (len(state.roster.contributors), aggregator in state.roster.contributors) == (drawn or 4, False)
            assert posts_required(builder.genesis, state) == builder.genesis.fault_model.quorum(drawn or 4)
        assert state.punctuality[-1] == PUNCTUAL
        builder.extend()


@pytest.mark.parametrize(
    ("overrides", "required"),
    [
        ({}, 5),
        ({"contribution_quorum": 2}, 2),
        ({"contribution_quorum": 7}, 7),
        ({"contribution_quorum": 2, "phases": (replace(UPDATE, quorum=6),)}, 6),
        ({"contributors_per_round": 4}, 3),
        ({"contributors_per_round": 4, "contribution_quorum": 4}, 4),
        ({"fault_model": FaultModel.CRASH}, 4),
    ],
)
def test_posts_required(overrides: dict[str, Any], required: int) -> None:
    document = genesis(7, **overrides)
    assert posts_required(document, genesis_state(document)) == required


def test_a_phase_may_close_empty_where_few_members_could_stop_it() -> None:
    centralized = genesis(3, centralized=True, aggregator=AggregatorRule.FIXED)
    drawn, plain = genesis(3, contributors_per_round=1), genesis(3, phases=(UPDATE, UPDATE))
    assert may_close_empty(centralized, genesis_state(centralized))
    assert may_close_empty(drawn, genesis_state(drawn))
    assert not may_close_empty(plain, genesis_state(plain))
    builder = ChainBuilder(plain)
    builder.extend()
    assert may_close_empty(plain, builder.state)


def test_a_committee_votes_and_changes_with_the_block() -> None:
    builder = ChainBuilder(genesis(8, committee_size=3))
    committees = [builder.state.roster.electors]
    for _ in range(20):
        builder.extend()
        assert builder.state.deciders == committees[-1]
        committees.append(builder.state.roster.electors)
    assert {len(committee) for committee in committees} == {3}
    assert len(set(committees)) > 10
    assert set().union(*committees) == set(MEMBERS[:8])
    assert votes_required(builder.genesis, builder.state.roster.electors) == 2


def test_contributors_are_drawn_once_a_round() -> None:
    builder = ChainBuilder(genesis(8, phases=(UPDATE, UPDATE), contributors_per_round=3))
    drawn = []
    for _ in range(10):
        first = builder.state.roster.contributors
        builder.extend()
        assert builder.state.roster.contributors == first
        builder.extend()
        drawn.append(first)
    assert {len(item) for item in drawn} == {3}
    assert len(set(drawn)) > 5


def test_a_draw_is_fair_and_independent_of_the_order() -> None:
    members = tuple(MEMBERS[:8])
    assert draw(members, 3, b"seed") == draw(members[::-1], 3, b"seed")
    assert draw(members, 0, b"seed") == draw(members, 8, b"seed") == draw(members, 9, b"seed") == set(members)
    counts = Counter(member for seed in range(800) for member in draw(members, 3, b"%d" % seed))
    assert all(240 < counts[member] < 360 for member in members)  # 300 on average, ± 4.4 standard deviations


def test_a_vector_of_the_draw() -> None:
    ranked = sorted(MEMBERS, key=lambda member: sha256(b"seed" + member))
    assert draw(tuple(MEMBERS), 3, b"seed") == set(ranked[:3])


def test_contributors_and_committee_are_drawn_apart() -> None:
    document = genesis(8, committee_size=4, contributors_per_round=4)
    state = genesis_state(document)
    assert state.roster.electors == draw(document.members, 4, document.chain_id + b"committee")
    assert state.roster.contributors == draw(document.members, 4, document.chain_id + b"contributors")
    assert state.roster.electors != state.roster.contributors


# --- convictions


def test_a_convicted_member_leaves_and_the_quorum_follows() -> None:
    builder = ChainBuilder(genesis(7))
    quorums = [votes_required(builder.genesis, builder.state.roster.electors)]
    for place in range(7):
        before = builder.state
        block = builder.extend(evidence=[double_vote(keys(7)[place], builder.genesis, 1)])
        state = builder.state
        # From the next height on: its own block was decided with the culprit, and says so.
        assert state.deciders == before.roster.electors == set(MEMBERS[place:7])
        assert state.roster.electors == state.roster.contributors == set(MEMBERS[place + 1 : 7])
        assert [crime.culprit for crime in state.convicted] == MEMBERS[: place + 1]
        assert [state.roster.is_active(member) for member in MEMBERS[:7]] == [number > place for number in range(7)]
        assert state.roster.members == builder.genesis.members
        assert block.evidence == state.convicted[place:]
        quorums.append(votes_required(builder.genesis, state.roster.electors))
    # f: 2, 1, 1, 1, 0, 0, 0, 0
    assert quorums == [5, 4, 4, 3, 2, 2, 1, 1]


def test_where_members_are_convicted_no_more_posts_are_required_than_are_left_to_come() -> None:
    """Else a federation that counts on all of them would stand still for ever."""
    builder = ChainBuilder(genesis(4, contribution_quorum=4))
    assert posts_required(builder.genesis, builder.state) == 4
    builder.extend(evidence=[double_vote(keys(4)[3], builder.genesis, 1)])
    assert posts_required(builder.genesis, builder.state) == len(builder.state.roster.contributors) == 3


def test_when_all_are_convicted_nobody_decides_anything() -> None:
    builder = ChainBuilder(genesis(3))
    builder.extend(evidence=[double_post(key, builder.genesis, 1) for key in keys(3)])
    state = builder.state
    assert state.roster.electors == state.roster.contributors == frozenset()
    assert votes_required(builder.genesis, state.roster.electors) == 1  # more than there are
    assert posts_required(builder.genesis, state) == 1
    assert read_anew(builder.genesis, state) == state


def test_a_convicted_aggregator_does_not_stop_the_rounds() -> None:
    builder = ChainBuilder(genesis(5, **FIXED))
    builder.extend(evidence=[double_vote(keys(1)[0], builder.genesis, 1)])
    state = builder.state
    assert phase_rule(builder.genesis, state) == GLOBAL
    assert state.roster.contributors == expected_contributors(state) == frozenset()
    assert may_close_empty(builder.genesis, state)
    builder.extend(posts=(), miner=keys(2)[1])
    assert (builder.state.round, builder.state.phase) == (2, 0)
    assert builder.state.roster.contributors == set(MEMBERS[1:5])


def test_a_draw_leaves_convicted_members_out() -> None:
    builder = ChainBuilder(genesis(8, committee_size=3, contributors_per_round=3))
    builder.extend(evidence=[double_vote(key, builder.genesis, 1) for key in keys(5)])
    for _ in range(4):
        assert builder.state.roster.electors == builder.state.roster.contributors == set(MEMBERS[5:8])
        builder.extend()


# --- bytes


def _busy() -> ChainBuilder:
    """A chain with a setup, two phases, an empty phase, a late member and two convicted ones."""
    document = genesis(8, setup=(KEY_SHARES,), committee_size=6, **FIXED)
    builder = ChainBuilder(document)
    builder.extend_many(3)
    builder.extend(posts=builder.posts(members=MEMBERS[:6]), evidence=[double_vote(keys(7)[6], document, 2)])
    builder.extend(posts=(), evidence=[double_post(keys(8)[7], document, 1)])
    builder.extend_many(3)
    return builder


def test_every_state_is_read_back() -> None:
    builder = _busy()
    for state in builder.states.values():
        again = read_anew(builder.genesis, state)
        assert again == state
        assert again.roster == state.roster
        assert again.root == state.root == sha256(state.encode())


def test_who_reads_a_state_goes_on_as_who_has_the_chain() -> None:
    builder = _busy()
    for block in list(builder.blocks.values()):
        parent = builder.states[block.header.parent_hash]
        read = read_anew(builder.genesis, parent)
        assert apply_block(builder.genesis, read, block) == builder.states[block.hash]
        assert apply_block(builder.genesis, read, block).root == builder.states[block.hash].root


def test_every_field_is_in_the_root() -> None:
    state = _busy().state
    changes: dict[str, Any] = {
        "block_hash": bytes(32),
        "height": 99,
        "round": 99,
        "phase": 1 - state.phase,
        "finished": True,
        "knowledge_root": bytes(32),
        "work": state.work + 1,
        "bits": bits_from_attempts(99),
        "posts": 99,
        "settled_time_ms": 99,
        "delays_ms": ((), ()),
        "round_seed": bytes(32),
        "roster": replace(state.roster, members=state.roster.members[::-1]),
        "punctuality": bytes(8),
        "convicted": (),
        "deciders": frozenset(),
    }
    compared = {name for name, item in State.__dataclass_fields__.items() if item.compare}
    assert set(changes) == compared - {"records", "amendments", "owed"}  # see the two tests below
    roots = [state.root] + [replace(state, **{name: value}).root for name, value in changes.items()]
    assert len(set(roots)) == len(roots)


def test_every_field_of_a_member_s_record_is_in_the_root() -> None:
    state = living(4).state
    first, *others = state.records
    changes: dict[str, Any] = {
        "key": bytes(32),
        "standing": Standing.AWAY,
        "next": Standing.LEFT,
        "round": 9,
        "sequence": 9,
        "idle": 9,
        "due": Due.IN_VAIN,
        "owed_ms": 9,
        "shortened": 9,
        "since_ms": 9,
        "weight": 9,
        "former": FormerKey(bytes(32), 1, 3, is_liable=True),
        "first": bytes(32),
        "decided": 9,
    }
    assert set(changes) == {item.name for item in fields(Member) if item.init}
    records = [(replace(first, **{name: value}), *others) for name, value in changes.items()]
    roots = [state.root] + [replace(state, records=found).root for found in records]
    assert len(set(roots)) == len(roots)


def test_applying_a_block_is_a_pure_function() -> None:
    builder = _busy()
    block = builder.blocks[builder.tip]
    parent = builder.states[block.header.parent_hash]
    before = parent.encode()
    assert apply_block(builder.genesis, parent, block) == apply_block(builder.genesis, parent, block) == builder.state
    assert parent.encode() == before


FIELDS = (
    *("block_hash", "height", "round", "phase", "finished", "knowledge_root", "work", "bits", "posts"),
    *("settled_time_ms", "delays_ms", "round_seed", "members", "punctuality", "convicted", "deciders"),
)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("block_hash", bytes(31), "state hash: 31 bytes found, 32 expected"),
        ("round_seed", bytes(33), "state hash: 33 bytes found, 32 expected"),
        ("height", NUMBER_MAX + 1, f"state: {NUMBER_MAX + 1} found, no number is above {NUMBER_MAX}"),
        ("round", 2**64 - 1, f"state: {2**64 - 1} found, no number is above {NUMBER_MAX}"),
        ("posts", 2**64 - 1, f"state: {2**64 - 1} found, no number is above {NUMBER_MAX}"),
        ("settled_time_ms", 2**64 - 1, f"state: {2**64 - 1} found, no number is above {NUMBER_MAX}"),
        ("phase", 2, "state: phase 2 of round 4 or bits 0x207fffff fit no state"),
        ("phase", 2**64 - 1, f"state: phase {2**64 - 1} of round 4 or bits 0x207fffff fit no state"),
        ("bits", 0x2100FFFF, "state: phase 1 of round 4 or bits 0x2100ffff fit no state"),
        ("finished", 2, None),
        ("work", bytes(39), "state work: 39 bytes found, 40 expected"),
        ("work", b"\xff" * 40, "state work: 320 bits found, fewer than 320 expected"),
        ("delays_ms", [[]], "state delays: 1 fields found, 2 fields expected"),
        ("delays_ms", [7, []], "state delays: field 0 is int, list expected"),
        ("delays_ms", [[b"x"], []], "state delays: field 0 is bytes, int expected"),
        ("delays_ms", [[7] * 17, []], "state delays: 17 fields found, 16 fields expected"),
        ("members", bytes(33), "state: its 33 bytes of keys are not the 8 members'"),
        ("members", b"", "state: its 0 bytes of keys are not the 8 members'"),
        ("members", b"".join(MEMBERS[:7] * 2)[: 8 * 32], "state: its 256 bytes of keys are not the 8 members'"),
        ("punctuality", bytes(7), "state punctuality: 7 bytes found, 8 expected"),
        ("deciders", bytes(9), "state deciders: 9 bytes found, 8 expected"),
        ("deciders", b"\x02" * 8, None),
        ("convicted", [[1, [], []]], "vote: 0 fields found, 8 fields expected"),
        ("convicted", [[3, [], []]], "evidence: kind 3 found, 1 or 2 expected"),
    ],
)
def test_a_malformed_state_is_refused(name: str, value: Any, message: str | None) -> None:
    builder = _busy()
    record = decode(builder.state.encode(), STATE_SIZE_MAX)
    record[FIELDS.index(name)] = value
    data = encode(record)
    with pytest.raises(InvalidEncoding) as caught:
        decode_state(builder.genesis, data)
    assert str(caught.value) == (message or f"state: {len(data)} bytes differ from their re-encoding")


def test_the_largest_numbers_leave_room_for_the_next_block() -> None:
    builder = _busy()
    block = builder.blocks[builder.tip]
    state = builder.states[block.header.parent_hash]
    largest = replace(
        state,
        height=NUMBER_MAX,
        round=NUMBER_MAX,
        posts=NUMBER_MAX,
        settled_time_ms=NUMBER_MAX,
        work=2**319 - 1,
        delays_ms=((2**64 - 1,), (2**64 - 1,)),
    )
    read = read_anew(builder.genesis, largest)
    after = apply_block(builder.genesis, read, block)
    assert (after.height, after.settled_time_ms) == (NUMBER_MAX + 1, NUMBER_MAX + 1)


def test_difficulty_stays_within_its_bounds_whatever_voters_say() -> None:
    builder = ChainBuilder(genesis(2))
    builder.extend()
    for mining_ms in (0, CLOCK_MS_MAX, CLOCK_MS_MAX, 0, 0):
        before = target_from_bits(builder.state.bits)
        builder.extend(certificate=builder.certificate(builder.tip, mining_ms=mining_ms))
        ratio = target_from_bits(builder.state.bits) / before
        assert 0.8 < ratio <= 1.75


def test_every_field_of_the_amendments_is_in_the_root() -> None:
    state = living(4).state
    values = (("rounds", 9),)
    changes: dict[str, Any] = {"in_force": values, "coming": (Amendment(9, values),), "count": 9}
    assert set(changes) == {item.name for item in fields(Amendments)}
    others = [replace(state.amendments, **{name: value}) for name, value in changes.items()]
    assert len({replace(state, amendments=item).root for item in (state.amendments, *others)}) == 4


def test_the_bytes_of_a_state_that_is_held_are_not_read_again() -> None:
    builder = ChainBuilder(genesis(4))
    state = builder.state
    assert decode_state(builder.genesis, state.encode()) is state
    other = replace(builder.genesis, vote_timeout_ms=builder.genesis.vote_timeout_ms + 1)
    assert other.chain_id != builder.genesis.chain_id
    again = decode_state(other, state.encode())
    assert (again.encode(), again.rules) == (state.encode(), other)
