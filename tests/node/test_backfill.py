"""Older blocks that are fetched after joining hang together, whatever peers hand out."""

import pytest

from fedchain.chain.block import Block
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import Chunk, FinalMessage, GetFinal
from fedchain.node.core.effects import Effect, Send
from fedchain.node.core.events import PeerConnected
from tests.chain.builders import genesis
from tests.node.stage import Stage

HEIGHT = 20


def _joined() -> tuple[Stage, list[Block]]:
    """A node that stands at the newest block of a chain, has none below it, and wants them all."""
    stage = Stage(genesis(4))
    members = [member for member in stage.chain.state.contributors if member != stage.me]
    miner, blocks = stage.chain.key(stage.others[0]), list[Block]()
    for _ in range(HEIGHT):
        certificate = stage.certificate(blocks[-1]) if blocks else None
        blocks.append(
            stage.chain.extend(posts=stage.chain.posts(members=members), certificate=certificate, miner=miner)
        )
    victim = stage.victim
    victim.node = victim.new_node()
    victim.node._catching_up._backfill._is_wanted = True
    for other in stage.others:
        stage.handle(PeerConnected(other))
    head = blocks[-1]
    before = stage.chain.states[head.header.parent_hash]
    for other in stage.others:
        stage.receive(stage.status(height=HEIGHT, head_hash=head.hash), other)
        stage.receive(FinalMessage(head, stage.certificate(head)), other)
        stage.receive(Chunk(before.root, 0, before.encode()), other)
    assert stage.node.head.block_hash == head.hash
    assert stage.victim.store.base() == HEIGHT
    return stage, blocks


def _asked(effects: list[Effect], height: int) -> list[PublicKey]:
    """Peers that are asked for blocks of which one has this height."""
    questions = ((item.peer, item.message) for item in effects if isinstance(item, Send))
    return [
        peer
        for peer, question in questions
        if isinstance(question, GetFinal) and question.height <= height < question.height + question.count
    ]


def _next_asked(stage: Stage, height: int) -> PublicKey:
    """The peer that is asked next for the block of a height."""
    for _ in range(60):
        if asked := _asked(stage.tick(1), height):
            return asked[-1]
    raise AssertionError(f"nobody is asked for height {height}")


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_block_that_the_one_above_does_not_name_is_not_stored(number: int) -> None:
    """It is signed, it is mined, and its certificate is the true one's: only its parenthood is not so."""
    stage, blocks = _joined()
    below = blocks[-2]
    invented = (
        stage.chain.remake(below, knowledge_root=b"!" * 32),
        stage.chain.remake(below, transactions=below.transactions[1:]),
        stage.chain.remake(below, key=stage.victim.key),
    )[number]
    assert invented.header.height == HEIGHT - 1
    peer = _next_asked(stage, HEIGHT - 1)
    stage.receive(FinalMessage(invented, stage.certificate(below)), peer)
    assert (stage.victim.store.final(HEIGHT - 1), stage.victim.store.base()) == (None, HEIGHT)
    peer = _next_asked(stage, HEIGHT - 1)
    stage.receive(FinalMessage(below, stage.certificate(below)), peer)
    assert stage.victim.store.final(HEIGHT - 1) == (below, stage.certificate(below))


def test_an_invented_block_in_the_midst_of_an_answer_is_not_stored_nor_is_what_lies_below() -> None:
    stage, blocks = _joined()
    peer = _next_asked(stage, HEIGHT - 1)
    invented = stage.chain.remake(blocks[-3], knowledge_root=b"!" * 32)
    for block in (blocks[-4], invented, blocks[-2]):  # the lowest first, as they are asked for
        stage.receive(FinalMessage(block, stage.certificate(blocks[block.header.height - 1])), peer)
    assert stage.victim.store.base() == HEIGHT - 1
    for height in (HEIGHT - 2, HEIGHT - 3):
        assert stage.victim.store.final(height) is None


def test_all_older_blocks_come_and_are_those_of_the_chain() -> None:
    stage, blocks = _joined()
    while (base := stage.victim.store.base()) > 1:
        peer = _next_asked(stage, base - 1)
        for block in blocks[max(0, base - 17) : base - 1]:
            stage.receive(FinalMessage(block, stage.certificate(block)), peer)
        assert stage.victim.store.base() < base
    stored = [stage.victim.store.final(height) for height in range(1, HEIGHT + 1)]
    assert [found and found[0] for found in stored] == blocks
