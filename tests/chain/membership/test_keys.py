"""Keys that are replaced: by their members, or by the others after a loss or a theft."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from fedchain.chain.exceptions import AlreadyKnown, InvalidBlock, InvalidChange, InvalidSignature, OutOfWindow
from fedchain.chain.membership.change import (
    Change,
    ChangeKind,
    propose_recovery,
    propose_removal,
    sign_change,
    sign_rekey,
)
from fedchain.chain.membership.member import FormerKey, Standing
from fedchain.chain.membership.rules import validate_approvals, validate_change, validate_room
from fedchain.chain.transition import judge_block, judge_final
from fedchain.chain.validation import validate_evidence, validate_post, validate_state
from fedchain.crypto.keys import is_valid_signature
from tests.support.chain.builders import UPDATE, ChainBuilder, double_vote, keys, payload, post
from tests.support.chain.changes import UNTIL, approved, joining, living, own
from tests.support.chain.states import read_anew

NEXT, OTHER = keys(13)[11], keys(13)[12]
PHASES = (UPDATE, replace(UPDATE, name="second"))


def judge(chain: ChainBuilder, change: Change) -> None:
    validate_change(chain.genesis, chain.state, change, is_valid_signature)
    validate_approvals(chain.genesis, chain.state, change)


def rekey(chain: ChainBuilder, number: int = 1, following: int = 11) -> Change:
    had, sequence = chain.state.roster.members[number], chain.state.records[number].sequence
    return sign_rekey(chain.key(had), keys(13)[following], chain.genesis.chain_id, sequence=sequence, until=UNTIL)


def recover(chain: ChainBuilder, number: int = 1, following: int = 12, approvers: int | None = None) -> Change:
    record, chain_id = chain.state.records[number], chain.genesis.chain_id
    had, sequence = record.came_with, record.decided
    change = propose_recovery(had, keys(13)[following], chain_id, "stolen", sequence=sequence, until=UNTIL)
    return approved(chain, change, approvers)


def play(chain: ChainBuilder, count: int = 1, **body: list[Change]) -> None:
    for _ in range(count):
        before, block = chain.state, chain.extend(**body)  # type: ignore[arg-type]
        judge_block(chain.genesis, before, block, block.header.knowledge_root, is_valid_signature)


def test_another_key_holds_from_the_next_height_on_and_the_place_stays() -> None:
    chain = living()
    had = chain.genesis.members[1]
    play(chain, changes=[rekey(chain)])
    roster = chain.state.roster
    assert roster.members[1] == NEXT.public_key
    assert (roster.seats[NEXT.public_key], roster.seats[had]) == (1, 1)
    assert roster.is_active(NEXT.public_key)
    assert not roster.is_active(had)
    assert NEXT.public_key in roster.electors
    assert had not in roster.electors | roster.contributors
    assert chain.state.deciders == frozenset(chain.genesis.members), "the block itself is decided by the former key"
    play(chain)
    assert NEXT.public_key in chain.state.deciders


def test_a_former_key_is_remembered_for_two_rounds_behind_that_of_its_block() -> None:
    chain = living(5)
    play(chain, changes=[rekey(chain)])
    known = []
    while chain.state.roster.successors:
        known.append(chain.state.round)
        play(chain)
    assert known == [2, 3]


def test_states_with_former_keys_survive_being_encoded() -> None:
    chain = living()
    play(chain, changes=[rekey(chain), recover(chain, 2)])
    for _ in range(5):
        assert read_anew(chain.genesis, chain.state) == chain.state
        play(chain)


def test_the_block_that_counts_another_key_is_made_final_by_the_former_one() -> None:
    chain = living()
    before, had = chain.state, chain.genesis.members[1]
    block = chain.extend(changes=[rekey(chain)])
    voters = sorted(chain.genesis.members)[:3]
    certificate = chain.certificate(block, sorted({*voters, had, *chain.genesis.members})[:4])
    judge_final(chain.genesis, before, block, certificate, None, is_valid_signature)
    play(chain)


def test_both_keys_sign_and_nobody_approves() -> None:
    chain = living()
    change = rekey(chain)
    judge(chain, change)
    assert Change.from_record(change.to_record()) == change
    for forged in (
        replace(change, proof=change.signature),
        replace(change, signature=change.proof),
        replace(change, key=OTHER.public_key),
    ):
        with pytest.raises(InvalidSignature, match="signature"):
            judge(chain, forged)
    with pytest.raises(InvalidChange, match="nobody has to approve"):
        judge(chain, approved(chain, change, 1))


def test_a_recovery_takes_the_others_approval_and_not_the_member_s() -> None:
    chain = living()
    change = recover(chain)
    judge(chain, change)
    assert Change.from_record(change.to_record()) == change
    with pytest.raises(InvalidChange, match="approvals: 3 found, 4 required"):
        judge(chain, recover(chain, approvers=3))
    with pytest.raises(InvalidChange, match="approves of its own change"):
        judge(chain, change.approved(keys(2)[1], chain.genesis.chain_id))
    with pytest.raises(InvalidSignature, match="signature"):
        judge(chain, replace(change, proof=keys(1)[0].sign(change.signing_message(chain.genesis.chain_id))))


def test_a_key_has_one_member() -> None:
    chain = living()
    for following in (0, 1):
        with pytest.raises(InvalidChange, match="has a place already"):
            judge(chain, rekey(chain, 1, following))
    validate_room(chain.genesis, chain.state, [rekey(chain, 1), rekey(chain, 2, 12)])
    with pytest.raises(InvalidChange, match="2 members take 1 keys"):
        validate_room(chain.genesis, chain.state, [rekey(chain, 1), rekey(chain, 2)])
    with pytest.raises(InvalidChange, match="2 members take 1 keys"):
        validate_room(chain.genesis, chain.state, [rekey(chain, 1), joining(chain, 11)])
    play(chain, changes=[rekey(chain)])
    with pytest.raises(InvalidChange, match="has a place already"):
        judge(chain, rekey(chain, 2, 1))
    with pytest.raises(InvalidChange, match="has a place already"):
        judge(chain, joining(chain, 11))


def test_one_of_two_changes_of_a_key_fits_into_a_block() -> None:
    chain = living()
    with pytest.raises(InvalidChange, match="2 changes of 1 members"):
        validate_room(chain.genesis, chain.state, [rekey(chain), recover(chain)])
    other = recover(chain)
    play(chain, changes=[rekey(chain)])
    judge(chain, other)
    leave = sign_change(NEXT, chain.genesis.chain_id, ChangeKind.LEAVE, sequence=1, until=UNTIL)
    with pytest.raises(InvalidChange, match="2 changes of 1 members"):
        validate_room(chain.genesis, chain.state, [other, leave])
    removal = propose_removal(chain.genesis.members[1], "a liar", sequence=0, until=UNTIL)
    with pytest.raises(InvalidChange, match="0 members come and 2 go"):
        validate_room(chain.genesis, chain.state, [removal, own(chain, 2)])


def test_what_a_former_key_signed_is_refused_but_blames_nobody() -> None:
    chain = living()
    old = keys(2)[1]
    leave, change = own(chain, 1), rekey(chain)
    thief = own(chain, 1, sequence=1)
    play(chain, changes=[change])
    with pytest.raises(OutOfWindow, match="was replaced by another key"):
        judge(chain, thief)
    with pytest.raises(OutOfWindow, match="does not count now"):
        validate_post(
            chain.genesis, chain.state, post(old, chain.genesis, chain.state.round, payload(1)), is_valid_signature
        )
    for again in (leave, change, joining(chain, 5).approved(old, chain.genesis.chain_id)):
        with pytest.raises(OutOfWindow):
            judge(chain, again)
    play(chain, 3)
    assert chain.state.records[1].former is None
    with pytest.raises(OutOfWindow, match="is no member"):
        validate_post(
            chain.genesis, chain.state, post(old, chain.genesis, chain.state.round, payload(1)), is_valid_signature
        )


def test_a_member_does_not_leave_its_crimes_behind_with_its_key() -> None:
    chain = living()
    crime = double_vote(keys(2)[1], chain.genesis, 1, attempt=3)
    play(chain, changes=[rekey(chain)])
    with pytest.raises(OutOfWindow, match="since a moment ago"):
        judge(chain, rekey(chain, 1, 12))
    validate_evidence(chain.genesis, chain.state, crime, is_valid_signature)
    chain.extend(evidence=[crime])
    assert chain.state.roster.culprits == {NEXT.public_key}
    play(chain, 4)
    assert chain.state.roster.culprits == {NEXT.public_key}, "the former key is remembered"
    validate_state(chain.genesis, read_anew(chain.genesis, chain.state), is_valid_signature)
    with pytest.raises(InvalidChange, match="was convicted"):
        judge(chain, rekey(chain, 1, 12))


def test_crimes_of_a_former_key_and_of_the_next_one_are_one_member_s() -> None:
    chain = living()
    former = double_vote(keys(2)[1], chain.genesis, 1, attempt=3)
    play(chain, changes=[rekey(chain)])
    before, crimes = chain.state, [former, double_vote(NEXT, chain.genesis, 2, attempt=3)]
    block = chain.extend(evidence=sorted(crimes, key=lambda crime: crime.hash))
    with pytest.raises(InvalidBlock, match="2 crimes of 1 members found"):
        judge_block(chain.genesis, before, block, block.header.knowledge_root, is_valid_signature)


def test_a_convicted_member_is_not_convicted_again_by_its_former_key() -> None:
    chain = living()
    former = double_vote(keys(2)[1], chain.genesis, 1, attempt=3)
    play(chain, changes=[rekey(chain)])
    validate_evidence(chain.genesis, chain.state, former, is_valid_signature)
    chain.extend(evidence=[double_vote(NEXT, chain.genesis, 2, attempt=3)])
    with pytest.raises(AlreadyKnown, match="was convicted before"):
        validate_evidence(chain.genesis, chain.state, former, is_valid_signature)


@pytest.mark.parametrize(("before", "make"), [([], rekey), ([], recover), ([rekey], recover)])
def test_a_change_of_a_member_that_its_block_convicts_has_no_effect(
    before: list[Callable[[ChainBuilder], Change]], make: Callable[[ChainBuilder], Change]
) -> None:
    """The crime may be of a former key, which another key would drive out of the record, and the conviction with it."""
    chain = living()
    crime = double_vote(keys(2)[1], chain.genesis, 1, attempt=3)
    for earlier in before:
        play(chain, changes=[earlier(chain)])
    had = chain.state.records[1]
    chain.extend(evidence=[crime], changes=[make(chain)])
    for _ in range(4):
        record = chain.state.records[1]
        assert (record.key, record.former, record.sequence) == (had.key, had.former, had.sequence)
        assert chain.state.roster.culprits == {had.key}
        validate_state(chain.genesis, chain.state, is_valid_signature)
        play(chain)


def test_a_stolen_key_convicts_nobody_once_it_is_replaced() -> None:
    chain = living()
    crime = double_vote(keys(2)[1], chain.genesis, 1, attempt=3)
    play(chain, changes=[recover(chain)])
    with pytest.raises(OutOfWindow, match="lost or stolen"):
        validate_evidence(chain.genesis, chain.state, crime, is_valid_signature)
    play(chain, 3)
    with pytest.raises(OutOfWindow, match="is no member"):
        validate_evidence(chain.genesis, chain.state, crime, is_valid_signature)


def test_a_thief_that_replaces_the_key_first_loses_it_again_at_once() -> None:
    chain = living()
    play(chain, changes=[rekey(chain)])
    play(chain, changes=[recover(chain)])
    assert chain.state.roster.members[1] == OTHER.public_key
    assert chain.state.records[1].former == FormerKey(NEXT.public_key, 2, 4, is_liable=False)
    play(chain, 3)


def test_no_change_of_its_own_makes_approvals_of_its_removal_or_recovery_worthless() -> None:
    for others in (("away", "back"), ("rekey", "rekey")):
        chain = living(6)
        removal = approved(chain, propose_removal(chain.genesis.members[1], "a liar", sequence=0, until=UNTIL))
        recovery = recover(chain, following=9)
        for number, kind in enumerate(others):
            change = rekey(chain, following=11 + number) if kind == "rekey" else own(chain, 1, ChangeKind[kind.upper()])
            play(chain, changes=[change])
            judge(chain, removal)
            judge(chain, recovery)
            with pytest.raises(InvalidChange, match="2 changes of 1 members"):
                validate_room(chain.genesis, chain.state, [removal, recovery])
            play(chain, 3)
            judge(chain, recovery)
        play(chain, changes=[removal])
        play(chain, 2)
        assert chain.state.records[1].standing is Standing.REMOVED
        assert read_anew(chain.genesis, chain.state) == chain.state


def test_approvals_admit_one_member_and_give_one_key() -> None:
    chain = living(8)
    came = joining(chain, 8, approvers=8)
    play(chain, changes=[came])
    play(chain, 2)
    recovery = recover(chain, 2, 10)
    play(chain, changes=[rekey(chain, 8), recovery])
    play(chain, 3)
    for again in (came, recovery):
        with pytest.raises(OutOfWindow, match="0 found, 1 were counted"):
            judge(chain, again)
    with pytest.raises(InvalidChange, match="is the one with which another member came"):
        judge(chain, rekey(chain, 3, 8))
    play(chain, changes=[rekey(chain, 8, 8)])
    assert chain.state.records[8].first == b"", "a member may have its first key again"
    assert read_anew(chain.genesis, chain.state) == chain.state


def test_nobody_judges_its_own_case_with_another_key() -> None:
    chain = living()
    removal = propose_removal(chain.genesis.members[1], "a liar", sequence=0, until=UNTIL)
    play(chain, changes=[rekey(chain)])
    with pytest.raises(InvalidChange, match="approves of its own change"):
        judge(chain, removal.approved(NEXT, chain.genesis.chain_id))


def test_a_recovery_takes_back_a_thief_s_leave_but_not_a_removal() -> None:
    chain = living()
    play(chain, changes=[own(chain, 1)])
    play(chain, changes=[recover(chain)])
    play(chain, 3)
    assert chain.state.records[1].standing is Standing.ACTIVE
    chain = living()
    removal = propose_removal(chain.genesis.members[1], "silent", sequence=0, until=UNTIL)
    play(chain, changes=[approved(chain, removal)])
    with pytest.raises(OutOfWindow, match="on its way"):
        judge(chain, recover(chain))


def test_nobody_draws_itself_by_looking_for_a_key() -> None:
    """Places are drawn: with no key that a member could choose would it, or another one, be drawn in its round."""
    chain = living(8, committee_size=5, contributors_per_round=3)
    plain, other = chain.extend(), chain.extend(chain.genesis.chain_id, changes=[rekey(chain)])
    before, after = chain.states[plain.hash], chain.states[other.hash]
    assert {before.roster.seats[key] for key in before.roster.members} == set(range(8))
    for number in range(8):
        chain = living(8, contributors_per_round=3, phases=PHASES)
        drawn = {chain.state.roster.seats[key] for key in chain.state.roster.contributors}
        chain.extend(changes=[rekey(chain, number)])
        assert {chain.state.roster.seats[key] for key in chain.state.roster.contributors} == drawn
    assert after.roster.members != before.roster.members


def test_a_member_goes_on_holiday_by_its_own_word() -> None:
    chain = living()
    change = own(chain, 1, ChangeKind.AWAY)
    judge(chain, change)
    play(chain, changes=[change])
    assert chain.state.roster.is_active(chain.genesis.members[1])
    play(chain)
    assert chain.state.records[1].standing.name == "AWAY"
    with pytest.raises(InvalidChange, match=r"standing: .* is away, away found"):
        judge(chain, own(chain, 1, ChangeKind.AWAY))
    play(chain, changes=[own(chain, 1, ChangeKind.BACK)])
    play(chain)
    assert chain.state.records[1].standing.name == "ACTIVE"


def test_holidays_need_room_as_leaving_does() -> None:
    chain = living()
    with pytest.raises(InvalidChange, match="churn"):
        validate_room(chain.genesis, chain.state, [own(chain, 1, ChangeKind.AWAY), own(chain, 2)])


def test_a_former_key_s_vote_is_a_sign_of_life_for_the_block_that_it_decided() -> None:
    chain = living(away_after=9)
    had = chain.genesis.members[4]
    first = chain.extend(changes=[rekey(chain, 4)], posts=[item for item in chain.posts() if item.sender != had])
    assert chain.state.records[4].idle == 1
    others = [key for key in sorted(chain.genesis.members) if key != had][:3]
    posts = [item for item in chain.posts() if item.sender != NEXT.public_key]
    chain.extend(posts=posts, certificate=chain.certificate(first, sorted([*others, had])))
    assert chain.state.records[4].idle == 0
