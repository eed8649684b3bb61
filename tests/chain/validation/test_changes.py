"""Changes of the membership: who may make them, who approves, and how many fit."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fedchain.chain.exceptions import InvalidBlock, InvalidChange, InvalidSignature, OutOfWindow
from fedchain.chain.genesis import Admission
from fedchain.chain.membership.change import (
    CHANGES_MAX,
    Approval,
    Change,
    ChangeKind,
    propose_removal,
    sign_change,
)
from fedchain.chain.membership.member import Standing
from fedchain.chain.transition import judge_block
from fedchain.chain.validation.changes import approvals_required, validate_approvals, validate_change, validate_room
from fedchain.crypto.keys import PrivateKey, is_valid_signature
from tests.support.chain.builders import ChainBuilder, double_vote, genesis, keys
from tests.support.chain.changes import UNTIL, approved, joining, living, own, play


def judge(chain: ChainBuilder, change: Change) -> None:
    validate_change(chain.genesis, chain.state, change, is_valid_signature)
    validate_approvals(chain.genesis, chain.state, change)


def test_a_quorum_s_approval_lets_a_key_join() -> None:
    chain = living()
    judge(chain, joining(chain, 5))
    required = approvals_required(chain.genesis, chain.state, ChangeKind.JOIN)
    assert required == chain.genesis.fault_model.quorum(5) == 4
    with pytest.raises(InvalidChange, match="approvals: 3 found, 4 required"):
        judge(chain, joining(chain, 5, required - 1))


def test_sponsors_are_as_many_as_the_founding_document_says() -> None:
    chain = living(admission=Admission.SPONSORS, sponsors=2)
    judge(chain, joining(chain, 5, 2))
    with pytest.raises(InvalidChange, match="approvals: 1 found, 2 required"):
        judge(chain, joining(chain, 5, 1))


def _forged_approval(chain: ChainBuilder, change: Change) -> Change:
    stolen = Approval(chain.genesis.members[0], keys(2)[1].sign(change.approval_message(chain.genesis.chain_id)))
    return change.approved_by([stolen])


def _stranger_approves(chain: ChainBuilder, change: Change) -> Change:
    return change.approved(keys(8)[7], chain.genesis.chain_id)


def _approvals_of_another_change(chain: ChainBuilder, change: Change) -> Change:
    return change.approved_by(joining(chain, 6).approvals)


FORGED: list[tuple[Callable[[ChainBuilder, Change], Change], type[Exception], str]] = [
    (_forged_approval, InvalidSignature, "approval: "),
    (_stranger_approves, OutOfWindow, "approver: .* is no member"),
    (_approvals_of_another_change, InvalidSignature, "approval: "),
    (lambda chain, change: replace(change, approvals=change.approvals[::-1]), InvalidChange, "approval order"),
    (lambda chain, change: replace(change, approvals=change.approvals[:1] * 2), InvalidChange, "approval order"),
    (lambda chain, change: replace(change, text="another name"), InvalidSignature, "signature: "),
    (lambda chain, change: replace(change, until=UNTIL + 1), InvalidSignature, "signature: "),
]


@pytest.mark.parametrize(("forge", "error", "message"), FORGED, ids=range(len(FORGED)))
def test_forged_changes_are_refused(
    forge: Callable[[ChainBuilder, Change], Change], error: type[Exception], message: str
) -> None:
    chain = living()
    with pytest.raises(error, match=message):
        judge(chain, forge(chain, joining(chain, 5)))


def test_a_convicted_member_approves_of_nothing() -> None:
    chain = living()
    change = joining(chain, 5, 5)
    chain.extend(evidence=[double_vote(keys(1)[0], chain.genesis, 1, attempt=3)])
    with pytest.raises(OutOfWindow, match=r"approver: .* does not count now"):
        judge(chain, change)


def test_nobody_joins_or_is_removed_where_the_federation_is_closed() -> None:
    chain = living(admission=Admission.CLOSED, away_after=3)
    with pytest.raises(InvalidChange, match="admission: the federation is closed"):
        judge(chain, joining(chain, 5, 4))
    with pytest.raises(InvalidChange, match="approvals: 0 found"):
        judge(chain, joining(chain, 5, 0))
    judge(chain, own(chain, 1))


def test_members_of_a_version_2_document_are_the_same_for_ever() -> None:
    chain = ChainBuilder(genesis(5))
    change = sign_change(keys(2)[1], chain.genesis.chain_id, ChangeKind.LEAVE, until=UNTIL)
    with pytest.raises(InvalidChange, match="version: changes begin with version 3"):
        validate_change(chain.genesis, chain.state, change, is_valid_signature)


def test_a_member_does_not_approve_of_its_own_removal_and_the_others_can_remove_it() -> None:
    chain = living()
    removal = propose_removal(chain.genesis.members[1], "silent", sequence=0, until=UNTIL)
    with pytest.raises(InvalidChange, match="approves of its own change"):
        judge(chain, removal.approved(keys(2)[1], chain.genesis.chain_id))
    judge(chain, approved(chain, removal))


def test_a_change_is_counted_once_and_not_after_its_last_height() -> None:
    chain = living()
    change = joining(chain, 5, until=2)
    judge(chain, change)
    chain.extend(changes=[change])
    with pytest.raises(OutOfWindow, match="sequence: 0 found, 1 were counted"):
        judge(chain, change)
    chain.extend()
    with pytest.raises(OutOfWindow, match="until: height 2 is decided"):
        judge(chain, joining(chain, 6, until=2))
    judge(chain, joining(chain, 6, until=3))
    with pytest.raises(InvalidChange, match="sequence: 1 found, 0 expected"):
        judge(chain, joining(chain, 6, sequence=1))


def test_who_may_do_what() -> None:
    chain = living()
    with pytest.raises(InvalidChange, match=r"member: .* has a place already"):
        judge(chain, joining(chain, 1))
    with pytest.raises(InvalidChange, match=r"standing: .* is active, back found"):
        judge(chain, own(chain, 1, ChangeKind.BACK))
    stranger = sign_change(keys(6)[5], chain.genesis.chain_id, ChangeKind.LEAVE, until=UNTIL)
    with pytest.raises(OutOfWindow, match=r"member: .* is no member"):
        judge(chain, stranger)
    weak = replace(joining(chain, 5), member=bytes(32))
    with pytest.raises(InvalidChange, match=r"key: .* is no key of the full group"):
        judge(chain, weak)
    with pytest.raises(InvalidChange, match="approvals: 1 found, nobody has to approve"):
        judge(chain, own(chain, 1).approved(keys(1)[0], chain.genesis.chain_id))
    chain.extend(changes=[own(chain, 1)])
    with pytest.raises(OutOfWindow, match=r"another change of .* is on its way"):
        judge(chain, own(chain, 1))
    play(chain, 3)
    with pytest.raises(InvalidChange, match=r"standing: .* is left, leave found"):
        judge(chain, own(chain, 1))
    assert chain.state.records[1].standing is Standing.LEFT
    with pytest.raises(InvalidChange, match=r"member: .* has a place already"):
        judge(chain, joining(chain, 1))


def test_a_convicted_member_does_not_change_any_more() -> None:
    chain = living()
    chain.extend(evidence=[double_vote(keys(2)[1], chain.genesis, 1, attempt=3)])
    with pytest.raises(InvalidChange, match=r"member: .* was convicted"):
        judge(chain, own(chain, 1))


def test_no_more_come_or_go_in_a_round_than_a_quarter() -> None:
    chain = living(12)
    leaving = [own(chain, number) for number in range(1, 5)]
    validate_room(chain.genesis, chain.state, leaving[:3])
    with pytest.raises(InvalidChange, match="churn: 0 members come and 4 go, at most 3 and 3"):
        validate_room(chain.genesis, chain.state, leaving)
    with pytest.raises(InvalidChange, match="changes: 2 changes of 1 members found"):
        validate_room(chain.genesis, chain.state, [leaving[0], leaving[0]])
    with pytest.raises(InvalidChange, match="changes: 17 found, at most 16 fit"):
        validate_room(chain.genesis, chain.state, leaving[:1] * (CHANGES_MAX + 1))


def test_two_blocks_of_one_round_share_the_room() -> None:
    chain = living(8, phases=genesis(4).phases * 2)
    chain.extend(changes=[own(chain, 1)])
    validate_room(chain.genesis, chain.state, [own(chain, 2)])
    with pytest.raises(InvalidChange, match="churn"):
        validate_room(chain.genesis, chain.state, [own(chain, 2), own(chain, 3)])
    chain.extend()
    validate_room(chain.genesis, chain.state, [own(chain, 2), own(chain, 3)])


def test_four_members_stay() -> None:
    chain = living(5)
    chain.extend(changes=[own(chain, 1)])
    play(chain, 1)
    with pytest.raises(InvalidChange, match="churn: 0 members come and 1 go, at most 1 and 0"):
        validate_room(chain.genesis, chain.state, [own(chain, 2)])


@pytest.mark.parametrize("broken", ["too few approvals", "wrong order", "too many", "another body"])
def test_a_block_with_a_change_that_does_not_hold_is_refused(broken: str) -> None:
    chain = living(8)
    good = sorted([own(chain, 1), own(chain, 2)], key=lambda change: change.hash)
    block = chain.extend(changes=good)
    changes: dict[str, Any] = {
        "too few approvals": {"changes": [joining(chain, 8, 2)]},
        "wrong order": {"changes": good[::-1]},
        "too many": {"changes": sorted([*good, own(chain, 3)], key=lambda change: change.hash)},
        "another body": {"changes": good[:1], "changes_root": block.header.changes_root},
    }
    before = chain.states[block.header.parent_hash]
    judge_block(chain.genesis, before, block, None, is_valid_signature)
    error = InvalidSignature if broken == "another body" else InvalidBlock
    with pytest.raises(error, match="changes root" if broken == "another body" else "change order|body: "):
        judge_block(chain.genesis, before, chain.remake(block, **changes[broken]), None, is_valid_signature)


def test_a_key_is_one_members() -> None:
    """Two founders' keys never are the same, nor a newcomer's and a member's that left."""
    chain, key = living(), PrivateKey(bytes(31) + b"\x07")
    change = sign_change(key, chain.genesis.chain_id, ChangeKind.JOIN, until=UNTIL)
    chain.extend(changes=[approved(chain, change)])
    with pytest.raises(OutOfWindow, match="sequence"):
        judge(chain, approved(chain, change))
