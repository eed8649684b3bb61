"""Succession: which member has the role of an aggregator once another one fails in it, goes, or hands it over."""

from typing import Any

import pytest

from fedchain.chain.exceptions import InvalidChange, InvalidEncoding, InvalidPost, OutOfWindow
from fedchain.chain.genesis import Admission, AggregatorRule, Contributor, FaultModel, PhaseRule
from fedchain.chain.membership.change import Change, ChangeKind, propose_recovery, sign_rekey
from fedchain.chain.membership.member import Standing
from fedchain.chain.membership.rules import validate_change
from fedchain.chain.membership.succession import churn_max
from fedchain.chain.state import decode_state, may_close_empty
from fedchain.chain.transition import judge_block
from fedchain.chain.validation import validate_post
from fedchain.crypto.keys import is_valid_signature
from fedchain.simulator.oracles.sets import Sets
from tests.support.chain.builders import double_vote, keys, payload, post
from tests.support.chain.changes import UNTIL, approved, handing, living, own, play, silent_for, standing
from tests.support.chain.late import extend_with, late_chain, skip
from tests.support.chain.states import read_anew

ITS_OWN = (PhaseRule("update", Contributor.PARTICIPANT), PhaseRule("global", Contributor.AGGREGATOR))
"""Phases of a round: the second one is the aggregator's."""

DEDICATED: dict[str, Any] = {
    "aggregator": AggregatorRule.DEDICATED,
    "phases": ITS_OWN,
    "admission": Admission.CLOSED,
    "away_after": 2,
}


class Followed:
    """A chain, and the oracle that says who has the role from its blocks alone."""

    def __init__(self, count: int, **fields: Any) -> None:
        self.chain = living(count, **fields)
        self.sets = Sets(self.chain.genesis)

    def extend(self, *changes: Change, **body: Any) -> None:
        before = self.chain.state
        self.sets.follow(before, self.chain.extend(changes=changes, **body))
        assert self.sets.differences(self.chain.state) == []
        assert read_anew(self.chain.genesis, self.chain.state) == self.chain.state

    def rounds(self, count: int, *changes: Change, is_silent: bool = False) -> list[int]:
        """Play rounds of two phases, the first with changes; the seats that had the role in them."""
        seats = []
        for _ in range(count):
            self.extend(*changes)
            changes = ()
            seats.append(self.seat)
            self.extend(**({"posts": ()} if is_silent else {}))
        return seats

    @property
    def seat(self) -> int:
        """The seat that has the role."""
        holder = self.chain.state.roster.aggregator_of(self.chain.state.round)
        assert holder is not None
        return self.chain.state.roster.seats[holder]

    @property
    def contributing(self) -> list[int]:
        """The seats that contribute to the open phase."""
        return sorted(self.chain.state.roster.seats[member] for member in self.chain.state.roster.contributors)


# --- fixed


def test_a_fixed_aggregator_that_leaves_is_followed_by_the_next_place() -> None:
    chain = living(aggregator=AggregatorRule.FIXED, centralized=True)
    change = own(chain, 0)
    validate_change(chain.genesis, chain.state, change, is_valid_signature)
    chain.extend(changes=[change])
    play(chain, 3)
    assert standing(chain, 0) == "left"
    assert chain.state.roster.aggregator_of(chain.state.round) == chain.genesis.members[1]


def test_a_role_passes_over_members_that_are_away_and_those_that_the_same_block_convicts() -> None:
    followed = Followed(8, aggregator=AggregatorRule.FIXED)
    followed.extend(own(followed.chain, 1, ChangeKind.AWAY))
    for _ in range(2):
        followed.extend()
    crime = double_vote(keys(3)[2], followed.chain.genesis, 1, attempt=3)
    followed.extend(own(followed.chain, 0), evidence=[crime])
    assert followed.chain.state.amendments.aggregator == 3


def test_a_fixed_aggregator_whose_phase_stays_empty_is_followed_though_it_posts_and_votes() -> None:
    chain = living(6, aggregator=AggregatorRule.FIXED, phases=ITS_OWN, away_after=2)
    first, second = chain.genesis.members[:2]
    for _ in range(2):
        assert first in {post.sender for post in chain.extend().transactions}
        assert chain.state.roster.contributors == {first}
        chain.extend(posts=())
    assert standing(chain, 0) == "away"
    play(chain, 1)
    assert chain.state.roster.contributors == {second}, "it posts in the aggregator's phase now"
    back = own(chain, 0, ChangeKind.BACK)
    chain.extend(changes=[back])
    play(chain, 4)
    assert standing(chain, 0) == "active"
    assert chain.state.roster.aggregator_of(chain.state.round) == second, "the role does not go back with it"


def test_where_nobody_may_go_a_fixed_aggregator_whose_phase_stays_empty_loses_its_role_alone() -> None:
    chain = living(4, aggregator=AggregatorRule.FIXED, phases=ITS_OWN, away_after=2)
    sets, members = Sets(chain.genesis), chain.genesis.members

    def follow(**fields: Any) -> None:
        before = chain.state
        sets.follow(before, chain.extend(**fields))
        assert sets.differences(chain.state) == []

    aggregators: list[bytes] = []
    for _ in range(4):
        for _ in range(2):
            follow()
            aggregators += chain.state.roster.contributors
            follow(posts=())
    assert aggregators == [member for member in members for _ in range(2)]
    assert [record.standing for record in chain.state.records] == [Standing.ACTIVE] * 4
    for _ in range(3):
        follow()
        assert chain.state.roster.contributors == {members[0]}, "all others have failed since"
        follow()
    assert read_anew(chain.genesis, chain.state) == chain.state


def test_a_fixed_aggregator_that_failed_and_takes_another_key_does_not_get_its_role_back() -> None:
    chain = living(4, aggregator=AggregatorRule.FIXED, phases=ITS_OWN, away_after=1)
    chain.extend()
    rekey = sign_rekey(keys(1)[0], keys(9)[8], chain.genesis.chain_id, sequence=0, until=UNTIL)
    chain.extend(posts=(), changes=[rekey])
    assert chain.state.roster.holder == chain.genesis.members[1]
    assert (chain.state.records[0].key, chain.state.records[0].round) == (keys(9)[8].public_key, 2)


def test_a_fixed_aggregator_that_is_convicted_is_followed() -> None:
    chain = living(aggregator=AggregatorRule.FIXED, phases=ITS_OWN)
    chain.extend(evidence=[double_vote(keys(1)[0], chain.genesis, 1, attempt=3)])
    assert chain.state.roster.contributors == {chain.genesis.members[1]}


def test_an_aggregator_that_posts_in_its_phase_now_and_then_stays() -> None:
    chain = living(6, aggregator=AggregatorRule.FIXED, phases=ITS_OWN, away_after=2)
    for number in range(6):
        chain.extend()
        chain.extend(posts=()) if number % 2 else chain.extend()
    assert standing(chain, 0) == "active"


def test_whoever_is_silent_and_has_no_role_counts_since_when_it_did() -> None:
    chain = living(4, away_after=1, aggregator=AggregatorRule.FIXED, centralized=True)
    silent_for(chain, 2, 4)
    assert (chain.state.records[2].idle, chain.state.records[2].round) == (4, 0)


# --- dedicated


def test_a_dedicated_aggregator_whose_phase_stays_empty_is_followed_by_the_next_place_that_stops_contributing() -> None:
    followed = Followed(6, **DEDICATED)
    assert (followed.contributing, followed.chain.state.roster.clients) == ([0, 1, 2, 3, 4], 5)
    assert followed.rounds(2, is_silent=True) == [5, 5]
    assert (standing(followed.chain, 5), followed.seat) == ("away", 0)
    assert (followed.contributing, followed.chain.state.roster.clients) == ([1, 2, 3, 4], 5)
    back = own(followed.chain, 5, ChangeKind.BACK)
    assert followed.rounds(3, back) == [0, 0, 0], "the role does not go back with it"
    assert standing(followed.chain, 5) == "active"
    assert (followed.contributing, followed.chain.state.roster.clients) == ([1, 2, 3, 4], 5), "it has no data"
    assert followed.chain.state.roster.electors == set(followed.chain.genesis.members)


def test_it_gets_its_role_back_by_an_amendment_and_the_other_one_contributes_again() -> None:
    followed = Followed(6, **DEDICATED)
    followed.rounds(2, is_silent=True)
    followed.rounds(3, own(followed.chain, 5, ChangeKind.BACK))
    assert followed.rounds(3, handing(followed.chain, 5)) == [0, 0, 5]
    assert followed.contributing == [0, 1, 2, 3, 4]


def test_a_dedicated_aggregator_that_leaves_is_followed_once_that_is_counted() -> None:
    followed = Followed(6, **DEDICATED)
    assert followed.rounds(4, own(followed.chain, 5)) == [5, 0, 0, 0]
    assert (standing(followed.chain, 5), followed.contributing) == ("left", [1, 2, 3, 4])


def test_a_leave_that_is_taken_back_costs_no_role() -> None:
    followed = Followed(6, **DEDICATED | {"admission": Admission.QUORUM, "aggregator": AggregatorRule.FIXED})
    chain = followed.chain
    chain_id, member = chain.genesis.chain_id, chain.genesis.members[0]
    followed.extend(own(chain, 0))
    found = propose_recovery(member, keys(10)[9], chain_id, "a thief signed it", sequence=0, until=UNTIL)
    followed.extend(approved(chain, found))
    assert followed.rounds(3) == [0, 0, 0]


def test_the_last_one_with_data_goes_on_to_contribute() -> None:
    followed = Followed(2, **DEDICATED | {"fault_model": FaultModel.CRASH})
    assert followed.rounds(4, is_silent=True) == [1] * 4
    assert [standing(followed.chain, seat) for seat in (0, 1)] == ["active", "active"], "its votes are all that it owes"
    assert followed.rounds(3, handing(followed.chain, 0)) == [1] * 3
    assert followed.contributing == [0]


def test_where_everybody_with_data_left_phases_are_closed_empty() -> None:
    chain = living(2, **DEDICATED | {"fault_model": FaultModel.CRASH})
    assert not may_close_empty(chain.genesis, chain.state)
    chain.extend(changes=[own(chain, 0)])
    play(chain, 5)
    assert chain.state.roster.contributors == frozenset()
    assert may_close_empty(chain.genesis, chain.state)


def test_of_four_members_a_dedicated_aggregator_loses_its_role_and_stays() -> None:
    followed = Followed(4, **DEDICATED)
    assert followed.rounds(8, is_silent=True) == [3, 3, 0, 0, 1, 1, 2, 2]
    assert [record.standing for record in followed.chain.state.records] == [Standing.ACTIVE] * 4
    assert followed.rounds(2) == [3, 3]


def test_members_with_data_are_as_many_while_the_role_passes_on_within_a_round() -> None:
    """Encrypted sums are read by their number in the phase after the one in which they are made."""
    chain = living(6, **DEDICATED)
    before = chain.state
    chain.extend(evidence=[double_vote(keys(6)[5], chain.genesis, 1, attempt=3)])
    after = chain.state
    assert (after.round, after.phase) == (before.round, 1)
    assert after.roster.aggregator_of(after.round) == chain.genesis.members[0]
    assert before.roster.clients == after.roster.clients == 5


# --- by amendment


@pytest.mark.parametrize("rule", [AggregatorRule.FIXED, AggregatorRule.DEDICATED])
def test_a_quorum_hands_the_role_to_any_member_and_it_passes_on_from_there(rule: AggregatorRule) -> None:
    followed = Followed(6, **DEDICATED | {"aggregator": rule})
    founded = followed.seat
    assert followed.rounds(3, handing(followed.chain, 3)) == [founded, founded, 3]
    assert followed.rounds(2, is_silent=True) == [3, 3]
    assert followed.seat == 4


def test_a_role_that_is_handed_on_as_its_member_leaves_does_not_pass_on_by_rule() -> None:
    chain = living(6, aggregator=AggregatorRule.FIXED)
    for change in (handing(chain, 3), own(chain, 0)):
        chain.extend(changes=[change])
    assert (chain.state.round, chain.state.roster.holder) == (3, chain.genesis.members[3])
    play(chain, 2)
    assert (standing(chain, 0), chain.state.roster.holder) == ("left", chain.genesis.members[3])


def test_what_cannot_be_handed_over_is_refused() -> None:
    chain = living(5, **DEDICATED | {"aggregator": AggregatorRule.ROTATING})
    with pytest.raises(InvalidChange, match="aggregator is rotating, which is no member's role"):
        validate_change(chain.genesis, chain.state, handing(chain, 1), is_valid_signature)
    chain = living(6, **DEDICATED)
    with pytest.raises(OutOfWindow, match="aggregator: place 6 found, there are 6"):
        validate_change(chain.genesis, chain.state, handing(chain, 6), is_valid_signature)
    chain.extend(changes=[own(chain, 1)])
    with pytest.raises(InvalidChange, match=r"aggregator: .* is gone, goes or was convicted"):
        validate_change(chain.genesis, chain.state, handing(chain, 1), is_valid_signature)
    validate_change(chain.genesis, chain.state, handing(chain, 0), is_valid_signature)
    chain.extend(evidence=[double_vote(keys(3)[2], chain.genesis, 1, attempt=3)])
    with pytest.raises(InvalidChange, match=r"aggregator: .* is gone, goes or was convicted"):
        validate_change(chain.genesis, chain.state, handing(chain, 2), is_valid_signature)


def test_a_place_that_went_before_the_role_came_to_it_is_passed_over_for_good() -> None:
    followed = Followed(8, **DEDICATED)
    assert followed.rounds(1, handing(followed.chain, 2, 4)) == [7]
    followed.extend(own(followed.chain, 2, ChangeKind.AWAY))
    followed.extend()
    assert followed.rounds(2) == [7, 3]
    followed.extend(own(followed.chain, 2, ChangeKind.BACK))
    followed.extend()
    assert followed.rounds(3) == [3] * 3
    assert standing(followed.chain, 2) == "active"


def test_a_state_that_names_nobody_is_refused() -> None:
    followed = Followed(6, **DEDICATED)
    followed.rounds(3, handing(followed.chain, 3))
    with pytest.raises(InvalidEncoding, match="place 77 aggregates, there are 6 members"):
        decode_state(
            followed.chain.genesis, followed.chain.state.encode().replace(b"aggregator\x03", b"aggregator\x4d")
        )


# --- posts


def test_another_member_may_have_the_role_in_a_phase_to_come() -> None:
    chain = living(6, **DEDICATED)
    chain.extend(changes=[handing(chain, 0)])
    chain.extend()
    old, new = chain.genesis.members[5], chain.genesis.members[0]
    ahead = 3

    def judge(member: bytes, phase: int) -> None:
        made = post(chain.key(member), chain.genesis, ahead, payload(1), phase=phase)
        validate_post(chain.genesis, chain.state, made, is_valid_signature)

    with pytest.raises(OutOfWindow, match="which is the aggregator's"):
        judge(new, 1)
    with pytest.raises(InvalidPost, match=r"contributor: .*, without data"):
        judge(old, 0)
    play(chain, 2)
    with pytest.raises(OutOfWindow, match="which is the aggregator's"):
        judge(old, 1)
    with pytest.raises(InvalidPost, match=r"contributor: .* the dedicated aggregator"):
        judge(new, 0)
    chain.extend(changes=[handing(chain, 1)])
    play(chain, 1)
    ahead = 5
    with pytest.raises(OutOfWindow, match="the dedicated aggregator"):
        judge(new, 0)
    play(chain, 2)
    judge(new, 0)


def test_what_a_member_owed_when_it_got_the_role_may_still_be_counted() -> None:
    chain = late_chain(6, aggregator=AggregatorRule.DEDICATED, phases=ITS_OWN)
    chain.extend(changes=[handing(chain, 0)])
    chain.extend()
    (owed,) = skip(chain, 0)
    chain.extend()
    before = chain.state
    assert before.roster.holder == owed.sender
    validate_post(chain.genesis, before, owed, is_valid_signature)
    block = extend_with(chain, [owed])
    judge_block(chain.genesis, before, block, block.header.knowledge_root, is_valid_signature)
    assert owed in block.transactions


@pytest.mark.parametrize("model", FaultModel)
def test_whoever_decides_after_a_round_has_more_members_of_before_among_it_than_may_lie(model: FaultModel) -> None:
    """A light client that knows the members of before passes over the round by that."""
    for before in range(1, 500):
        most = churn_max(before)
        for added in (0, most):
            for taken in (0, min(most, max(0, before - 4))):
                quorum = model.quorum(before + added - taken)
                assert quorum - added > model.faulty(before), (before, added, taken)
