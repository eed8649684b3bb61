"""A node keeps a light block for each change of the set, and hands out every height that it holds."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import pytest

from fedchain.network.messages import FinalMessage, GetLight, LightMessage
from tests.support.chain.builders import genesis
from tests.support.node.renewed import HEIGHT, a_crowd, newest_members
from tests.support.node.stage import Stage, refused, sent


def test_a_node_that_followed_hands_out_every_height_and_keeps_one_light_block_for_each_change() -> None:
    crowd = a_crowd(follows=HEIGHT)
    stage, peer = crowd.stage, newest_members()[0]
    assert crowd.is_at_head()
    sets = [crowd.light(block).members for block in crowd.blocks]
    changed = [height for height, (one, other) in enumerate(pairwise(sets), 2) if one != other]
    assert sorted(stage.victim.store._lights) == changed
    for height in range(1, HEIGHT + 1):
        (answer,) = sent(stage.receive(GetLight(height, 0, HEIGHT + 1), peer), LightMessage)
        found = answer.block
        assert found is not None
        expected = crowd.light(crowd.blocks[height - 1])
        assert (found.header, found.members, found.below) == (expected.header, expected.members, expected.below)
    for question in (GetLight(0, 0, 9), GetLight(HEIGHT + 1, 0, HEIGHT + 9), GetLight(5, 5, 9), GetLight(2**63, 0, 0)):
        answers = sent(stage.receive(question, peer), LightMessage)
        assert [item.block is None or question.low < item.block.header.height < question.high for item in answers] == [
            True
        ]


def test_a_node_that_joined_keeps_what_changes_from_there_on() -> None:
    """It joined at height 20 and followed the rest; of the heights below it has its path."""
    place = 20
    crowd, (guide, *_) = a_crowd(), newest_members()
    crowd.add(guide, partial(crowd.answer, crowd.blocks[:place]), lambda: (place, crowd.blocks[place - 1].hash))
    crowd.run(lambda: crowd.stage.node.head.height == place, 10)
    stage = crowd.stage
    path = {*stage.victim.store._lights}
    assert stage.victim.store.base() == max(path) == place
    for block in crowd.blocks[place:]:
        stage.receive(FinalMessage(block, crowd.stage.chain.certificate(block)))
    assert crowd.is_at_head()
    for height in range(place, HEIGHT + 1):
        (answer,) = sent(stage.receive(GetLight(height, 0, HEIGHT + 1), guide), LightMessage)
        expected = crowd.light(crowd.blocks[height - 1])
        assert answer.block is not None
        assert (answer.block.header, answer.block.members) == (expected.header, expected.members)
    for height in range(1, place):
        (answer,) = sent(stage.receive(GetLight(height, 0, HEIGHT + 1), guide), LightMessage)
        assert answer.block is not None
        assert answer.block.header.height in path


def _noting(read: list[int], real: Callable[[int], object], height: int) -> object:
    read.append(height)
    return real(height)


def test_an_answer_reads_few_records_whatever_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = a_crowd(follows=HEIGHT)
    stage, read = crowd.stage, list[int]()
    store = stage.victim.store
    for name in ("final", "light_below", "light_above"):
        real = getattr(store, name)
        monkeypatch.setattr(store, name, partial(_noting, read, real))
    for height in (1, 5, HEIGHT - 1, HEIGHT, 2**62):
        read.clear()
        stage.receive(GetLight(height, 0, 2**63), newest_members()[0])
        assert len(read) <= 6


def test_where_members_are_the_same_for_ever_nothing_is_handed_out() -> None:
    stage = Stage(genesis(4))
    stage.accept(2)
    assert sent(stage.receive(GetLight(2, 0, 3)), LightMessage) == []
    assert refused(stage.receive(LightMessage(2, None))) == ["OutOfWindow"]
