"""The roster: seats, convictions, and the aggregator of each round."""

import pytest

from fedchain.chain.genesis import AggregatorRule, Contributor, Genesis, PhaseRule
from fedchain.chain.roster import Roster, draw_roster
from fedchain.chain.state import genesis_state
from tests.support.chain.builders import genesis, keys

MEMBERS = tuple(key.public_key for key in keys(7))
UPDATE, GLOBAL = PhaseRule("update", Contributor.PARTICIPANT), PhaseRule("global", Contributor.AGGREGATOR)


def roster(document: Genesis, culprits: set[bytes], phase: tuple[int, int] = (1, 0)) -> Roster:
    return draw_roster(document, document.members, culprits, phase, (b"r" * 32, b"h" * 32))


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
    other = draw_roster(document, MEMBERS, {MEMBERS[0]}, (1, 0), (b"y" * 32, b"h" * 32))
    assert (other.electors, other.contributors == found.contributors) == (found.electors, False)


def test_a_convicted_aggregator_leaves_its_phase_to_nobody() -> None:
    document = genesis(4, aggregator=AggregatorRule.FIXED, phases=(UPDATE, GLOBAL))
    assert roster(document, set(), (1, 1)).contributors == {MEMBERS[0]}
    assert roster(document, {MEMBERS[0]}, (1, 1)).contributors == frozenset()
