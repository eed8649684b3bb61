"""The desk: each question of an operator has one plain answer, and nothing is asked for twice."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fedchain.chain.exceptions import Refused
from fedchain.chain.genesis import Admission, AggregatorRule, Contributor, PhaseRule
from fedchain.chain.membership.amendment import amendment_of
from fedchain.chain.membership.change import (
    Change,
    ChangeKind,
    propose_amendment,
    propose_recovery,
    propose_removal,
    sign_rekey,
)
from fedchain.chain.membership.member import Standing
from fedchain.crypto.address import address
from fedchain.crypto.durable import write_file
from fedchain.crypto.exceptions import KeyFileError
from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.network.messages import ChangeMessage, Status
from fedchain.node.config import NodeConfigError
from fedchain.node.core.effects import Refuse
from fedchain.node.core.events import ChangeSubmitted
from fedchain.node.founding.task import learning_to_genesis
from fedchain.node.membership.account import account_lines
from fedchain.node.membership.desk import HEIGHTS_VALID, Desk
from fedchain.node.membership.invitation import Invitation, read_invitation
from tests.support.chain.builders import double_vote, keys
from tests.support.chain.changes import UNTIL, approved, joining, living_genesis, own
from tests.support.learning.encrypted_game import task
from tests.support.node.inviting import NEWCOMER, Host
from tests.support.node.stage import Stage

LEARNING = (("clients", "9"), ("method", '"fedavg"'))
"""A task whose method lets its step size change."""


class Nobody:
    """Invites nobody, and is asked by nobody."""

    def invite(self, name: str, lost: tuple[PublicKey, int] | None = None) -> Invitation:
        raise NodeConfigError(f"{name} is not invited")

    def waiting(self) -> tuple[Change, ...]:
        return ()


class Office(Stage):
    """A node on a stage, as its operator's desk sees it."""

    def submit(self, change: Change, *, approves: bool) -> Refused | None:
        found = [item for item in self.handle(ChangeSubmitted(change, approves)) if isinstance(item, Refuse)]
        return found[0].error if found else None

    def ask(self, name: str, **words: str) -> str:
        answer = Desk(self, self.chain.key(self.me), Nobody()).answer({"ask": name, **words})
        assert answer is not None
        return str(answer["said"])

    def refusal(self, name: str, **words: str) -> str:
        with pytest.raises(NodeConfigError) as caught:
            self.ask(name, **words)
        return str(caught.value)

    def request(self, number: int = 5, approvers: int = 1, **fields: Any) -> Change:
        """A newcomer's request, of which some others approve."""
        change = joining(self.chain, number, 0, **fields)
        for key in [key for key in keys(5) if key.public_key != self.me][:approvers]:
            change = change.approved(key, self.genesis.chain_id)
        self.receive(ChangeMessage(change))
        return change


def office(*, is_heard: bool = True, **fields: Any) -> Office:
    return Office(living_genesis(5, **{"learning": LEARNING} | fields), is_heard=is_heard)


def test_a_request_is_approved_by_name_number_of_approvals_and_who_is_left_are_said() -> None:
    it = office()
    change = it.request()
    said = it.ask("approve", which="peer 5")
    others = [number for number, key in enumerate(keys(5)) if key.public_key != it.me]
    mine = it.chain.state.roster.seats[it.me]
    both = ", ".join(f"peer {number}" for number in sorted([mine, others[0]]))
    left = ", ".join(f"peer {number}" for number in others[1:])
    who = f"peer 5 ({address(keys(6)[5].public_key)})"
    assert said == (
        f"approved, join {change.hash.hex()[:8]} of {who}: 2 of 4 approve ({both}); not yet: {left}; it takes 2 more "
        f"approvals; each of the others says: fedchain node approve FOLDER {change.hash.hex()[:8]}"
    )
    assert it.ask("approve", which=change.hash.hex()[:6]).startswith("it was approved of here before, join ")
    (held,) = it.node.open_changes()
    assert len(held.approvals) == 2


def test_the_last_approval_says_from_when_on_the_newcomer_counts() -> None:
    it = office()
    it.request(approvers=3)
    said = it.ask("approve", which=address(keys(6)[5].public_key))
    assert said.endswith("; the next block can count it; from round 3 on the member counts")
    assert "not yet" not in said


def test_a_name_that_fits_nothing_or_two_is_answered_with_the_choices() -> None:
    it = office()
    assert it.refusal("approve", which="clinic").startswith("nothing waits for approval; ")
    asked = [it.request(number, text="clinic") for number in (5, 6)]
    choices = [f"{change.hash.hex()[:8]} (join clinic ({address(change.member)}))" for change in asked]
    said = it.refusal("approve", which="clinic")
    assert said == "2 changes are called 'clinic'; these wait for approval, choose by hash: " + ", ".join(choices)
    amendment = propose_amendment(amendment_of({"away_after": 9}), "", sequence=0, until=9)
    voucher = next(key for key in keys(5) if key.public_key != it.me)
    it.receive(ChangeMessage(amendment.approved(voucher, it.genesis.chain_id)))
    said = it.refusal("approve", which="")
    assert said.startswith("nothing that waits is called ''; these wait for approval, choose by hash: ")
    assert f"{amendment.hash.hex()[:8]} (amend parameters (away_after 9, two rounds later))" in said


def test_a_liar_s_change_is_not_called_by_its_reason() -> None:
    it = office()
    liar, victim = [key for key in keys(5) if key.public_key != it.me][:2]
    values, until = amendment_of({"admission": "sponsors", "sponsors": 1}), HEIGHTS_VALID
    for change in (
        propose_amendment(values, "clinic", sequence=0, until=until),
        propose_removal(victim.public_key, "clinic", sequence=0, until=until),
        propose_recovery(victim.public_key, keys(6)[5], it.genesis.chain_id, "clinic", sequence=0, until=until),
    ):
        it.receive(ChangeMessage(change.approved(liar, it.genesis.chain_id)))
    assert len(it.node.open_changes()) == 3
    assert it.refusal("approve", which="clinic").startswith("nothing that waits is called 'clinic'; ")


def test_the_first_removal_of_a_member_is_the_one_that_the_others_approve() -> None:
    it = office()
    number = next(place for place, key in enumerate(keys(5)) if key.public_key != it.me)
    said = it.ask("remove", member=str(number), reason="its data are not its own")
    assert said.startswith("approved, remove ")
    again = it.ask("remove", member=address(keys(5)[number].public_key), reason="another reason")
    assert again.startswith("it was approved of here before, remove ")
    (change,) = it.node.open_changes()
    assert (change.text, change.until) == ("its data are not its own", HEIGHTS_VALID)


def test_a_removal_names_a_member_by_the_key_with_which_it_came() -> None:
    it = office()
    number, key = next((place, key) for place, key in enumerate(keys(5)) if key.public_key != it.me)
    following = keys(9)[8]
    block = it.block(changes=[sign_rekey(key, following, it.genesis.chain_id, sequence=0, until=UNTIL)])
    it.candidate(block)
    it.final(block)
    said = it.ask("remove", member=address(following.public_key), reason="its data are not its own")
    assert f" of peer {number}: " in said
    assert said.count(f"peer {number}") == 1, "it is not asked about itself"
    (change,) = it.node.open_changes()
    assert (change.member, change.sequence) == (key.public_key, 0)
    for which in (str(number), address(following.public_key)):
        assert it.ask("approve", which=which).startswith("it was approved of here before, remove ")


def test_wrong_removals_are_refused_in_words() -> None:
    it = office()
    mine = str(it.chain.state.roster.seats[it.me])
    leave = "nobody approves of its own removal; a member leaves with: fedchain node leave FOLDER"
    assert it.refusal("remove", member=mine, reason="tired") == leave
    assert it.refusal("remove", member="9", reason="it").startswith("9 is no member: name one by number, 0 to 4")
    assert it.refusal("remove", member=5_000 * "9", reason="it").startswith(f"{5_000 * '9'} is no member: ")
    for reason in (" ", "x" * 201):
        said = "a reason has 1 to 200 printable bytes, not blanks alone"
        assert it.refusal("remove", member="0", reason=reason) == said
    assert it.node.open_changes() == ()
    proposed = propose_removal(it.me, "it lies", sequence=0, until=UNTIL)
    voucher = next(key for key in keys(5) if key.public_key != it.me)
    it.receive(ChangeMessage(proposed.approved(voucher, it.genesis.chain_id)))
    assert it.refusal("approve", which=proposed.hash.hex()[:8]) == leave


def test_nobody_is_removed_whose_share_of_the_decryption_key_is_needed() -> None:
    sums = task("FedPh", decryption_threshold=4, contributors_min=5)
    it = Office(living_genesis(5, learning=learning_to_genesis(sums)))
    assert "approved, remove" in it.ask("remove", member="3", reason="gone")
    block = it.block(changes=[own(it.chain, 4, ChangeKind.AWAY)])
    it.candidate(block)
    it.final(block)
    it.accept(2)
    assert it.node.head.records[4].standing is Standing.AWAY
    refused = it.refusal("remove", member="2", reason="gone")
    assert "without it 3 members that count have one, and 4 together open a sum" in refused
    assert "approved, remove" in it.ask("remove", member="4", reason="gone")
    proposal = propose_removal(it.genesis.members[1], "gone", sequence=0, until=UNTIL)
    it.receive(ChangeMessage(proposal.approved(it.chain.key(it.genesis.members[2]), it.genesis.chain_id)))
    assert "peer 1 has a share" in it.refusal("approve", which="1")


def test_a_member_leaves_once() -> None:
    it = office()
    said = it.ask("leave")
    assert said == "the next block can count it; from round 3 on the member counts no more; let the node run until then"
    assert it.ask("leave").startswith("it was asked for before: ")
    assert [change.kind for change in it.node.open_changes()] == [ChangeKind.LEAVE]
    assert it.refusal("back").startswith("one change of a member at a time: it was asked before that this one leaves, ")
    it.final(it.adopt(it.block(changes=it.node.open_changes())))
    coming = "a change of this member is on its way already: from round 3 on it takes no part any more"
    assert it.refusal("leave") == coming


def test_of_four_members_nobody_leaves_at_once() -> None:
    it = Office(living_genesis(4))
    assert it.ask("leave").startswith("it waits until another member comes: 4 count, and at least 4 stay")
    assert "from round 3 on the member counts no more" in Office(living_genesis(5)).ask("leave")


def test_of_five_members_nobody_leaves_with_another_one() -> None:
    it = Office(living_genesis(5))
    block = it.block(changes=[own(it.chain, 4)])
    it.candidate(block)
    it.final(block)
    assert "waits until another member comes: 5 count, 1 of them on the way out, and at least 4 stay" in it.ask("leave")


def test_a_convicted_member_is_told_so_and_no_key_is_made_for_it() -> None:
    it = office()
    it.final(it.block(evidence=[double_vote(it.chain.key(it.me), it.genesis, 1)]))
    desk = Desk(it, it.chain.key(it.me), Nobody(), lambda: pytest.fail("a key was made"))
    for name in ("leave", "away", "rekey", "back"):
        with pytest.raises(NodeConfigError, match=r"^this member was convicted: it takes no part any more$"):
            desk.answer({"ask": name})


def test_nobody_is_removed_that_takes_no_part_any_more() -> None:
    it = office()
    culprit, leaver = it.others[-1], next(place for place in range(5) if it.genesis.members[place] == it.others[-2])
    crime = double_vote(it.chain.key(culprit), it.genesis, 1)
    it.final(it.block(changes=[own(it.chain, leaver)], evidence=[crime]))
    number = it.chain.state.roster.seats[culprit]
    said = f"peer {number} was convicted: it takes no part any more"
    assert it.refusal("remove", member=str(number), reason="it lies") == said
    for _ in range(2):
        it.final(it.block(without=[it.me]))
    assert it.node.head.records[leaver].standing is Standing.LEFT
    said = f"peer {leaver} left: it takes no part any more"
    assert it.refusal("remove", member=str(leaver), reason="it is gone") == said


def test_nothing_is_asked_for_behind_the_last_round() -> None:
    """An invitation that nobody can use was handed out, and a key made that nothing would let in."""
    it = Office(living_genesis(5, rounds=1))
    it.accept(1)
    assert it.node.head.finished
    desk = Desk(it, it.chain.key(it.me), Nobody())
    for question in ({"ask": "invite", "name": "clinic"}, {"ask": "rekey"}, {"ask": "leave"}):
        with pytest.raises(NodeConfigError, match="the last round is closed, and no block counts a change any more"):
            desk.answer(question)


@pytest.mark.parametrize("question", [("approve", {"which": "x"}), ("remove", {"member": "0", "reason": "x"})])
def test_who_has_no_say_is_told_why(question: tuple[str, dict[str, str]]) -> None:
    name, words = question
    closed = office(admission=Admission.CLOSED, away_after=3)
    assert closed.refusal(name, **words) == "this federation is closed: nobody joins or is removed"
    silent = Office(living_genesis(5), is_heard=False)
    assert "this node signs nothing yet" in silent.refusal(name, **words)
    contradicted = office()
    contradicted.node._parts.blocks.is_contradicted = True
    assert contradicted.refusal(name, **words).startswith("a quorum disagrees with what this node computes")
    old = Office(living_genesis(5, version=2, admission=Admission.CLOSED))
    assert "the same for ever" in old.refusal(name, **words)
    assert "the same for ever" in old.refusal("leave")


def test_the_desk_leaves_other_questions_to_others() -> None:
    it = office()
    desk = Desk(it, it.chain.key(it.me), Nobody())
    assert desk.answer({"ask": "status"}) is None
    assert desk.answer({"ask": "approve", "which": 3}) is None


def test_another_key_is_asked_for_once_and_both_keys_sign() -> None:
    it, made = office(), list[PrivateKey]()

    def make() -> PrivateKey:
        made.append(PrivateKey(bytes(range(32))))
        return made[-1]

    desk = Desk(it, it.chain.key(it.me), Nobody(), make)
    answer = desk.answer({"ask": "rekey"})
    assert answer is not None
    said = str(answer["said"])
    assert said.startswith(f"{address(made[0].public_key)} is the member's next key; the next block can count it")
    assert said.endswith("; let the node run until then: it goes on with that key by itself")
    again = desk.answer({"ask": "rekey"})
    assert again is not None
    assert str(again["said"]).startswith("it was asked for before: ")
    assert len(made) == 1
    (change,) = it.node.open_changes()
    assert (change.kind, change.key) == (ChangeKind.REKEY, made[0].public_key)


def test_another_key_waits_for_no_change_that_waits_for_others() -> None:
    """Four members stay: one that had asked to leave could not replace a stolen key for 10,000 blocks."""
    it = Office(living_genesis(4))
    assert it.ask("leave").startswith("it waits until another member comes")
    desk = Desk(it, it.chain.key(it.me), Nobody(), lambda: PrivateKey(bytes(range(32))))
    answer = desk.answer({"ask": "rekey"})
    assert answer is not None
    assert "is the member's next key; the next block can count it" in str(answer["said"])
    assert [change.kind for change in it.node.open_changes()] == [ChangeKind.REKEY]
    assert it.refusal("leave").startswith("one change of a member at a time: ")


def test_a_key_that_cannot_be_made_is_an_answer() -> None:
    """On a full disk the question ended the node, with a traceback."""
    it = office()

    def make() -> PrivateKey:
        raise KeyFileError("key.pem.next cannot be written: No space left on device")

    with pytest.raises(NodeConfigError, match=r"key\.pem\.next cannot be written: No space left on device"):
        Desk(it, it.chain.key(it.me), Nobody(), make).answer({"ask": "rekey"})
    assert it.node.open_changes() == ()


def amend(desk: Desk, *values: str) -> str:
    """The desk's answer to an operator that proposes values."""
    answer = desk.answer({"ask": "amend", "values": [*values]})
    assert answer is not None
    return str(answer["said"])


@pytest.mark.parametrize("admission", [Admission.QUORUM, Admission.CLOSED])
def test_parameters_are_amended_by_a_quorum_also_in_a_closed_federation(admission: Admission) -> None:
    it = office(admission=admission, away_after=3, learning=LEARNING)
    desk = Desk(it, it.chain.key(it.me), Nobody())
    ask = partial(amend, desk)

    assert "of parameters (away_after 5, phase_timeout_ms 9000, two rounds later): 1 of 4 approve" in ask(
        "away_after=5", "phase_timeout_ms=9000"
    )
    assert ask("phase_timeout_ms=9000", "away_after=5").startswith("it was approved of here before, amend ")
    (change,) = it.node.open_changes()
    assert it.ask("approve", which=change.hash.hex()[:8]).startswith("it was approved of here before, amend ")
    with pytest.raises(NodeConfigError, match="members cannot be amended, these can: admission, "):
        ask("members=3")
    with pytest.raises(NodeConfigError, match="away_after is -1, it must be a whole number of 0 or more"):
        ask("away_after=-1")
    with pytest.raises(NodeConfigError, match="away_after is given more than once"):
        ask("away_after=5", "rounds=9", "away_after=6")
    with pytest.raises(NodeConfigError, match=r"^'rounds' is not of the form NAME=VALUE"):
        ask("rounds")
    for same in (["away_after=3"], ["phase_timeout_ms=60000", "away_after=3"]):
        with pytest.raises(NodeConfigError, match="nothing would change: away_after is 3"):
            ask(*same)
    assert "1 of 4 approve" in ask("away_after=3", "phase_timeout_ms=9001")
    with pytest.raises(NodeConfigError, match="amendment: "):
        ask("phase_timeout_ms=0")


def test_of_two_amendments_that_are_open_each_answer_says_that_one_alone_will_hold() -> None:
    """Operators were told from which round on the values of both hold, and those of the second never did."""
    it = office(away_after=3, learning=LEARNING)
    desk = Desk(it, it.chain.key(it.me), Nobody())
    assert "also open" not in amend(desk, "away_after=5")
    (first,) = it.node.open_changes()
    assert amend(desk, "phase_timeout_ms=9000").endswith(
        f"; also open: {first.hash.hex()[:8]}; the amendment that is counted first ends all others"
    )
    assert it.ask("approve", which=first.hash.hex()[:8]).endswith("the amendment that is counted first ends all others")
    it.ask("leave")
    assert "also open" not in it.ask("leave")


def test_the_role_of_the_aggregator_is_handed_to_a_member_by_number_or_address() -> None:
    phases = (PhaseRule("update", Contributor.PARTICIPANT), PhaseRule("global", Contributor.AGGREGATOR))
    it = office(learning=LEARNING, phases=phases, aggregator=AggregatorRule.FIXED)
    desk = Desk(it, it.chain.key(it.me), Nobody())
    assert "1 of 4 approve" in amend(desk, f"aggregator={address(it.genesis.members[3])}")
    assert amend(desk, "aggregator = 3").startswith("it was approved of here before")
    (change,) = it.node.open_changes()
    assert change.amendment is not None
    assert change.amendment.values == (("aggregator", 3),)
    with pytest.raises(NodeConfigError, match="5 is no member: name one by number, 0 to 4, or by address"):
        amend(desk, "aggregator=5")


def test_the_role_of_the_aggregator_is_not_handed_to_a_member_that_is_away() -> None:
    """All approved, and were told from which round on it holds; then the member was passed over without a word."""
    phases = (PhaseRule("update", Contributor.PARTICIPANT), PhaseRule("global", Contributor.AGGREGATOR))
    it = office(learning=LEARNING, phases=phases, aggregator=AggregatorRule.FIXED)
    desk = Desk(it, it.chain.key(it.me), Nobody())
    proposed = propose_amendment(amendment_of({"aggregator": 3}), "", sequence=0, until=UNTIL)
    proposed = proposed.approved(it.chain.key(it.genesis.members[1]), it.genesis.chain_id)
    it.receive(ChangeMessage(proposed))
    block = it.block(changes=[own(it.chain, 3, ChangeKind.AWAY)])
    it.candidate(block)
    it.final(block)
    said = "peer 3 is away, and would be passed over as the aggregator: it has to be back before"
    with pytest.raises(NodeConfigError, match=said):
        amend(desk, "aggregator=3")
    assert said in it.refusal("approve", which=proposed.hash.hex()[:8])
    assert "1 of 4 approve" in amend(desk, "aggregator=2")


def test_a_step_size_is_amended_and_nothing_that_the_method_cannot_take_is_approved_of() -> None:
    it = office(learning=LEARNING)
    desk = Desk(it, it.chain.key(it.me), Nobody())
    ask = partial(amend, desk)

    assert "two rounds later): 1 of 4 approve" in ask("learning_rate=0.05", "committee_size=4")
    (change,) = it.node.open_changes()
    assert change.amendment is not None
    assert change.amendment.values == (("committee_size", 4), ("hyperparameters.learning_rate", "0.05"))
    assert (desk.answer({"ask": "changes"}) or {}).items() <= (desk.answer({"ask": "members"}) or {}).items()
    (line,) = [line for line in account_lines(desk.answer({"ask": "members"}) or {}) if change.hash.hex()[:8] in line]
    assert "(committee_size 4, learning_rate 0.05, two rounds later)" in line
    with pytest.raises(NodeConfigError, match="local_steps cannot be amended, these can: admission, "):
        ask("local_steps=3")
    with pytest.raises(NodeConfigError, match="learning_rate must lie in"):
        ask("learning_rate=-1")
    voucher = next(key for key in keys(5) if key.public_key != it.me)
    for name, text in (("local_steps", "3"), ("learning_rate", "nan"), ("learning_rate", '"fast"')):
        other = propose_amendment(amendment_of({f"hyperparameters.{name}": text}), "x", sequence=0, until=9)
        it.receive(ChangeMessage(other.approved(voucher, it.genesis.chain_id)))
        with pytest.raises(NodeConfigError, match=name):
            it.ask("approve", which=other.hash.hex())


def test_a_member_goes_away_by_its_own_word() -> None:
    it = office()
    assert it.refusal("back") == "this member is active, and not away"
    assert it.ask("away").endswith("the member counts no more; let the node run until then")
    assert [change.kind for change in it.node.open_changes()] == [ChangeKind.AWAY]
    it.final(it.adopt(it.block(changes=it.node.open_changes())))
    coming = "a change of this member is on its way already: from round 3 on it is away"
    assert [it.refusal(name) for name in ("away", "leave", "back")] == [coming] * 3
    it.accept(2)
    assert it.refusal("away") == "this member is away already, until: fedchain node back FOLDER"
    silent = "this member does not count now, so it approves of nothing"
    assert it.refusal("remove", member="0", reason="it lies") == silent


def test_a_node_that_is_behind_does_not_promise_that_its_member_counts() -> None:
    it = office(is_heard=False)
    later = ", at height 0; others may be further: ask again once this node has caught up"
    assert it.refusal("back") == f"this member is active, and not away{later}"
    it.hear()
    assert it.refusal("back") == "this member is active, and not away"
    for other in it.others:
        it.receive(Status(9, it.genesis.chain_id, b"", (), (), None), other)
    assert it.node.catching_up_to() == 9
    assert it.refusal("back") == f"this member is active, and not away{later}"


def test_a_lost_key_is_replaced_on_an_invitation_and_by_the_others_approval(tmp_path: Path) -> None:
    desks = [(host, Desk(host, keys(n + 1)[n], host.requests)) for n in (0, 1) for host in [Host(tmp_path / str(n), n)]]
    (alice, hers), (carol, desk) = desks

    def ask(desk: Desk, **asked: Any) -> dict[str, Any]:
        answer = desk.answer(asked)
        assert answer is not None
        return answer

    (tmp_path / "0").mkdir()
    answer = ask(hers, ask="recover", member="2", name="bob")
    assert answer["said"].startswith(
        "the first key that asks on it is approved of here, as peer 2 from the next height on"
    )
    assert "it takes 3 more approvals" in answer["said"]
    write_file(tmp_path / "it", bytes.fromhex(answer["invitation"]))
    assert alice.knock(read_invitation(tmp_path / "it"))[1] == "the inviter approves"
    (change,) = alice.node.open_changes()
    carol.receive(ChangeMessage(change))
    new = address(NEWCOMER.public_key)
    said = ask(desk, ask="approve", which=new)["said"]
    assert said.startswith(f"approved, recover {change.hash.hex()[:8]} of peer 2, which gets {new}: 2 of 4 approve (")
    shown = list(account_lines(ask(desk, ask="members")))[-1]
    assert shown.startswith(f"{change.hash.hex()[:8]}  peer 2 gets another key in place of a lost one, {new} (bob): 2")


def test_wrong_recoveries_are_refused_in_words(tmp_path: Path) -> None:
    host = Host(tmp_path)
    desk = Desk(host, keys(1)[0], host.requests)
    with pytest.raises(NodeConfigError, match="nobody approves of its own recovery"):
        desk.answer({"ask": "recover", "member": "0", "name": "me"})
    with pytest.raises(NodeConfigError, match="7 is no member"):
        desk.answer({"ask": "recover", "member": "7", "name": "it"})
    removal = propose_removal(host.genesis.members[1], "silent", sequence=0, until=HEIGHTS_VALID)
    host.final(host.adopt(host.chain.extend(changes=[approved(host.chain, removal)])))
    with pytest.raises(NodeConfigError, match="peer 1 was convicted, or is gone for good"):
        desk.answer({"ask": "recover", "member": "1", "name": "bob"})
