"""Changes of the membership: how they are written, when they are valid, and what the state makes of them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.exceptions import InvalidBlock, InvalidChange, InvalidEncoding, InvalidSignature, OutOfWindow
from fedchain.chain.genesis import Admission, AggregatorRule, Genesis
from fedchain.chain.membership import rules
from fedchain.chain.membership.change import (
    CHANGES_MAX,
    CHANGES_VERSION,
    TEXT_SIZE_MAX,
    Approval,
    Change,
    ChangeKind,
    changes_root,
    propose_removal,
    sign_change,
    sign_rekey,
)
from fedchain.chain.membership.member import Standing
from fedchain.chain.membership.rules import approvals_required, validate_approvals, validate_change, validate_room
from fedchain.chain.state import PUNCTUAL, decode_state
from fedchain.chain.transition import judge_block
from fedchain.crypto.keys import PrivateKey, is_valid_signature
from tests.support.chain.builders import GLOBAL, UPDATE, ChainBuilder, double_vote, genesis, keys
from tests.support.chain.changes import UNTIL, approved, joining, living, own, play, silent_for, standing
from tests.support.chain.states import read_anew


def judge(chain: ChainBuilder, change: Change) -> None:
    validate_change(chain.genesis, chain.state, change, is_valid_signature)
    validate_approvals(chain.genesis, chain.state, change)


# --- encoding


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
        (3, "é" * 101, "change text: 202 bytes found, at most 200 are allowed"),
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


# --- validity


def test_a_quorum_s_approval_lets_a_key_join() -> None:
    chain = living()
    judge(chain, joining(chain, 5))
    required = approvals_required(chain.genesis, chain.state, ChangeKind.JOIN)
    assert required == chain.genesis.fault_model.quorum(5) == 4
    with pytest.raises(InvalidChange, match="approvals: 3 found, 4 required"):
        judge(chain, joining(chain, 5, required - 1))


def test_a_quorum_is_one_of_those_that_were_not_convicted() -> None:
    chain = living(7)
    assert approvals_required(chain.genesis, chain.state, ChangeKind.JOIN) == 5
    chain.extend(evidence=[double_vote(keys(1)[0], chain.genesis, 1, attempt=3)])
    assert approvals_required(chain.genesis, chain.state, ChangeKind.JOIN) == chain.genesis.fault_model.quorum(6) == 4


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


@pytest.mark.parametrize("kind", [ChangeKind.LEAVE, ChangeKind.AWAY, ChangeKind.BACK])
def test_nobody_goes_or_comes_back_without_its_own_signature(kind: ChangeKind) -> None:
    chain = living(6)
    chain.extend(changes=[own(chain, 1, ChangeKind.AWAY)])
    play(chain, 1)
    change = own(chain, 1 if kind is ChangeKind.BACK else 2, kind)
    judge(chain, change)
    assert Change.from_record(change.to_record()) == change
    with pytest.raises(InvalidSignature, match="signature: "):
        judge(chain, replace(change, signature=keys(1)[0].sign(change.signing_message(chain.genesis.chain_id))))


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


# --- room


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


def test_two_blocks_of_one_round_share_the_room_of_those_that_come() -> None:
    chain = living(6, phases=genesis(4).phases * 2)
    chain.extend(changes=[own(chain, 1, ChangeKind.AWAY)])
    play(chain, 3)
    chain.extend(changes=[own(chain, 1, ChangeKind.BACK)])
    with pytest.raises(InvalidChange, match="churn: 1 members come and 0 go, at most 0 and"):
        validate_room(chain.genesis, chain.state, [joining(chain, 6)])
    chain.extend()
    validate_room(chain.genesis, chain.state, [joining(chain, 6)])


def test_one_that_is_back_takes_the_room_of_a_newcomer() -> None:
    chain = living(6)
    chain.extend(changes=[own(chain, 1, ChangeKind.AWAY)])
    play(chain, 1)
    back = own(chain, 1, ChangeKind.BACK)
    validate_room(chain.genesis, chain.state, [back])
    validate_room(chain.genesis, chain.state, [own(chain, 1), own(chain, 2)])  # one of the two does not count
    with pytest.raises(InvalidChange, match="churn: 2 members come and 0 go, at most 1 and"):
        validate_room(chain.genesis, chain.state, [back, joining(chain, 6)])


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


def test_of_more_changes_than_fit_no_signature_is_verified() -> None:
    """A liar signs thousands of its own that are valid each, and one block with them would hold up everybody."""
    chain, asked = living(8), list[bytes]()
    block = chain.extend(changes=[own(chain, 1)])

    def is_valid(signer: bytes, signature: bytes, message: bytes) -> bool:
        asked.append(signer)
        return is_valid_signature(signer, signature, message)

    before, many = chain.states[block.header.parent_hash], [own(chain, 1, sequence=0, text=f"{n}") for n in range(17)]
    judge_block(chain.genesis, before, block, None, is_valid)
    others = len(asked) - 1
    asked.clear()
    bad = chain.remake(block, changes=sorted(many, key=lambda change: change.hash))
    with pytest.raises(InvalidBlock, match="changes: 17 found, at most 16 fit"):
        judge_block(chain.genesis, before, bad, None, is_valid)
    assert len(asked) <= others


@pytest.mark.parametrize("who", ["coming", "left", "away", "a former key"])
def test_who_does_not_count_mines_no_block(who: str) -> None:
    chain = living()
    changes = {
        "coming": joining(chain, 5),
        "left": own(chain, 1),
        "away": own(chain, 1, ChangeKind.AWAY),
        "a former key": sign_rekey(keys(2)[1], keys(8)[7], chain.genesis.chain_id, sequence=0, until=UNTIL),
    }
    chain.extend(changes=[changes[who]])
    if who in ("left", "away"):
        play(chain, 1)
    before, miner = chain.state, keys(6)[5 if who == "coming" else 1]
    assert miner.public_key in before.roster.seats
    block = chain.extend(miner=miner)
    with pytest.raises(InvalidSignature, match=r"miner: .* is no active member"):
        judge_block(chain.genesis, before, block, block.header.knowledge_root, is_valid_signature)


# --- what follows


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
    assert chain.state.punctuality == bytes([PUNCTUAL]) * 6, "all begin as if they had been on time"
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
    judge(chain, back)
    chain.extend(changes=[back], certificate=chain.certificate(chain.tip, sorted(chain.state.deciders)[:4]))
    play(chain, 2)
    assert standing(chain, 2) == "active"
    assert chain.state.records[2].idle <= 1


def test_where_few_may_go_away_the_longest_silent_ones_go() -> None:
    chain = living(6, away_after=1, phases=tuple(replace(UPDATE, name=name) for name in "abc"))
    play(chain, 1)
    for silent in ([4], [4], *[[2, 4]] * 3):
        others = [member for seat, member in enumerate(chain.genesis.members) if seat not in silent]
        certificate = chain.certificate(chain.tip, sorted(set(others) - {chain.genesis.members[4]})[:4])
        chain.extend(posts=chain.posts(members=others), certificate=certificate)
    assert chain.state.records[2].idle == 3, "it was silent for as long as it takes"
    assert (standing(chain, 2), standing(chain, 4)) == ("active", "away"), "there was room for one"


def test_a_silent_member_that_is_convicted_takes_no_room_of_those_that_go_away() -> None:
    chain = living(8, away_after=2)
    others = [member for seat, member in enumerate(chain.genesis.members) if seat not in (1, 2)]
    chain.extend(posts=chain.posts(members=others))
    crime, certificate = double_vote(keys(2)[1], chain.genesis, 1), chain.certificate(chain.tip, sorted(others))
    chain.extend(posts=chain.posts(members=others), certificate=certificate, evidence=[crime])
    assert [record.idle for record in chain.state.records[1:3]] == [2, 0], "it begins anew where it goes away"
    assert (standing(chain, 1), standing(chain, 2)) == ("active", "away"), "there was room for one"


def test_a_silent_member_that_leaves_is_gone_for_good() -> None:
    chain = living(6, away_after=2)
    silent_for(chain, 1, 1)
    others = [member for member in chain.genesis.members if member != chain.genesis.members[1]]
    certificate, posts = chain.certificate(chain.tip, sorted(others)), chain.posts(members=others)
    chain.extend(posts=posts, certificate=certificate, changes=[own(chain, 1)])
    assert chain.state.records[1].idle == 2
    silent_for(chain, 1, 1)
    assert standing(chain, 1) == "left"


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


def test_whoever_is_slower_than_a_quorum_and_not_drawn_is_not_silent() -> None:
    """The same eight of twelve members are in all certificates here; the others post when they are drawn."""
    chain = living(12, away_after=2, contributors_per_round=4)
    play(chain, 12)
    voters = {vote.voter for block in chain.blocks.values() if block.certificate for vote in block.certificate.votes}
    assert len(voters) == 8
    assert [record.standing for record in chain.state.records] == [Standing.ACTIVE] * 12
    number = next(place for place, key in enumerate(chain.genesis.members) if key not in voters)
    for _ in range(20):
        silent_for(chain, number, 1)
    assert standing(chain, number) == "away", "it was drawn, and did not post"


def test_a_block_without_posts_says_nothing_of_those_that_were_to_post() -> None:
    chain = living(8, away_after=9, contributors_per_round=4)
    for _ in range(4):
        chain.extend(posts=())
    assert [record.idle for record in chain.state.records] == [0] * 8


def test_where_one_member_writes_the_chain_blocks_without_posts_show_that_it_is_silent() -> None:
    chain = living(6, away_after=2, aggregator=AggregatorRule.FIXED, centralized=True)
    chain.extend()
    for _ in range(2):
        chain.extend(posts=(), certificate=_by_others(chain, 0), miner=keys(2)[1])
    assert [record.standing.name for record in chain.state.records] == ["AWAY", *["ACTIVE"] * 5]
    assert chain.state.roster.aggregator_of(chain.state.round) == chain.genesis.members[1]


def test_a_member_that_writes_the_chain_gives_a_sign_of_life_with_each_block_that_has_posts() -> None:
    """It posts nothing itself, and others may be quicker to vote each time."""
    chain, server = living(6, away_after=2, aggregator=AggregatorRule.DEDICATED, centralized=True), 5
    chain.extend()
    for _ in range(4):
        chain.extend(posts=(), certificate=_by_others(chain, server), miner=keys(2)[1])
        assert chain.state.records[server].idle == 1
        chain.extend(certificate=_by_others(chain, server), miner=keys(6)[server])
        assert chain.state.records[server].idle == 0


def test_a_round_has_as_many_silences_as_a_member_owes_posts() -> None:
    phases = (UPDATE, replace(UPDATE, name="second"), GLOBAL)
    chain = living(6, away_after=2, phases=phases, aggregator=AggregatorRule.ROTATING)
    said = []
    for _ in range(6):
        silent_for(chain, 5, 1)
        said.append(chain.state.records[5].idle)
    assert said[:5] == [1, 2, 2, 3, 4]
    assert standing(chain, 5) == "away"


def test_nobody_joins_where_a_status_has_no_bit_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "PLACES_MAX", 9)
    chain = living(8)
    one, other = joining(chain, 8), joining(chain, 9)
    with pytest.raises(InvalidChange, match="places: 2 members join, 1 places are left"):
        validate_room(chain.genesis, chain.state, [one, other])
    chain.extend(changes=[one])
    with pytest.raises(InvalidChange, match="places: 1 members join, 0 places are left"):
        validate_room(chain.genesis, chain.state, [joining(chain, 9)])
    validate_room(chain.genesis, chain.state, [own(chain, 1)])


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
        assert read_anew(chain.genesis, chain.state) == chain.state
        play(chain, 1)
    assert read_anew(chain.genesis, chain.state).roster == chain.state.roster


def test_a_state_whose_founders_were_exchanged_is_refused() -> None:
    chain = living()
    other = ChainBuilder(replace(chain.genesis, members=(*chain.genesis.members[:4], keys(9)[8].public_key)))
    with pytest.raises(InvalidEncoding, match="founder 4 came with another key"):
        decode_state(chain.genesis, other.state.encode())


def test_a_state_whose_founders_changed_places_is_refused() -> None:
    chain = living()
    first, second, *rest = chain.genesis.members
    other = ChainBuilder(replace(chain.genesis, members=(second, first, *rest)))
    with pytest.raises(InvalidEncoding, match="founder 0 came with another key"):
        decode_state(chain.genesis, other.state.encode())


def test_a_state_in_which_two_members_came_with_one_key_is_refused() -> None:
    """Changes name their members by it."""
    chain = living()
    chain.extend(changes=[joining(chain, 5), joining(chain, 6)])
    *others, last = chain.state.records
    assert read_anew(chain.genesis, chain.state) == chain.state
    forged = replace(chain.state, records=(*others, replace(last, first=others[-1].came_with)))
    with pytest.raises(InvalidEncoding, match="members are fewer than"):
        decode_state(chain.genesis, forged.encode())


def test_the_founding_document_says_the_admission() -> None:
    document = living(admission=Admission.SPONSORS, sponsors=2, away_after=9).genesis
    assert Genesis.decode(document.encode()) == document


def test_a_key_is_one_members() -> None:
    """Two founders' keys never are the same, nor a newcomer's and a member's that left."""
    chain, key = living(), PrivateKey(bytes(31) + b"\x07")
    change = sign_change(key, chain.genesis.chain_id, ChangeKind.JOIN, until=UNTIL)
    chain.extend(changes=[approved(chain, change)])
    with pytest.raises(OutOfWindow, match="sequence"):
        judge(chain, approved(chain, change))
