"""Lies to a peer that catches up: far heads that nobody has, blocks that are not final, bodies of foreign headers."""

from dataclasses import replace
from typing import Any

import pytest

from fedchain.chain.block import Block
from fedchain.chain.genesis import Genesis
from fedchain.chain.membership.change import CHANGES_MAX
from fedchain.chain.state import State
from fedchain.chain.storage.store import Final
from fedchain.chain.transition import judge_final
from fedchain.crypto import signature_memory
from fedchain.crypto.keys import PublicKey, is_valid_signature
from fedchain.crypto.signatures import Signed
from fedchain.network.messages import (
    FINALS_MAX,
    Chunk,
    FinalMessage,
    GetContent,
    GetFinal,
    GetPayloads,
    Payloads,
    Status,
)
from fedchain.network.source import STALL_MS
from fedchain.network.sync import AT_ONCE
from fedchain.node.core import block_import
from fedchain.node.core.checks import Checks
from fedchain.node.core.effects import Compute, Effect, Persist, Refuse, Send
from fedchain.node.core.events import Computed, MessageReceived, Moment, PeersConnected, PeersDisconnected
from fedchain.node.core.following import finals_ahead
from fedchain.node.core.following.joining import SPARE, WAITING_MAX
from fedchain.node.core.jobs import Recompute, Verified, VerifySignatures
from fedchain.node.core.node import Node
from fedchain.node.core.notices import Contradicted
from fedchain.node.core.parts import Conduct
from tests.support.chain.builders import CREATED_MS, SumRules, double_vote, genesis, keys
from tests.support.chain.changes import joining, living_genesis
from tests.support.node.stage import PRECOMMIT, PREVOTE, Stage, blamed, refused, sent

FAR = 20
HOG, HONEST = 1, 2
"""Places among the others."""

REQUIRED = 4
"""Members that must have a head where three of twelve may lie."""


def _chain(stage: Stage, height: int = FAR) -> list[Block]:
    """Blocks by the others alone; the builder goes on from them."""
    blocks: list[Block] = []
    for _ in range(height):
        certificate = stage.certificate(blocks[-1]) if blocks else None
        contributors = stage.chain.state.roster.contributors
        posts = stage.chain.posts(members=[other for other in stage.others if other in contributors])
        blocks.append(stage.chain.extend(posts=posts, certificate=certificate, miner=stage.chain.key(stage.others[0])))
    return blocks


def _claim(stage: Stage, place: int, block: Block) -> list[Effect]:
    status = stage.status(height=block.header.height, head_hash=block.hash)
    return stage.receive(status, stage.others[place])


def _hand_out(stage: Stage, place: int, block: Block) -> list[Effect]:
    return stage.receive(FinalMessage(block, stage.certificate(block)), stage.others[place])


def _send_state(stage: Stage, place: int, block: Block) -> list[Effect]:
    before = stage.chain.states[block.header.parent_hash]
    return stage.receive(Chunk(before.root, 0, before.encode()), stage.others[place])


def _invented(stage: Stage, block: Block, number: int) -> Block:
    """A head that nobody has, on a state that nobody knows."""
    return stage.chain.remake(block, state_root=number.to_bytes(32, "big"), height=10**6 + number)


# --- joining


def test_a_far_head_that_nobody_was_asked_for_is_not_kept() -> None:
    stage = Stage(genesis(4))
    block = _chain(stage)[-1]
    effects = _hand_out(stage, HOG, block)
    assert (refused(effects), sent(effects, GetContent)) == (["OutOfWindow"], [])


def test_who_invents_far_heads_without_end_takes_only_its_own_place() -> None:
    stage = Stage(genesis(7))
    blocks = _chain(stage)
    _claim(stage, HOG, _invented(stage, blocks[-1], 1_000))
    _claim(stage, HONEST, blocks[-1])
    _hand_out(stage, HONEST, blocks[-1])
    for number in range(2 * WAITING_MAX):
        fake = _invented(stage, blocks[-1], number)
        stage.receive(FinalMessage(fake, stage.certificate(blocks[-1])), stage.others[HOG])
    _send_state(stage, HONEST, blocks[-1])
    assert stage.node.head.block_hash == blocks[-1].hash


def test_a_state_that_does_not_belong_to_its_head_moves_nothing_and_its_source_is_to_blame() -> None:
    stage = Stage(genesis(4))
    blocks = _chain(stage)
    other = stage.chain.states[blocks[3].hash]
    forged = stage.chain.remake(blocks[-1], state_root=other.root)
    _claim(stage, HOG, blocks[-1])
    _hand_out(stage, HOG, forged)
    effects = stage.receive(Chunk(other.root, 0, other.encode()), stage.others[HOG])
    assert stage.node.head.height == 0
    assert [member for member, _ in blamed(effects)] == [stage.others[HOG]]


def test_where_voters_are_drawn_whoever_claims_a_far_head_is_asked_for_it_once() -> None:
    stage = Stage(genesis(12, committee_size=4))
    last = _chain(stage)[-1]
    question = GetFinal(last.header.height, 1)
    effects = [effect for place in range(REQUIRED) for effect in _claim(stage, place, last)]
    assert _asked(effects) == [(peer, GetFinal(1, FINALS_MAX)) for peer in stage.others[:AT_ONCE]], (
        "fewer than four spoke"
    )
    effects = stage.tick(STALL_MS / 1_000)
    assert _asked(effects) == [(peer, question) for peer in stage.others[AT_ONCE:REQUIRED]]
    effects = _hand_out(stage, REQUIRED - 1, last)
    asked = [peer for peer, _ in _asked(effects)]
    assert asked == stage.others[: REQUIRED - 1], "the others do not say that they have it"
    late = (0, 1, 7, 7)
    effects = [effect for place in late for effect in _claim(stage, place, last)]
    asked = [effect.peer for effect in effects if isinstance(effect, Send) and effect.message == question]
    assert asked == [stage.others[7]]


def test_members_that_have_a_head_with_different_certificates_confirm_it_together() -> None:
    stage = Stage(genesis(12, committee_size=4))
    last = _chain(stage)[-1]
    electors = stage.chain.states[last.header.parent_hash].roster.electors
    for place in range(REQUIRED):
        _claim(stage, place, last)
    stage.tick(STALL_MS / 1_000)
    for place, elector in zip((3, 0, 1, 2), sorted(electors), strict=True):
        assert stage.node.head.height == 0
        certificate = stage.chain.certificate(last, sorted(electors - {elector}))
        stage.receive(FinalMessage(last, certificate), stage.others[place])
        _send_state(stage, place, last)
    assert stage.node.head.block_hash == last.hash


def test_those_that_do_not_answer_are_no_reason_to_wait_for_a_head() -> None:
    stage = Stage(genesis(12, committee_size=4))
    last = _chain(stage)[-1]
    question = GetFinal(last.header.height, 1)
    for place in range(11):
        _claim(stage, place, last)
    place = stage.others.index(_asked(stage.tick(STALL_MS / 1_000))[0][0])
    asked = [effect.peer for effect in _hand_out(stage, place, last) if isinstance(effect, Send)]
    assert len(asked) == 1 + REQUIRED - 1 + SPARE, "one for the state"
    stage.tick(STALL_MS / 2_000)
    effects = stage.tick(STALL_MS / 2_000)
    then = [effect.peer for effect in effects if isinstance(effect, Send) and effect.message == question]
    left = [peer for peer in stage.others if peer not in asked]
    assert len({*then} & {*left}) >= REQUIRED - 1 + SPARE, "for each that has not answered"
    _send_state(stage, place, last)
    for peer in left[: REQUIRED - 1]:
        assert stage.node.head.height == 0
        stage.receive(FinalMessage(last, stage.certificate(last)), peer)
    assert stage.node.head.block_hash == last.hash


def test_certificates_of_too_few_are_no_head() -> None:
    stage = Stage(genesis(4))
    blocks = _chain(stage)
    _claim(stage, HOG, blocks[-1])
    few = stage.chain.certificate(blocks[-1], stage.others[:1])
    effects = stage.receive(FinalMessage(blocks[-1], few), stage.others[HOG])
    assert (refused(effects), sent(effects, GetContent)) == (["InvalidCertificate"], []), "it binds nothing"


def test_certificates_of_more_than_may_lie_and_of_no_quorum_are_no_head() -> None:
    stage = Stage(genesis(4))
    blocks = _chain(stage)
    _claim(stage, HOG, blocks[-1])
    few = stage.chain.certificate(blocks[-1], stage.others[:2])
    effects = stage.receive(FinalMessage(blocks[-1], few), stage.others[HOG])
    assert (refused(effects), len(sent(effects, GetContent))) == ([], 1), "an honest member signed it"
    effects = _send_state(stage, HOG, blocks[-1])
    assert stage.node.head.height == 0
    assert blamed(effects) == [(stage.others[HOG], "InvalidCertificate")]


# --- following


def test_blocks_that_come_in_disorder_are_followed() -> None:
    stage = Stage(genesis(4))
    blocks = _chain(stage, height=4)
    _claim(stage, HONEST, blocks[-1])
    for block in (blocks[2], blocks[1], blocks[3]):
        assert (refused(_hand_out(stage, HONEST, block)), stage.node.head.height) == ([], 0)
    _hand_out(stage, HONEST, blocks[0])
    assert stage.node.head.block_hash == blocks[-1].hash


def test_a_block_ahead_that_is_not_final_holds_up_nobody() -> None:
    stage = Stage(genesis(4))
    blocks = _chain(stage, height=3)
    for place in (HOG, HONEST):
        _claim(stage, place, blocks[-1])
    forged = stage.chain.remake(blocks[1], knowledge_root=bytes(32))
    few = stage.chain.certificate(forged, stage.others[:1])
    stage.receive(FinalMessage(forged, few), stage.others[HOG])
    _hand_out(stage, HONEST, blocks[1])
    effects = _hand_out(stage, HONEST, blocks[0])
    refusals = [(effect.peer, type(effect.error).__name__) for effect in effects if isinstance(effect, Refuse)]
    assert refusals == [(stage.others[HOG], "InvalidCertificate")]
    assert stage.node.head.block_hash == blocks[1].hash


def test_a_block_ahead_that_nobody_was_asked_for_is_not_kept() -> None:
    stage = Stage(genesis(4))
    blocks = _chain(stage, height=3)
    assert refused(_hand_out(stage, HOG, blocks[1])) == ["OutOfWindow"]
    _hand_out(stage, HONEST, blocks[0])
    assert stage.node.head.block_hash == blocks[0].hash


def test_a_block_ahead_that_no_federation_could_make_is_not_kept() -> None:
    for number in range(3):
        stage = Stage(genesis(4))
        blocks = _chain(stage, height=3)
        _claim(stage, HOG, blocks[-1])
        certificate, parent = stage.certificate(blocks[1]), blocks[1].certificate
        assert parent is not None
        huge, votes = (
            (replace(blocks[1], transactions=blocks[1].transactions * 2), certificate),
            (blocks[1], replace(certificate, votes=certificate.votes * 3)),
            (replace(blocks[1], certificate=replace(parent, votes=parent.votes * 3)), certificate),
        )[number]
        assert refused(stage.receive(FinalMessage(huge, votes), stage.others[HOG])) == ["InvalidBlock"]
        assert not any(stage.node._parts.catching_up._ahead._kept.values())


@pytest.mark.parametrize("count", [CHANGES_MAX + 1, 1])
def test_a_block_ahead_with_more_changes_or_approvals_than_members_make_is_not_kept(count: int) -> None:
    stage = Stage(living_genesis(4))
    blocks = _chain(stage, height=3)
    _claim(stage, HOG, blocks[-1])
    change = joining(stage.chain, 5)
    if count == 1:
        known = 4 + CHANGES_MAX  # the block between may have let members join
        approvals = (replace(change.approvals[0], approver=key.public_key) for key in keys(known + 1))
        change = replace(change, approvals=tuple(approvals))
    huge = replace(blocks[1], changes=(change,) * count)
    assert refused(stage.receive(FinalMessage(huge, stage.certificate(blocks[1])), stage.others[HOG])) == [
        "InvalidBlock"
    ]
    assert not any(stage.node._parts.catching_up._ahead._kept.values())


def test_who_is_behind_is_told_at_once_and_once_a_second() -> None:
    stage = Stage(genesis(4))
    stage.accept(2)
    behind = stage.status(height=0, head_hash=stage.genesis.chain_id)
    answers = [effect for _ in range(3) for effect in stage.receive(behind, stage.others[HOG])]
    assert [effect.peer for effect in answers if isinstance(effect, Send)] == [stage.others[HOG]]
    assert [status.height for status in sent(answers, Status)] == [2]
    assert sent(stage.receive(stage.status(height=1), stage.others[HONEST]), Status) == [], "a vote later it is here"
    stage.tick(1)
    assert len(sent(stage.receive(behind, stage.others[HOG]), Status)) == 1


def _claim_all(stage: Stage, block: Block, *places: int) -> list[PublicKey]:
    """Members claim a height, and those are asked for it that come first."""
    asked = [peer for place in places for peer, _ in _asked(_claim(stage, place, block))]
    assert asked == [stage.others[place] for place in places[:AT_ONCE]]
    return [stage.others[place] for place in places]


def test_who_sends_what_is_refused_makes_way_at_once() -> None:
    stage = Stage(genesis(7))
    blocks = _chain(stage)
    liar, _, third = _claim_all(stage, blocks[-1], HOG, HONEST, 4)
    junk = FinalMessage(replace(blocks[-1], signature=bytes(64)), stage.certificate(blocks[-1]))
    assert _asked(stage.receive(junk, liar)) == [(third, GetFinal(FAR, 1))]


def test_who_handed_out_what_is_refused_in_its_turn_makes_way() -> None:
    stage = Stage(genesis(7))
    blocks = _chain(stage, height=4)
    liar, _, third = _claim_all(stage, blocks[-1], HOG, HONEST, 4)
    fake = stage.chain.remake(blocks[1], knowledge_root=bytes(32))
    stage.receive(FinalMessage(fake, stage.certificate(blocks[1])), liar)
    assert refused(stage.final(blocks[0])) == ["InvalidCertificate"], "of the one above it"
    assert [peer for peer, _ in _asked(stage.tick(1))] == [third]


@pytest.mark.parametrize("is_copy", [True, False])
@pytest.mark.parametrize("is_late", [True, False])
def test_whose_copy_came_second_has_delivered_and_whose_fake_did_has_not(is_copy: bool, is_late: bool) -> None:
    stage = Stage(genesis(7))
    blocks = _chain(stage, height=8)
    first, second = _claim_all(stage, blocks[-1], HONEST, HOG)
    fake = stage.chain.remake(blocks[1], knowledge_root=bytes(32))
    copy = FinalMessage(blocks[1] if is_copy else fake, stage.certificate(blocks[1]))
    for message, peer in (
        (FinalMessage(blocks[1], stage.certificate(blocks[1])), first),
        *([] if is_late else [(copy, second)]),
        (FinalMessage(blocks[0], stage.certificate(blocks[0])), first),
        *([(copy, second)] if is_late else []),
    ):
        stage.receive(message, peer)
    assert stage.node.head.height == 2
    stage.handle(PeersDisconnected((first,)))
    asked = [peer for peer, _ in _asked(stage.tick(STALL_MS / 1_000))]
    assert asked == ([second] if is_copy else []), "whoever did not deliver is passed over"


# --- replaying


def _replaying() -> tuple[Stage, list[Block]]:
    stage = Stage(genesis(4), replays=True)
    return stage, _chain(stage, 4)


def _payloads(stage: Stage, block: Block) -> tuple[bytes, ...]:
    return tuple(stage.chain.contents[post.payload_hash] for post in block.transactions)


def _send_payloads(stage: Stage, block: Block, peer: PublicKey) -> list[Effect]:
    return stage.receive(Payloads(block.header.height, _payloads(stage, block)), peer)


def test_who_replays_passes_over_a_block_that_is_not_final() -> None:
    stage, blocks = _replaying()
    fake = stage.chain.remake(blocks[0], transactions=blocks[0].transactions[:2])
    for place in (HOG, HONEST):
        _claim(stage, place, blocks[-1])
    lie = FinalMessage(fake, stage.certificate(blocks[0]))
    effects = stage.receive(lie, stage.others[HOG])
    effects += _hand_out(stage, HONEST, blocks[0])
    assert refused(effects) == ["InvalidCertificate"]
    for peer in stage.others:
        _send_payloads(stage, blocks[0], peer)
    assert stage.node.head.block_hash == blocks[0].hash


def test_who_replays_follows_what_it_cannot_recompute_and_votes_no_more() -> None:
    stage, blocks = _replaying()
    wrong = stage.chain.remake(blocks[0], knowledge_root=b"!" * 32)
    _claim(stage, HONEST, blocks[-1])
    _hand_out(stage, HONEST, wrong)
    for peer in stage.others:
        _send_payloads(stage, wrong, peer)
    assert stage.node.head.block_hash == wrong.hash
    assert [type(notice) for notice in stage.victim.notices if isinstance(notice, Contradicted)] == [Contradicted]
    assert stage.node.is_silent()


def test_who_replays_keeps_no_block_that_it_did_not_ask_for_or_that_no_federation_could_make() -> None:
    stage, blocks = _replaying()
    assert refused(_hand_out(stage, HOG, blocks[0])) == ["OutOfWindow"]
    _claim(stage, HOG, blocks[-1])
    huge = replace(blocks[0], transactions=blocks[0].transactions * 2)
    effects = stage.receive(FinalMessage(huge, stage.certificate(blocks[0])), stage.others[HOG])
    assert (refused(effects), sent(effects, GetContent)) == (["InvalidBlock"], [])


def test_who_replays_judges_a_block_once_however_many_payloads_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, blocks = _replaying()
    judged: list[Block] = []

    def counted(genesis: Genesis, state: State, block: Block, *proof: Any) -> State:
        judged.append(block)
        return judge_final(genesis, state, block, *proof)

    for module in (block_import, finals_ahead):
        monkeypatch.setattr(module, "judge_final", counted)
    _claim(stage, HONEST, blocks[-1])
    _hand_out(stage, HONEST, blocks[0])
    assert judged == blocks[:1]
    _send_payloads(stage, blocks[0], stage.others[HONEST])
    assert stage.node.head.block_hash == blocks[0].hash
    assert judged == blocks[:1] * 2, "once when it came, and once when it became the head"


def _read_ahead(stage: Stage, blocks: list[Block]) -> list[VerifySignatures]:
    """Hand out final blocks with their payloads, and let the shell take its time; what it is to verify."""
    _claim(stage, HONEST, blocks[-1])
    node, moment, peer = stage.node, Moment(stage.now_ms - CREATED_MS, stage.now_ms), stage.others[HONEST]
    effects: list[Effect] = []
    for block in blocks:
        effects += node.handle(MessageReceived(peer, FinalMessage(block, stage.certificate(block))), moment)
    assert node.head.height == 0
    return [item.job for item in effects if isinstance(item, Compute) and isinstance(item.job, VerifySignatures)]


def test_signatures_of_blocks_that_are_replayed_are_verified_before_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, blocks = _replaying()
    jobs = _read_ahead(stage, blocks)
    assert [job.block_hash for job in jobs] == [block.hash for block in blocks]
    asked = [signed for job in jobs for signed in job.signed]
    assert len(asked) == len(set(asked)), "the votes for a block stand in the next one, too"
    assert all(is_valid_signature(*signed) for signed in asked)
    monkeypatch.setattr(signature_memory, "is_valid_signature", None)
    for job in jobs[::-1]:  # whatever comes first
        stage.handle(Computed(job, Verified(len(job.signed))))
    for block in blocks:
        _send_payloads(stage, block, stage.others[HONEST])
    assert stage.node.head.block_hash == blocks[-1].hash


def test_a_signature_counts_as_verified_only_if_the_shell_said_so_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, blocks = _replaying()
    jobs = _read_ahead(stage, blocks)
    looked_at: list[Signed] = []

    def verify(*signed: bytes) -> bool:
        looked_at.append((signed[0], signed[1], signed[2]))
        return is_valid_signature(*signed)

    monkeypatch.setattr(signature_memory, "is_valid_signature", verify)
    for job, count in zip(jobs, (0, 1, 2, 3), strict=True):
        stage.handle(Computed(job, Verified(count)))
    for block in blocks:
        _send_payloads(stage, block, stage.others[HONEST])
    assert stage.node.head.block_hash == blocks[-1].hash
    assert set(looked_at) == {signed for count, job in enumerate(jobs) for signed in job.signed[count:]}


def test_a_forged_signature_is_refused_whoever_looked_at_it() -> None:
    stage, blocks = _replaying()
    forged = replace(blocks[0], signature=bytes(64))
    _claim(stage, HOG, blocks[-1])
    _claim(stage, HONEST, blocks[-1])
    effects = _hand_out(stage, HOG, forged)
    (job,) = [item.job for item in effects if isinstance(item, Compute) and isinstance(item.job, VerifySignatures)]
    assert refused(effects) == ["InvalidSignature"]
    assert forged.signature in {signature for _, signature, _ in job.signed}
    assert refused(_hand_out(stage, HONEST, blocks[0])) == []
    _send_payloads(stage, blocks[0], stage.others[HONEST])
    assert stage.node.head.block_hash == blocks[0].hash


@pytest.mark.parametrize("is_slow", [False, True])
def test_who_replays_leaves_to_its_shell_what_takes_long(is_slow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SumRules, "is_slow_to_check", lambda *_: is_slow)
    stage, blocks = _replaying()
    _claim(stage, HONEST, blocks[-1])
    for block in blocks:
        _hand_out(stage, HONEST, block)
    effects = [effect for block in blocks[::-1] for effect in _send_payloads(stage, block, stage.others[HONEST])]
    jobs = [effect.job for effect in effects if isinstance(effect, Compute)]
    replayed = [job.transactions for job in jobs if isinstance(job, Recompute) and job.transactions]
    assert [posts for posts in replayed if posts[0].round < stage.node.head.round] == (
        [block.transactions for block in blocks] if is_slow else []
    )
    assert stage.node.head.block_hash == blocks[-1].hash
    assert not stage.node.is_silent()


def test_payloads_that_do_not_come_at_once_are_fetched_one_by_one() -> None:
    stage, blocks = _replaying()
    _claim(stage, HONEST, blocks[-1])
    effects = _hand_out(stage, HONEST, blocks[0])
    assert (sent(effects, GetPayloads), sent(effects, GetContent)) == ([GetPayloads(1)], [])
    first, *rest = blocks[0].transactions
    short = Payloads(1, (b"something else", stage.chain.contents[first.payload_hash]))
    assert sent(stage.receive(short, stage.others[HOG]), GetContent) == [], "nobody asked it"
    effects = stage.receive(short, stage.others[HONEST])
    assert sent(effects, GetContent) == [GetContent(post.payload_hash, 0) for post in rest]
    for post in rest:
        stage.receive(Chunk(post.payload_hash, 0, stage.chain.contents[post.payload_hash]), stage.others[HONEST])
    assert stage.node.head.block_hash == blocks[0].hash


def test_who_is_silent_about_payloads_does_not_hold_up_a_replay() -> None:
    stage, blocks = _replaying()
    _claim(stage, HONEST, blocks[-1])
    _hand_out(stage, HONEST, blocks[0])
    assert sent(stage.tick(STALL_MS // 2_000), GetContent) == []
    wanted = [GetContent(post.payload_hash, 0) for post in blocks[0].transactions]
    assert sent(stage.tick(STALL_MS // 1_000), GetContent) == wanted


def test_payloads_of_a_final_block_are_handed_out_together() -> None:
    stage, blocks = _replaying()
    _claim(stage, HONEST, blocks[-1])
    _hand_out(stage, HONEST, blocks[0])
    _send_payloads(stage, blocks[0], stage.others[HONEST])
    assert sent(stage.receive(GetPayloads(2)), Payloads) == [], "that block is not final here"
    assert sent(stage.receive(GetPayloads(1)), Payloads) == [Payloads(1, _payloads(stage, blocks[0]))]


def test_blocks_that_wait_for_payloads_do_not_stand_on_what_was_decided_otherwise() -> None:
    """More lie than may: the votes that came decide, and what waited stands on something else."""
    stage, blocks = _replaying()
    _claim(stage, HONEST, blocks[-1])
    for block in blocks:
        _hand_out(stage, HONEST, block)
    assert stage.node._parts.catching_up._replay.height == len(blocks)
    other = stage.block(without=stage.others[:1])
    stage.candidate(other)
    for kind in (PREVOTE, PRECOMMIT):
        stage.vote(other, stage.others, kind)
    assert stage.node.head.block_hash == other.hash
    assert stage.node._parts.catching_up._replay.height == 1
    for block in blocks:
        _send_payloads(stage, block, stage.others[HONEST])
    assert stage.node.head.block_hash == other.hash


# --- older blocks in the background


def _backfilling(height: int = FAR) -> tuple[Stage, list[Block]]:
    """A node that has joined, and wants what lies below."""
    stage = Stage(genesis(4))
    blocks, victim = _chain(stage, height), stage.victim
    victim.node = Node(
        stage.genesis,
        victim.key,
        Checks(stage.genesis, victim.rules),
        victim.store,
        conduct=Conduct(backfills=True),
        session=bytes(16),
    )
    for other in stage.others:
        stage.handle(PeersConnected((other,)))
    stage.hear()
    _claim(stage, HONEST, blocks[-1])
    _hand_out(stage, HONEST, blocks[-1])
    _send_state(stage, HONEST, blocks[-1])
    assert stage.node.head.block_hash == blocks[-1].hash
    return stage, blocks


def _asked(effects: list[Effect]) -> list[tuple[PublicKey, GetFinal]]:
    """The peers that are asked for final blocks, and the blocks."""
    return [
        (item.peer, item.message) for item in effects if isinstance(item, Send) and isinstance(item.message, GetFinal)
    ]


def _stored(effects: list[Effect]) -> list[Block]:
    records = (record for effect in effects if isinstance(effect, Persist) for record in effect.records)
    return [record.block for record in records if isinstance(record, Final)]


def _answer(stage: Stage, peer: PublicKey, question: GetFinal, blocks: list[Block]) -> list[Effect]:
    """Send what was asked for."""
    wanted = blocks[question.height - 1 : question.height - 1 + question.count]
    return [effect for block in wanted for effect in stage.receive(FinalMessage(block, stage.certificate(block)), peer)]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_an_older_block_that_is_none_is_refused_and_costs_one_question(number: int) -> None:
    """Invented, with another body, or with another signature: it would be handed out to others, who would blame us."""
    stage, blocks = _backfilling()
    ((liar, question),) = _asked(stage.tick(3))
    below = blocks[-2]
    forged = (
        stage.chain.remake(below, knowledge_root=bytes(32)),
        replace(below, transactions=()),
        replace(below, signature=bytes(64)),
    )[number]
    effects = _answer(stage, liar, question, [*blocks[:-2], forged, blocks[-1]])
    assert refused(effects) == ["InvalidBlock" if number == 0 else "InvalidSignature"]
    assert _stored(effects) == []
    ((honest, again),) = _asked(effects)
    assert honest != liar, "at once"
    assert again == question
    assert refused(stage.receive(FinalMessage(forged, stage.certificate(below)), liar)) == ["AlreadyKnown"]
    assert _stored(_answer(stage, honest, again, blocks)) == blocks[question.height - 1 : -1][::-1]


def test_among_liars_alone_a_backfill_asks_once_a_tick() -> None:
    stage, blocks = _backfilling()
    forged = [stage.chain.remake(block, knowledge_root=bytes(32)) for block in blocks]
    questions, asked = _asked(stage.tick(3)), 0
    while questions and asked < 9:
        ((peer, question),) = questions
        asked += 1
        questions = _asked(_answer(stage, peer, question, forged))
    assert asked == len(stage.others)
    assert len(_asked(stage.tick(1))) == 1


def test_older_blocks_are_taken_of_the_peer_that_was_asked_alone() -> None:
    stage, blocks = _backfilling()
    ((peer, question),) = _asked(stage.tick(3))
    for other in stage.others:
        if other != peer:
            forged = stage.chain.remake(blocks[-3], knowledge_root=bytes(32))
            effects = stage.receive(FinalMessage(forged, stage.certificate(blocks[-3])), other)
            assert refused(effects) == ["AlreadyKnown"]
    below = blocks[question.height - 2]
    assert refused(stage.receive(FinalMessage(below, stage.certificate(below)), peer)) == ["AlreadyKnown"], "not asked"
    assert _stored(_answer(stage, peer, question, blocks)) == blocks[question.height - 1 : -1][::-1]


def test_of_a_batch_with_a_bad_block_the_others_are_kept_and_its_sender_is_passed_over() -> None:
    stage, blocks = _backfilling(4 * FAR)
    ((liar, question),) = _asked(stage.tick(3))
    mixed = [*blocks]
    mixed[-5] = replace(blocks[-5], signature=bytes(64))
    effects = _answer(stage, liar, question, mixed)
    assert (_stored(effects), refused(effects)) == (blocks[-4:-1][::-1], ["InvalidSignature"])
    ((honest, rest),) = _asked(effects)
    assert (honest != liar, rest.height + rest.count) == (True, blocks[-5].header.height + 1)
    assert _stored(_answer(stage, honest, rest, blocks))[0] == blocks[-5]
    asked = list[PublicKey]()
    while stage.victim.store.base() > 1:
        ((peer, question),) = _asked(stage.tick(1))
        asked.append(peer)
        _answer(stage, peer, question, blocks)
    assert len(asked) >= 2
    assert liar not in asked, "as long as there are others"


def test_a_peer_that_cuts_its_answers_short_slows_no_backfill_for_long() -> None:
    stage, blocks = _backfilling()
    ((liar, question),) = _asked(stage.tick(3))
    _answer(stage, liar, replace(question, count=1), blocks)
    ((honest, smaller),) = _asked(stage.tick(STALL_MS / 1_000))
    assert (honest != liar, smaller.count) == (True, 1)
    assert len(_stored(_answer(stage, honest, smaller, blocks))) == 1
    counts, asked = list[int](), list[PublicKey]()
    while stage.victim.store.base() > 1:
        ((peer, question),) = _asked(stage.tick(1))
        counts.append(question.count)
        asked.append(peer)
        _answer(stage, peer, question, blocks)
    assert counts[:4] == [2, 4, 8, 3], "as many more as fit"
    assert liar not in asked[:2]


def test_convicted_members_confirm_no_height() -> None:
    """Two of seven are convicted. One of the five that stayed may lie, so two claims would be enough."""
    stage = Stage(living_genesis(7))
    liars = stage.others[:2]
    crimes = [double_vote(stage.chain.key(liar), stage.genesis, 1) for liar in liars]
    for evidence in (crimes, ()):
        stage.final(stage.block(evidence=evidence, miner=stage.chain.key(stage.others[2])))
    assert stage.node.head.roster.active == 5
    for liar in liars:
        stage.receive(stage.status(height=10**6, head_hash=bytes(32)), liar)
    assert stage.node.catching_up_to() == 0, "the operator would be told so for ever"
    stage.receive(stage.status(height=FAR, head_hash=bytes(32)), stage.others[2])
    assert stage.node.catching_up_to() == 0
    stage.receive(stage.status(height=FAR, head_hash=bytes(32)), stage.others[3])
    assert stage.node.catching_up_to() == FAR
    stage.restart()
    for liar in liars:
        stage.receive(stage.status(height=10**6, head_hash=bytes(32)), liar)
    assert stage.node.catching_up_to() == 0
