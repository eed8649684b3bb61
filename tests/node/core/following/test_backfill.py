"""Older blocks that are fetched after joining hang together, whatever peers hand out."""

import pytest

from fedchain.network.messages import FinalMessage
from tests.support.node.older_blocks import HEIGHT, asked, chain_of_others, join, joined, next_asked


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_block_that_the_one_above_does_not_name_is_not_stored(number: int) -> None:
    """It is signed, it is mined, and its certificate is the true one's: only its parenthood is not so."""
    stage, blocks = joined()
    below = blocks[-2]
    invented = (
        stage.chain.remake(below, knowledge_root=b"!" * 32),
        stage.chain.remake(below, transactions=below.transactions[1:]),
        stage.chain.remake(below, key=stage.victim.key),
    )[number]
    assert invented.header.height == HEIGHT - 1
    peer = next_asked(stage, HEIGHT - 1)
    stage.receive(FinalMessage(invented, stage.certificate(below)), peer)
    assert (stage.victim.store.final(HEIGHT - 1), stage.victim.store.base()) == (None, HEIGHT)
    peer = next_asked(stage, HEIGHT - 1)
    stage.receive(FinalMessage(below, stage.certificate(below)), peer)
    assert stage.victim.store.final(HEIGHT - 1) == (below, stage.certificate(below))


def test_an_invented_block_in_the_midst_of_an_answer_is_not_stored_nor_is_what_lies_below() -> None:
    stage, blocks = joined()
    peer = next_asked(stage, HEIGHT - 1)
    invented = stage.chain.remake(blocks[-3], knowledge_root=b"!" * 32)
    for block in (blocks[-4], invented, blocks[-2]):  # the lowest first, as they are asked for
        stage.receive(FinalMessage(block, stage.certificate(blocks[block.header.height - 1])), peer)
    assert stage.victim.store.base() == HEIGHT - 1
    for height in (HEIGHT - 2, HEIGHT - 3):
        assert stage.victim.store.final(height) is None


def test_all_older_blocks_come_and_are_those_of_the_chain() -> None:
    stage, blocks = joined()
    while (base := stage.victim.store.base()) > 1:
        peer = next_asked(stage, base - 1)
        for block in blocks[max(0, base - 17) : base - 1]:
            stage.receive(FinalMessage(block, stage.certificate(block)), peer)
        assert stage.victim.store.base() < base
    stored = [stage.victim.store.final(height) for height in range(1, HEIGHT + 1)]
    assert [found and found[0] for found in stored] == blocks


def test_a_question_from_before_joining_anew_is_waited_for_no_more() -> None:
    stage, _ = joined()
    peer = next_asked(stage, HEIGHT - 1)
    further = chain_of_others(stage, HEIGHT)
    join(stage, further[-1])
    (other,) = asked(stage.tick(1), 2 * HEIGHT - 1)
    assert other != peer, "it may still be at the other one"


def test_a_node_that_wants_no_older_blocks_asks_for_none() -> None:
    stage, _ = joined(is_wanted=False)
    effects = stage.wait(10)
    assert not [height for height in range(1, HEIGHT) if asked(effects, height)]
