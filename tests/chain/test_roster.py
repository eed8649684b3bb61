"""The roster: seats, convictions, and the aggregator of each round."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedchain.chain.genesis import AggregatorRule, Contributor, FaultModel, Genesis, PhaseRule
from fedchain.chain.roster import Roster, draw, draw_roster, seed_of_contributors, seed_of_electors
from fedchain.chain.state import genesis_state
from fedchain.crypto.hashing import sha256
from tests.support.chain.builders import genesis, keys
from tests.support.chain.changes import living
from tests.support.chain.committee import captured_share

MEMBERS = tuple(key.public_key for key in keys(7))
UPDATE, GLOBAL = PhaseRule("update", Contributor.PARTICIPANT), PhaseRule("global", Contributor.AGGREGATOR)


def roster(document: Genesis, culprits: set[bytes], phase: tuple[int, int] = (1, 0)) -> Roster:
    return draw_roster(
        document, document.members, culprits, phase, (b"r" * 32 + b"contributors", b"h" * 32 + b"committee")
    )


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (AggregatorRule.NONE, [None] * 5),
        (AggregatorRule.FIXED, [0] * 5),
        (AggregatorRule.ROTATING, [0, 1, 2, 0, 1]),
        (AggregatorRule.DEDICATED, [2] * 5),
    ],
)
def test_the_aggregator_is_fixed_or_takes_turns_or_is_one_more_member(
    rule: AggregatorRule, expected: list[int | None]
) -> None:
    phases = (UPDATE, GLOBAL) if rule is AggregatorRule.DEDICATED else (UPDATE,)
    found = genesis_state(genesis(3, aggregator=rule, phases=phases)).roster
    members = [None if seat is None else MEMBERS[seat] for seat in expected]
    assert [found.aggregator_of(number) for number in range(5)] == members
    assert found.clients == (2 if rule is AggregatorRule.DEDICATED else 3)


def test_a_convicted_member_keeps_its_seat_and_loses_everything_else() -> None:
    found = roster(genesis(7), {MEMBERS[2]})
    assert (len(found), found.members, found.seats[MEMBERS[3]]) == (7, MEMBERS, 3)
    assert MEMBERS[2] in found
    assert not found.is_active(MEMBERS[2])
    assert found.contributors == found.electors == set(MEMBERS) - {MEMBERS[2]}
    stranger = bytes(32)
    assert stranger not in found
    assert not found.is_active(stranger)


def test_contributors_and_electors_are_drawn_by_different_hashes_from_the_active_members() -> None:
    document = genesis(7, contributors_per_round=3, committee_size=4)
    found = roster(document, {MEMBERS[0]})
    assert (len(found.contributors), len(found.electors)) == (3, 4)
    assert MEMBERS[0] not in found.contributors | found.electors
    other = draw_roster(
        document, MEMBERS, {MEMBERS[0]}, (1, 0), (b"y" * 32 + b"contributors", b"h" * 32 + b"committee")
    )
    assert (other.electors, other.contributors == found.contributors) == (found.electors, False)


def test_a_convicted_aggregator_leaves_its_phase_to_nobody() -> None:
    document = genesis(4, aggregator=AggregatorRule.FIXED, phases=(UPDATE, GLOBAL))
    assert roster(document, set(), (1, 1)).contributors == {MEMBERS[0]}
    assert roster(document, {MEMBERS[0]}, (1, 1)).contributors == frozenset()


# --- draws of version 3, which nobody grinds


def test_where_members_change_height_and_round_draw_and_no_block_does() -> None:
    phases = (UPDATE, PhaseRule("again", Contributor.PARTICIPANT))
    one, other = (living(8, committee_size=4, contributors_per_round=3, phases=phases) for _ in range(2))
    chain_id, drawn = one.genesis.chain_id, []
    for height in range(1, 9):
        roster, members = one.state.roster, one.genesis.members
        for what, number, count, found in (
            (b"committee", height, 4, roster.electors),
            (b"contributors", (height + 1) // 2, 3, roster.contributors),
        ):
            named = {chain_id + what + number.to_bytes(8) + seat.to_bytes(8): key for seat, key in enumerate(members)}
            assert found == {named[name] for name in sorted(named, key=sha256)[:count]}
        drawn.append((roster.electors, roster.contributors))
        assert (other.state.roster.electors, other.state.roster.contributors) == drawn[-1]
        one.extend()
        other.extend(posts=other.posts(members=sorted(other.state.roster.contributors)[1:]))
        assert one.state.block_hash != other.state.block_hash
    assert len({electors for electors, _ in drawn}) > 5
    assert all(
        (before == after) is (height % 2 == 1) for height, ((_, before), (_, after)) in enumerate(pairwise(drawn), 1)
    )


@given(
    seed=st.binary(min_size=1, max_size=8),
    size=st.integers(1, 9),
    own=st.sets(st.integers(0, 9)),
    away=st.sets(st.integers(0, 9)),
)
def test_a_coalition_gains_no_place_in_a_draw_by_leaving_members_of_its_own_out(
    seed: bytes, size: int, own: set[int], away: set[int]
) -> None:
    members = tuple(bytes([number]) for number in range(10))
    coalition, places = {members[number] for number in own}, {member: number for number, member in enumerate(members)}
    present = tuple(member for member in members if places[member] not in own & away)
    if len(present) > size:
        whole, part = (draw(some, size, seed, places) & coalition for some in (members, present))
        assert len(part) <= len(whole)


def test_a_bad_committee_takes_as_many_heights_as_if_nobody_chose() -> None:
    """Six of twenty, and a committee of seven, which bears two, whoever the six are."""
    document = living(20, committee_size=7).genesis
    places, bearable = {key: seat for seat, key in enumerate(document.members)}, FaultModel.BYZANTINE.faulty(7)
    committees = [
        draw(document.members, 7, seed_of_electors(document, height, bytes(32)), places) for height in range(1, 3_001)
    ]
    for first in (0, 7, 14):
        own = set(document.members[first : first + 6])
        bad = sum(len(committee & own) > bearable for committee in committees)
        assert len(committees) / bad == pytest.approx(1 / float(captured_share(20, 6, 7)), rel=0.1)


def test_a_seed_is_that_of_its_height_or_round_alone() -> None:
    document, other = living(4, name="one").genesis, living(4, name="other").genesis
    blocks, said = (bytes(32), b"x" * 32), []
    for seed in (seed_of_electors, seed_of_contributors):
        for federation in (document, other):
            for number in (1, 2, 256):
                (only,) = {seed(federation, number, block) for block in blocks}
                said.append(only)
    assert len(set(said)) == len(said) == 2 * 2 * 3
