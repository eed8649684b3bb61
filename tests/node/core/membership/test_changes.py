"""Changes of the membership at a node: proposals and approvals spread, blocks count them, and none is left out."""

from fedchain.chain.block import Block
from fedchain.chain.membership.change import Change, sign_rekey
from fedchain.crypto.address import address
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import CandidateMessage, ChangeMessage, FinalMessage
from fedchain.node.core.effects import Effect, Refuse, Send, Stop
from fedchain.node.core.events import ChangeSubmitted, Tick
from fedchain.node.core.membership.change_pool import REPEAT_MS
from tests.support.chain.builders import keys
from tests.support.chain.changes import UNTIL, approved, joining, living_genesis, own
from tests.support.node.stage import Stage, asked_to_mine, published, refused, sent


def living_stage(count: int = 5) -> Stage:
    return Stage(living_genesis(count, omission_slack_ms=500))


def gossiped(effects: list[Effect]) -> list[Change]:
    return [message.change for message in published(effects, ChangeMessage)]


def test_an_operator_s_approval_is_signed_and_told_to_everybody() -> None:
    stage = living_stage()
    change = joining(stage.chain, 5, 0)
    (told,) = gossiped(stage.handle(ChangeSubmitted(change, approves=True)))
    assert [approval.approver for approval in told.approvals] == [stage.me]
    assert stage.node.open_changes() == (told,)
    assert dict(stage.node.sizes())["changes"] == 1


def test_an_operator_s_approval_is_told_with_those_that_are_known() -> None:
    stage = living_stage()
    change = joining(stage.chain, 5, 0)
    stage.receive(ChangeMessage(change.approved(keys(2)[1], stage.genesis.chain_id)))
    (told,) = gossiped(stage.handle(ChangeSubmitted(change, approves=True)))
    assert {approval.approver for approval in told.approvals} == {stage.me, keys(2)[1].public_key}


def test_a_change_that_nobody_may_make_is_refused_to_its_operator() -> None:
    stage = living_stage()
    stranger = own(stage.chain, 1, sequence=3)
    (effect,) = [item for item in stage.handle(ChangeSubmitted(stranger, approves=False)) if isinstance(item, Refuse)]
    assert effect.peer == stage.me
    assert "sequence: 3 found, 0 expected" in str(effect.error)
    assert stage.node.open_changes() == ()


def test_a_silent_node_approves_of_nothing() -> None:
    stage = Stage(living_genesis(), is_heard=False)
    assert stage.node.is_silent()
    effects = stage.handle(ChangeSubmitted(joining(stage.chain, 5, 0), approves=True))
    assert gossiped(effects) == []


def test_approvals_from_several_sides_come_together() -> None:
    stage = living_stage()
    change = joining(stage.chain, 5, 0)
    one, two = (change.approved(keys(5)[number], stage.genesis.chain_id) for number in (1, 2))
    assert refused(stage.receive(ChangeMessage(one))) == []
    assert refused(stage.receive(ChangeMessage(two))) == []
    assert refused(stage.receive(ChangeMessage(one))) == ["AlreadyKnown"]
    (held,) = stage.node.open_changes()
    assert {item.approver for item in held.approvals} == {key.public_key for key in keys(3)[1:]}


def test_forged_and_endless_approvals_are_refused_and_nothing_stays() -> None:
    stage = living_stage()
    change = joining(stage.chain, 5, 0)
    assert refused(stage.receive(ChangeMessage(change.approved(keys(9)[8], stage.genesis.chain_id)))) == ["OutOfWindow"]
    many = change.approved_by(joining(stage.chain, 5, 5).approvals)
    for number in range(5, 8):
        many = many.approved(keys(8)[number], stage.genesis.chain_id)
    assert refused(stage.receive(ChangeMessage(many))) == ["InvalidChange"]
    assert refused(stage.receive(ChangeMessage(change))) == ["LimitReached"]
    assert stage.node.open_changes() == ()


def test_our_block_counts_what_is_complete_even_if_it_was_being_mined() -> None:
    stage = living_stage()
    effects = stage.post(*stage.others_posts())
    change = own(stage.chain, 1)
    effects += stage.receive(ChangeMessage(change))
    (message,) = published(stage.mine(effects), CandidateMessage)
    assert message.block.changes == (change,)
    stage.adopt(message.block)
    stage.final(message.block)
    assert stage.node.head.records[1].is_changing
    assert stage.node.open_changes() == ()


def test_mining_goes_on_until_a_candidate_counts_the_change_too() -> None:
    stage = living_stage()
    change = own(stage.chain, 1)
    stage.receive(ChangeMessage(change))
    (mine,) = asked_to_mine(stage.post(*stage.others_posts()))
    stage.candidate(stage.block())
    assert stage.node.is_mining(mine.header)
    stage.candidate(stage.block(changes=[change]))
    assert not stage.node.is_mining(mine.header)


def test_a_change_that_a_candidate_counts_is_open_here_also_after_a_restart() -> None:
    """The others may have the block, and its member the next key: a node that has forgotten that lets it in nowhere."""
    stage = living_stage()
    stage.post(*stage.others_posts())
    change = sign_rekey(keys(2)[1], keys(9)[8], stage.genesis.chain_id, sequence=0, until=UNTIL)
    stage.candidate(stage.block(changes=[change]))
    assert stage.node.open_changes() == (change,)
    stage.restart()
    assert stage.node.open_changes() == (change,)


def test_a_change_that_is_held_with_more_approvals_stays_as_it_is_when_a_candidate_counts_it() -> None:
    stage = living_stage()
    stage.post(*stage.others_posts())
    change = approved(stage.chain, joining(stage.chain, 5, 0), 5)
    stage.receive(ChangeMessage(change))
    stage.candidate(stage.block(changes=[approved(stage.chain, joining(stage.chain, 5, 0), 4)]))
    assert stage.node.open_changes() == (change,)


def omission(held_s: float = 4 * REPEAT_MS / 1_000 + 1.0) -> tuple[Stage, Block]:
    """A node that has held a change for so long, and a block that came then and leaves it out."""
    stage = living_stage()
    stage.post(*stage.others_posts())
    stage.receive(ChangeMessage(own(stage.chain, 1)))
    stage.tick(held_s)
    block = stage.block()
    stage.candidate(block)
    return stage, block


def test_a_block_that_leaves_a_change_out_gets_no_vote_until_that_is_forgiven() -> None:
    stage, _ = omission()
    assert stage.node.voting.preferred() is None
    with_it = stage.block(changes=[own(stage.chain, 1)])
    stage.candidate(with_it)
    assert stage.node.voting.preferred() == with_it.hash


def test_a_change_that_one_member_alone_was_shown_holds_up_nobody() -> None:
    stage, block = omission(4 * REPEAT_MS / 1_000)
    assert stage.node.voting.preferred() == block.hash, "this node may not have sent it to each of four others yet"


def test_a_change_that_came_with_the_block_is_no_reason_to_refuse_it() -> None:
    stage = living_stage()
    stage.post(*stage.others_posts())
    block = stage.block()
    stage.candidate(block)
    stage.receive(ChangeMessage(own(stage.chain, 1)))
    assert stage.node.voting.preferred() == block.hash


def test_an_omission_is_forgiven_in_the_end() -> None:
    stage, block = omission()
    stage.wait(120.0)
    assert stage.node.voting.preferred() == block.hash


def test_lost_gossip_is_repaired_by_sending_what_is_open_to_one_peer_after_the_other() -> None:
    stage = living_stage()
    change = approved(stage.chain, joining(stage.chain, 5, 0), 2)
    stage.receive(ChangeMessage(change))
    asked = list[PublicKey]()
    for _ in range(4):
        effects = stage.tick(REPEAT_MS / 1000)
        assert [message.change for message in sent(effects, ChangeMessage)] == [change]
        asked += [item.peer for item in effects if isinstance(item, Send) and isinstance(item.message, ChangeMessage)]
        assert sent(stage.tick(1), ChangeMessage) == [], "not at every tick"
    assert set(asked) == {*stage.others}


def test_a_node_stops_when_its_key_was_replaced() -> None:
    stage = living_stage()
    change = sign_rekey(keys(1)[0], keys(9)[8], stage.genesis.chain_id, sequence=0, until=UNTIL)
    block = stage.chain.extend(changes=[change])
    effects = stage.receive(FinalMessage(block, stage.chain.certificate(block)))
    (stop,) = [effect.reason for effect in effects if isinstance(effect, Stop)]
    reason = f"this key was replaced by {address(keys(9)[8].public_key)}, as of height 1: start the node with that key"
    assert stop == reason
    stage.victim.node = stage.victim.new_node()  # started again all the same
    assert reason in [effect.reason for effect in stage.handle(Tick()) if isinstance(effect, Stop)]


def test_a_node_stops_whose_chain_says_that_its_key_was_replaced_long_ago() -> None:
    """Its operator put back an old copy of the key. The others let it in no more, and have nothing to tell it."""
    stage = living_stage()
    block = stage.chain.extend(
        changes=[sign_rekey(keys(1)[0], keys(9)[8], stage.genesis.chain_id, sequence=0, until=UNTIL)]
    )
    stage.receive(FinalMessage(block, stage.chain.certificate(block)))
    while stage.node.head.roster.successors:
        block = stage.chain.extend(miner=keys(2)[1])
        stage.receive(FinalMessage(block, stage.chain.certificate(block)))
    stage.victim.node = stage.victim.new_node()
    (stop,) = [effect.reason for effect in stage.handle(Tick()) if isinstance(effect, Stop)]
    assert f"this key was replaced by {address(keys(9)[8].public_key)}" in stop
