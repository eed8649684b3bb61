"""Replaying: what a peer sends for a block is held as far as the block counts it."""

import pytest

from fedchain.chain.block import Block
from fedchain.chain.membership.amendment import amendment_of
from fedchain.chain.membership.change import propose_amendment, sign_rekey
from fedchain.chain.storage.store import Contents
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import (
    CHUNK_SIZE,
    CandidateMessage,
    Chunk,
    FinalMessage,
    GetContent,
    GetFinal,
    GetPayloads,
    Payloads,
)
from fedchain.node.core.checks import Checks
from fedchain.node.core.effects import Compute, Effect, Send
from fedchain.node.core.events import Computed, PeersConnected, PeersDisconnected
from fedchain.node.core.jobs import Recompute
from fedchain.node.core.notices import Contradicted
from tests.support.chain.builders import SumRules, genesis, keys
from tests.support.chain.changes import UNTIL, approved, living_genesis
from tests.support.chain.late import extend_with, late_genesis, skip
from tests.support.node.stage import Stage, sent

HEIGHT = 4


def _replaying(**options: int) -> tuple[Stage, list[Block]]:
    stage = Stage(genesis(4, **options), replays=True, contributes=False)
    blocks = stage.chain.extend_many(HEIGHT)
    _claim(stage, blocks[-1], HEIGHT)
    return stage, blocks


def _claim(stage: Stage, block: Block, height: int) -> None:
    """All others say how far they are."""
    for other in stage.others:
        stage.receive(stage.status(height=height, head_hash=block.hash), other)


def _hand_out(stage: Stage, block: Block) -> list[Effect]:
    """All others hand out a final block, whichever of them was asked."""
    message = FinalMessage(block, stage.chain.certificate(block))
    return [effect for other in stage.others for effect in stage.receive(message, other)]


def _asked(effects: list[Effect], height: int) -> list[PublicKey]:
    return [item.peer for item in effects if isinstance(item, Send) and item.message == GetPayloads(height)]


def test_payloads_that_a_block_does_not_count_are_not_held() -> None:
    stage, blocks = _replaying()
    (peer,) = _asked(_hand_out(stage, blocks[0]), 1)
    wanted = [stage.chain.contents[post.payload_hash] for post in blocks[0].transactions]
    foreign = [b"foreign %d" % number for number in range(50)]
    stage.receive(Payloads(1, tuple(foreign + wanted[:2])), peer)
    assert all(stage.node.content(sha256(data)) is None for data in foreign)
    assert all(stage.node.content(sha256(data)) == data for data in wanted[:2])


def test_payloads_are_taken_of_the_peer_that_was_asked_alone() -> None:
    stage, blocks = _replaying()
    (peer,) = _asked(_hand_out(stage, blocks[0]), 1)
    whole = Payloads(1, tuple(stage.chain.contents[post.payload_hash] for post in blocks[0].transactions))
    other = next(member for member in stage.others if member != peer)
    for message in (Payloads(1, ()), whole):
        assert sent(stage.receive(message, other), GetContent) == [], "the one that was asked owes them still"
        assert stage.node.head.height == 0
    stage.receive(whole, peer)
    assert stage.node.head.height == 1


def test_payloads_of_one_block_are_not_taken_for_those_of_the_next() -> None:
    stage, blocks = _replaying()
    (peer,) = _asked(_hand_out(stage, blocks[0]), 1)
    _hand_out(stage, blocks[1])
    whole = Payloads(1, tuple(stage.chain.contents[post.payload_hash] for post in blocks[0].transactions))
    stage.receive(whole, peer)
    assert stage.node.head.height == 1
    assert not [notice for notice in stage.victim.notices if isinstance(notice, Contradicted)]


def test_what_comes_late_of_recomputing_one_block_is_not_held_against_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that count nothing are told apart by the head that they stand on; the first was given up meanwhile."""
    monkeypatch.setattr(SumRules, "is_slow_to_check", lambda *_: True)
    stage = Stage(genesis(4, contributors_per_round=2, retention_blocks=8), replays=True, contributes=False)
    blocks = [stage.chain.extend(posts=None if number % 2 else ()) for number in (1, 2, 3, 4)]
    stage.victim.store.append([Contents(stage.chain.contents)])
    jobs = _held_back(stage, monkeypatch)

    def finish(job: Recompute) -> None:
        stage.handle(Computed(job, Checks(stage.genesis, stage.chain.rules).run(job)))

    _claim(stage, blocks[-1], HEIGHT)
    for block in blocks:
        _hand_out(stage, block)
    finish(jobs[0])
    assert (stage.node.head.height, len(jobs)) == (1, 2)
    _claim(stage, blocks[-1], 3 + 8)  # so far that others need not have the first three any more
    stage.receive(Payloads(1, ()))
    assert (stage.node.head.height, [job.transactions for job in jobs[1:]]) == (3, [(), ()])
    finish(jobs[1])
    assert stage.node.head.height == 3
    finish(jobs[2])
    assert stage.node.head.height == HEIGHT
    assert not [notice for notice in stage.victim.notices if isinstance(notice, Contradicted)]


def test_what_a_candidate_leaves_behind_is_not_held_against_the_block_that_is_final(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both stand on one head, and both are being recomputed."""
    monkeypatch.setattr(SumRules, "is_slow_to_check", lambda *_: True)
    stage = Stage(genesis(6), replays=True, contributes=False)
    block, rival = stage.block(without=[stage.me]), stage.block(without=[stage.me, stage.others[0]])
    stage.victim.store.append([Contents(stage.chain.contents)])
    jobs = _held_back(stage, monkeypatch)
    stage.receive(CandidateMessage(rival))
    _claim(stage, block, 1)
    _hand_out(stage, block)
    assert [job.transactions for job in jobs] == [rival.transactions, block.transactions]
    for job, height in zip(jobs, (0, 1), strict=True):
        stage.handle(Computed(job, Checks(stage.genesis, stage.chain.rules).run(job)))
        assert stage.node.head.height == height
    assert not [notice for notice in stage.victim.notices if isinstance(notice, Contradicted)]


def _held_back(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> list[Recompute]:
    """Aggregates that a node has asked for since, which nobody recomputes."""
    jobs, carry_out = list[Recompute](), stage.victim.carry_out

    def hold_back(effect: Effect) -> None:
        if isinstance(effect, Compute) and isinstance(effect.job, Recompute):
            jobs.append(effect.job)
        else:
            carry_out(effect)

    monkeypatch.setattr(stage.victim, "carry_out", hold_back)
    return jobs


def _with_a_late_post(retention_blocks: int) -> tuple[Stage, list[Block]]:
    """A replaying node, and three blocks of a chain of which the third counts a late post for the second's round."""
    stage = Stage(late_genesis(5, 1, retention_blocks=retention_blocks), replays=True, contributes=False)
    stage.chain.extend()
    extend_with(stage.chain, skip(stage.chain, 3))
    return stage, [*stage.chain.blocks.values()]


def _answer_all(stage: Stage, without: bytes = b"", only: bytes = b"") -> None:
    """Let some time pass, and answer each question for a content, but for one that nobody has, or for one alone."""
    stage.wait(3)
    asked = [item for item in stage.victim.effects if isinstance(item, Send) and isinstance(item.message, GetContent)]
    for peer, question in [(item.peer, item.message) for item in asked if isinstance(item.message, GetContent)]:
        if question.content_hash == only or (question.content_hash != without and not only):
            stage.receive(Chunk(question.content_hash, 0, stage.chain.contents[question.content_hash]), peer)


def test_a_block_waits_for_what_its_late_post_was_made_from() -> None:
    stage, blocks = _with_a_late_post(0)
    _claim(stage, blocks[-1], 3)
    for block in blocks[:2]:
        _hand_out(stage, block)
        _answer_all(stage)
    assert stage.node.head.height == 2
    root = blocks[0].header.knowledge_root
    del stage.victim.store._contents[root], stage.node._context.contents._held[root]
    _hand_out(stage, blocks[2])
    _answer_all(stage, without=root)
    assert stage.node.head.height == 2
    _answer_all(stage)
    assert stage.node.head.height == 3
    assert not [notice for notice in stage.victim.notices if isinstance(notice, Contradicted)]


def test_a_block_whose_late_post_was_made_from_what_others_dropped_is_taken_on_its_certificate() -> None:
    """It is young enough itself. The node said that it computes otherwise, and voted no more."""
    stage, blocks = _with_a_late_post(2)
    _claim(stage, blocks[-1], 4)
    for block in blocks:
        _hand_out(stage, block)
    _answer_all(stage, without=blocks[0].header.knowledge_root)
    assert stage.node.head.height == 3
    assert not [notice for notice in stage.victim.notices if isinstance(notice, Contradicted)]


def _refuse_all(stage: Stage, seconds: int) -> None:
    """Let time pass in which each question for a content is answered by a peer that lacks it."""
    for _ in range(seconds):
        for item in [item for item in stage.tick(1) if isinstance(item, Send)]:
            if isinstance(item.message, GetContent):
                stage.receive(Chunk(item.message.content_hash, item.message.offset, b""), item.peer)
            elif isinstance(item.message, GetPayloads):
                stage.receive(Payloads(item.message.height, ()), item.peer)


def test_a_payload_that_was_here_and_is_lost_contradicts_nothing() -> None:
    """It is fetched again. The node said that it computes otherwise, and voted no more."""
    stage, blocks = _replaying()
    _hand_out(stage, blocks[0])
    first, *rest = blocks[0].payload_hashes
    _answer_all(stage, without=rest[-1])
    del stage.node._context.contents._held[first]
    stage.victim.store._contents.pop(first, None)
    _answer_all(stage, only=rest[-1])
    assert stage.node.head.height == 0
    _answer_all(stage)
    assert stage.node.head.height == 1
    assert not [notice for notice in stage.victim.notices if isinstance(notice, Contradicted)]


def test_blocks_of_whose_contents_nobody_has_any_are_taken_on_their_certificates_in_the_end() -> None:
    """As after an amendment by which all keep less: the node, which lacks it, stood still for ever."""
    stage, blocks = _replaying()
    for block in blocks:
        _hand_out(stage, block)
    _refuse_all(stage, 590)
    assert stage.node.head.height == 0
    _refuse_all(stage, 20)
    assert stage.node.head.height == HEIGHT
    assert not [notice for notice in stage.victim.notices if isinstance(notice, Contradicted)]


def test_a_block_of_whose_contents_some_come_is_waited_for() -> None:
    stage, blocks = _replaying()
    for block in blocks:
        _hand_out(stage, block)
    for post in blocks[0].transactions:
        _refuse_all(stage, 590)
        assert stage.node.head.height == 0
        _answer_all(stage, only=post.payload_hash)
    assert stage.node.head.height == 1
    _refuse_all(stage, 590)
    assert stage.node.head.height == 1, "what was recomputed shows that they are there"


def _with_one_given_up() -> tuple[Stage, list[Block]]:
    """A node that has taken the first block on its certificate alone."""
    stage, blocks = _replaying()
    _hand_out(stage, blocks[0])
    _refuse_all(stage, 610)
    assert stage.node.head.height == 1
    return stage, blocks


def test_behind_a_block_that_was_given_up_one_of_whose_contents_some_come_is_waited_for() -> None:
    stage, blocks = _with_one_given_up()
    _hand_out(stage, blocks[1])
    _answer_all(stage, only=blocks[1].payload_hashes[0])
    _refuse_all(stage, 60)
    assert stage.node.head.height == 1


def test_behind_a_block_that_was_given_up_nobody_may_have_what_it_left_behind() -> None:
    stage, blocks = _with_one_given_up()
    _hand_out(stage, blocks[1])
    _answer_all(stage, without=blocks[0].header.knowledge_root)
    assert stage.node.head.height == 1
    _refuse_all(stage, 10)
    assert stage.node.head.height == 2


def test_once_contents_come_again_those_of_the_next_block_are_waited_for_as_before() -> None:
    stage, blocks = _with_one_given_up()
    _hand_out(stage, blocks[1])
    _answer_all(stage)
    assert stage.node.head.height == 2
    _hand_out(stage, blocks[2])
    _refuse_all(stage, 60)
    assert stage.node.head.height == 2


def _trickle(stage: Stage, roots: set[Hash], goal: int) -> int:
    """Let time pass until a height is reached: nobody has any content, but one peer says it has the beginning of what
    blocks left behind. Returns how many minutes it took."""
    begun_ms, liar = stage.now_ms, stage.others[1]
    while stage.node.head.height < goal and stage.now_ms < begun_ms + 8 * 3_600_000:
        for item in [item for item in stage.tick(1) if isinstance(item, Send)]:
            if isinstance(item.message, GetContent):
                lies = item.peer == liar and item.message.content_hash in roots and not item.message.offset
                data = bytes(CHUNK_SIZE) if lies else b""
                stage.receive(Chunk(item.message.content_hash, item.message.offset, data), item.peer)
            elif isinstance(item.message, GetPayloads):
                stage.receive(Payloads(item.message.height, ()), item.peer)
    return (stage.now_ms - begun_ms) // 60_000


def test_a_liar_that_sends_the_beginning_of_a_content_again_and_again_keeps_no_replaying_node_for_ever() -> None:
    """Each of its beginnings counted as something that came, and the node waited ten minutes from there."""
    stage, blocks = _with_one_given_up()
    roots = {block.header.knowledge_root for block in blocks}
    _hand_out(stage, blocks[1])
    assert 10 <= _trickle(stage, roots, 2) <= 11, "it may be somebody with a slow link"
    for block in blocks[2:]:
        _hand_out(stage, block)
    assert _trickle(stage, roots, HEIGHT) == 0, "what came before was worth nothing"


def test_a_content_that_comes_slowly_is_waited_for() -> None:
    """A chunk of 256 KiB in eight seconds is enough."""
    stage, blocks = _with_one_given_up()
    root, liar = blocks[0].header.knowledge_root, stage.others[1]
    _hand_out(stage, blocks[1])
    _answer_all(stage, without=root)
    begun_ms, question = stage.now_ms, GetContent(root, 0)
    while stage.now_ms < begun_ms + 1_400_000:
        for item in [item for item in stage.tick(1) if isinstance(item, Send)]:
            if isinstance(item.message, GetContent) and item.peer == liar:
                question = item.message
            elif isinstance(item.message, GetContent):
                stage.receive(Chunk(item.message.content_hash, item.message.offset, b""), item.peer)
        if (stage.now_ms - begun_ms) % 7_000 == 1_000:
            stage.receive(Chunk(root, question.offset, bytes(CHUNK_SIZE)), liar)
    assert stage.node.head.height == 1
    assert question.offset > 100 * CHUNK_SIZE


def test_where_too_few_are_connected_no_block_is_given_up() -> None:
    stage, blocks = _replaying()
    _hand_out(stage, blocks[0])
    stage.handle(PeersDisconnected(tuple(stage.others[1:])))
    _refuse_all(stage, 620)
    assert stage.node.head.height == 0


def test_what_an_amendment_lets_all_drop_is_waited_for_no_longer_than_until_it_begins() -> None:
    stage = Stage(living_genesis(4), replays=True, contributes=False)
    amendment = propose_amendment(amendment_of({"retention_blocks": 2}), "", sequence=0, until=UNTIL)
    blocks = [stage.chain.extend(changes=[approved(stage.chain, amendment)]), *stage.chain.extend_many(HEIGHT - 1)]
    _claim(stage, blocks[-1], HEIGHT + 2)
    for block in blocks:
        _hand_out(stage, block)
    for block in blocks[:2]:
        assert stage.node.head.height == block.header.height - 1
        for content in block.payload_hashes:
            _answer_all(stage, only=content)
    assert stage.node.head.height == HEIGHT, "nobody has to have the contents of the other blocks"


def test_a_newcomer_that_knows_few_of_those_that_count_now_gives_up_what_they_dropped() -> None:
    """It confirms no height: the founders, whose claims alone count at the beginning of the chain, have left."""
    stage = Stage(living_genesis(4, retention_blocks=1), replays=True, contributes=False)
    blocks = stage.chain.extend_many(HEIGHT)
    stage.handle(PeersDisconnected(tuple(stage.others[1:])))
    newcomers = [key.public_key for key in keys(8)[4:]]
    stage.handle(PeersConnected(tuple(newcomers)))
    for peer in (stage.others[0], *newcomers):
        stage.receive(stage.status(height=HEIGHT, head_hash=blocks[-1].hash), peer)
    for block in blocks:
        for peer in newcomers:
            stage.receive(FinalMessage(block, stage.chain.certificate(block)), peer)
    _refuse_all(stage, 610)
    assert stage.node.head.height == HEIGHT


def test_a_block_is_taken_of_a_member_whose_next_key_it_names() -> None:
    """It may be the only one that has the block, and goes on with that key as soon as it does."""
    stage = Stage(living_genesis(5), replays=True, contributes=False)
    member, key = keys(2)[1], keys(9)[8]
    change = sign_rekey(member, key, stage.genesis.chain_id, sequence=0, until=UNTIL)
    block = stage.chain.extend(changes=[change])
    stage.handle(PeersDisconnected((member.public_key,)))
    stage.handle(PeersConnected((key.public_key,)))
    effects = stage.receive(stage.status(height=1, head_hash=block.hash), key.public_key)
    assert [item.peer for item in effects if isinstance(item, Send) and isinstance(item.message, GetFinal)] == [
        key.public_key
    ]
    stage.receive(FinalMessage(block, stage.chain.certificate(block)), key.public_key)
    _answer_all(stage)
    assert stage.node.head.block_hash == block.hash
