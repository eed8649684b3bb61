"""Changes of the membership: how they are written, and what the state makes of them."""

from dataclasses import replace
from typing import Any

import pytest

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.exceptions import InvalidEncoding
from fedchain.chain.genesis import Admission, AggregatorRule, Genesis
from fedchain.chain.membership.change import (
    CHANGES_VERSION,
    TEXT_SIZE_MAX,
    Change,
    ChangeKind,
    changes_root,
    propose_removal,
)
from fedchain.chain.membership.member import Standing
from fedchain.chain.state import decode_state
from fedchain.chain.validation.changes import validate_change
from fedchain.crypto.keys import is_valid_signature
from tests.support.chain.builders import ChainBuilder, double_vote, keys
from tests.support.chain.changes import UNTIL, joining, living, own, play, silent_for, standing


def test_a_change_survives_being_encoded_and_its_identity_is_not_its_approvals() -> None:
    chain = living()
    change = joining(chain, 5)
    assert Change.from_record(change.to_record()) == change
    alone = change.approved_by(())
    assert alone.hash == change.hash
    assert changes_root([alone]) != changes_root([change])
    removal = propose_removal(chain.genesis.members[1], "silent", sequence=0, until=UNTIL)
    assert Change.from_record(removal.to_record()) == removal


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, 9, "change kind: 9 found, 1 to 8 expected"),
        (1, bytes(31), "change member: 31 bytes found, 32 expected"),
        (2, bytes(32), "change key: 32 bytes found, 0 expected"),
        (3, "x" * (TEXT_SIZE_MAX + 1), "change text: 201 bytes found, at most 200 are allowed"),
        (7, b"", "change signature: 0 bytes found, 64 expected"),
        (8, bytes(64), "change proof: 64 bytes found, 0 expected"),
        (9, [[bytes(32)]], "approval: 1 fields found, 2 fields expected"),
    ],
)
def test_other_forms_are_refused(place: int, value: Any, message: str) -> None:
    record = joining(living(), 5).to_record()
    record[place] = value
    with pytest.raises(InvalidEncoding, match=message):
        Change.from_record(record)


def test_blocks_with_changes_survive_being_encoded() -> None:
    chain = living()
    block = chain.extend(changes=[joining(chain, 5), own(chain, 1)])
    assert Block.decode(block.encode(), 2**20) == block
    assert block.header.version == CHANGES_VERSION


def test_a_newcomer_counts_from_the_second_round_on() -> None:
    chain = living()
    newcomer = keys(6)[5].public_key
    before, after = list[int](), list[int]()
    play(chain, 1)
    chain.extend(changes=[joining(chain, 5)])
    assert chain.state.records[5].standing is Standing.COMING
    assert chain.state.roster.seats[newcomer] == 5
    for _ in range(3):
        (after if chain.state.roster.is_active(newcomer) else before).append(chain.state.round)
        play(chain, 1)
    assert (before, after) == ([3], [4, 5])
    assert newcomer in chain.state.roster.electors
    assert len(chain.state.roster.electors) == chain.state.roster.clients == 6


def test_a_leaver_stops_counting_in_the_second_round_and_is_cut_off_in_the_third() -> None:
    chain = living()
    leaver = chain.genesis.members[1]
    chain.extend(changes=[own(chain, 1)])
    counts, reached = [], []
    for _ in range(3):
        roster = chain.state.roster
        counts.append(roster.is_active(leaver))
        reached.append(leaver in roster.reachable)
        play(chain, 1)
    assert (counts, reached) == ([True, False, False], [True, True, False])
    roster = chain.state.roster
    assert (roster.active, roster.clients, len(roster)) == (4, 4, 5)
    assert leaver not in roster.electors | roster.contributors


def test_rotation_goes_over_those_that_count() -> None:
    chain = living(aggregator=AggregatorRule.ROTATING)
    chain.extend(changes=[own(chain, 1)])
    play(chain, 2)
    roster = chain.state.roster
    assert [roster.members.index(roster.aggregator_of(number) or b"") for number in range(4, 9)] == [0, 2, 3, 4, 0]


def _by_others(chain: ChainBuilder, number: int) -> Certificate | None:
    """The certificate of the tip without a vote of a member; None below the first block."""
    deciders = chain.state.deciders - {*chain.state.roster.members[number : number + 1]}
    return chain.certificate(chain.tip, sorted(deciders)) if deciders else None


def test_who_is_silent_for_too_long_is_away_until_it_is_back() -> None:
    chain = living(away_after=3)
    silent_for(chain, 2, 2)
    assert chain.state.records[2].idle == 2
    assert chain.state.roster.is_active(chain.genesis.members[2])
    silent_for(chain, 2, 1)
    assert standing(chain, 2) == "away"
    assert chain.state.roster.active == 4
    back = own(chain, 2, ChangeKind.BACK)
    validate_change(chain.genesis, chain.state, back, is_valid_signature)
    chain.extend(changes=[back], certificate=chain.certificate(chain.tip, sorted(chain.state.deciders)[:4]))
    play(chain, 2)
    assert standing(chain, 2) == "active"
    assert chain.state.records[2].idle <= 1


@pytest.mark.parametrize("newcomer", [True, False])
def test_who_begins_has_four_timeouts_for_its_start_a_newcomer_and_one_that_is_back(newcomer: bool) -> None:
    """A block takes ten seconds here, as a timeout does; a certificate counts one block later."""
    chain = living(6, away_after=1, phase_timeout_ms=10_000)
    if newcomer:
        number, change = 6, joining(chain, 6)
    else:
        number = 2
        silent_for(chain, 2, 2)  # a founder has been there all the time
        assert standing(chain, 2) == "away"
        change = own(chain, 2, ChangeKind.BACK)
    chain.extend(changes=[change], certificate=_by_others(chain, number))
    silent_for(chain, number, 1)
    said = [standing(chain, number)]
    for _ in range(5):
        silent_for(chain, number, 1)
        said.append(standing(chain, number))
    assert said == [*["active"] * 4, *["away"] * 2]


def test_a_post_or_a_vote_is_a_sign_of_life() -> None:
    chain = living(away_after=2)
    silent_for(chain, 2, 1)
    play(chain, 1)  # its post is counted, if no vote of it
    assert chain.state.records[2].idle == 0
    silent_for(chain, 2, 1)
    assert chain.state.roster.is_active(chain.genesis.members[2])


def test_a_vote_alone_is_a_sign_of_life() -> None:
    chain = living(away_after=5)
    silent_for(chain, 2, 1)
    member = chain.genesis.members[2]
    others = [item for item in chain.state.roster.contributors if item != member]
    voters = sorted({member, *sorted(chain.state.deciders - {member})[:3]})
    chain.extend(posts=chain.posts(members=others), certificate=chain.certificate(chain.tip, voters))
    assert chain.state.records[2].idle == 0


def test_nobody_goes_away_below_four() -> None:
    chain = living(4, away_after=1)
    silent_for(chain, 2, 4)
    assert chain.state.records[2].standing is Standing.ACTIVE
    assert chain.state.records[2].idle == 4


def test_nobody_goes_away_beside_a_conviction_that_leaves_four() -> None:
    chain = living(5, away_after=3)
    silent_for(chain, 4, 2)
    crime = double_vote(keys(2)[1], chain.genesis, 1, attempt=3)
    silent_for(chain, 4, 1, evidence=[crime])
    assert chain.state.roster.active == 4, "the one that is silent stays beside the three that are left"


def test_a_state_with_newcomers_survives_being_encoded() -> None:
    chain = living()
    chain.extend(changes=[joining(chain, 5), own(chain, 1)])
    for _ in range(4):
        assert decode_state(chain.genesis, chain.state.encode()) == chain.state
        play(chain, 1)
    assert decode_state(chain.genesis, chain.state.encode()).roster == chain.state.roster


def test_a_state_whose_founders_were_exchanged_is_refused() -> None:
    chain = living()
    other = ChainBuilder(replace(chain.genesis, members=(*chain.genesis.members[:4], keys(9)[8].public_key)))
    with pytest.raises(InvalidEncoding, match="founder 4 came with another key"):
        decode_state(chain.genesis, other.state.encode())


def test_the_founding_document_says_the_admission() -> None:
    document = living(admission=Admission.SPONSORS, sponsors=2, away_after=9).genesis
    assert Genesis.decode(document.encode()) == document
