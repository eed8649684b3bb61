"""A post walks through the rooms of a node in one direction; it comes back to one of them, after its check."""

from fedchain.chain.knowledge import AGGREGATOR
from fedchain.network.messages import PostMessage
from tests.support.chain.builders import genesis
from tests.support.node.parts import GOOD, a_post, held, stage
from tests.support.node.stage import Stage
from tests.support.node.walk import Walk


def rooms(walk: Walk) -> list[str]:
    return [name.rpartition(".")[2] for name in walk.stays]


def test_a_post_with_its_payload_comes_back_once_after_its_check() -> None:
    at = Stage(genesis(4))
    post = at.others_posts()[0]
    with Walk() as walk:
        at.post(post)
    assert at.node.holds(post)
    assert rooms(walk) == ["posts", "validation", "checks", "posts", "bulk", "attendance"]
    assert walk.returns == 1


def test_a_list_of_parts_that_others_read_takes_the_same_way() -> None:
    at = stage(1)
    item, payload = a_post(at, (GOOD, AGGREGATOR))
    with Walk() as walk:
        at.receive(PostMessage(item, payload))
    assert held(at, item)
    assert rooms(walk) == ["posts", "validation", "checks", "posts", "bulk", "part_lists", "attendance"]


def test_blocks_come_back_for_their_knowledge_alone() -> None:
    at = Stage(genesis(4))
    at.post(*at.others_posts())
    block = at.block()
    with Walk() as walk:
        at.candidate(block, payloads=False)
    assert rooms(walk)[:3] == ["block_import", "checks", "validation"]
    assert walk.returns == 4
    with Walk() as walk:
        at.final(block)
    assert at.node.head.block_hash == block.hash
    assert walk.returns == 1
