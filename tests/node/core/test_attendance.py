"""The members that are waited for in the open phase."""

from tests.support.chain.builders import genesis
from tests.support.node.stage import Stage


def test_who_is_waited_for_is_known_after_every_post_and_nobody_is_once_all_is_over() -> None:
    stage = Stage(genesis(7, rounds=1), contributes=False)
    posts, missing = stage.chain.posts(), set(stage.genesis.members)
    assert stage.node.waiting_for() == missing
    for item in posts:
        stage.post(item)
        missing.discard(item.sender)
        assert stage.node.waiting_for() == missing
    stage.accept()
    stage.tick(1)
    assert stage.node.head.finished
    assert stage.node.waiting_for() == set()
