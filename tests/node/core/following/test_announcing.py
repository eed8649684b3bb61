"""Announcing: who is told our status at each tick."""

from collections import Counter

import pytest

from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import Status
from fedchain.node.core.effects import Send
from fedchain.node.core.following.announcing import STATUS_PEERS
from tests.support.chain.builders import genesis
from tests.support.node.stage import Stage


def _told(stage: Stage) -> list[PublicKey]:
    """The peers that are told at the next tick."""
    effects = stage.tick(1)
    return [effect.peer for effect in effects if isinstance(effect, Send) and isinstance(effect.message, Status)]


def test_where_greetings_are_not_enough_a_first_turn_goes_to_as_many_as_have_to_be_heard() -> None:
    stage = Stage(genesis(40), is_heard=False)
    first = [_told(stage) for _ in range(3)]
    assert [len(told) for told in first] == [14, 14, 14], "f + 1"
    counts = Counter(peer for told in first for peer in told)
    assert counts.keys() == {*stage.others}
    assert max(counts.values()) == 2, "42 for 39"
    assert [len(_told(stage)) for _ in range(3)] == [STATUS_PEERS] * 3, "whoever is not there then will be told in turn"


@pytest.mark.parametrize(("members", "is_heard"), [(24, False), (40, True)])
def test_few_are_told_where_all_are_greeted_by_enough_and_once_the_others_are_heard(
    members: int, is_heard: bool
) -> None:
    stage = Stage(genesis(members), is_heard=is_heard)
    assert [len(_told(stage)) for _ in range(3)] == [STATUS_PEERS] * 3


def test_ticks_of_timeouts_tell_nobody() -> None:
    """They come as often as votes and posts ask for them."""
    stage = Stage(genesis(7))
    assert len(_told(stage)) == STATUS_PEERS
    told = [effect for effect in stage.wait(0.8, step_s=0.2) if isinstance(effect, Send)]
    assert told == []
    assert len(_told(stage)) == STATUS_PEERS
