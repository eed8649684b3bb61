"""Final blocks that wait for their turn: how many are kept, and what becomes of the peers that handed them out."""

from dataclasses import replace

import pytest

from fedchain.chain.block import Block
from fedchain.chain.exceptions import OutOfWindow
from fedchain.crypto.keys import PublicKey
from fedchain.node.core.following.finals_ahead import AHEAD_MAX, FinalsAhead, HandedOut
from tests.support.chain.builders import genesis
from tests.support.chain.changes import joining, living_genesis
from tests.support.node.stage import Stage, refused

HEIGHT = 3


def _asked() -> tuple[Stage, FinalsAhead, list[Block]]:
    """A node that has asked for a few blocks, and what it keeps of the answers."""
    stage = Stage(genesis(4), contributes=False)
    blocks = stage.chain.extend_many(HEIGHT)
    for other in stage.others:
        stage.receive(stage.status(height=HEIGHT, head_hash=blocks[-1].hash), other)
    return stage, FinalsAhead(stage.node._context), blocks


def _handed_out(stage: Stage, peer: PublicKey, block: Block) -> HandedOut:
    return HandedOut(peer, block, stage.chain.certificate(stage.chain.blocks[block.hash]))


def _failures(stage: Stage) -> list[int]:
    catch_up = stage.node._context.catch_up
    return [catch_up._source(other).failures for other in stage.others]


def _came(stage: Stage) -> list[int]:
    catch_up = stage.node._context.catch_up
    return [catch_up._source(other).came for other in stage.others]


def test_every_peer_that_handed_out_the_block_which_is_final_has_delivered() -> None:
    stage, ahead, blocks = _asked()
    for other in stage.others[:2]:
        ahead.keep(_handed_out(stage, other, blocks[0]))
    found = ahead.next(stage.node.head)
    assert found is not None
    assert found[1].block_hash == blocks[0].hash
    assert _came(stage) == [1, 1, 0]
    assert ahead.next(stage.node.head) is None, "it is taken once"


def test_a_peer_that_handed_out_what_is_not_final_has_failed_and_holds_up_nobody() -> None:
    stage, ahead, blocks = _asked()
    liar, honest, _ = stage.others
    forged = replace(_handed_out(stage, liar, blocks[0]), block=replace(blocks[0], transactions=()))
    ahead.keep(forged)
    ahead.keep(_handed_out(stage, honest, blocks[0]))
    stage.node._context.effects = []
    found = ahead.next(stage.node.head)
    assert found is not None
    assert found[0].peer == honest
    assert refused(stage.node._context.effects) == ["InvalidSignature"]
    assert _failures(stage) == [1, 0, 0]


def test_blocks_far_above_the_head_or_not_above_it_are_not_kept() -> None:
    stage, ahead, blocks = _asked()
    found = _handed_out(stage, stage.others[0], blocks[0])

    def at(height: int) -> HandedOut:
        return replace(found, block=replace(found.block, header=replace(found.block.header, height=height)))

    for height in (0, AHEAD_MAX + 1):
        with pytest.raises(OutOfWindow):
            ahead.keep(at(height))
    ahead.keep(at(AHEAD_MAX))


def test_a_block_ahead_may_have_posts_of_members_that_are_not_known_here_yet() -> None:
    stage = Stage(living_genesis(4), contributes=False)
    chain = stage.chain
    blocks = [chain.extend(changes=[joining(chain, 4)]), *chain.extend_many(3)]
    assert len(blocks[3].transactions) == 5
    FinalsAhead(stage.node._context).keep(_handed_out(stage, stage.others[0], blocks[3]))
