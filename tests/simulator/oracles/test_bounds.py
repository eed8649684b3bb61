"""Pools that are larger than a federation's own rules allow."""

from types import SimpleNamespace
from typing import Any

from fedchain.simulator.oracles.bounds import Bounds
from tests.support.chain.late import late_genesis


def test_posts_that_are_still_owed_have_room() -> None:
    """A miner may leave out all posts of two rounds, and those of this round and the next are there as well."""
    found = list[str]()
    bounds = Bounds(late_genesis(4, late_rounds=2), found.append)
    for posts in (16, 17):
        node = SimpleNamespace(sizes=lambda count=posts: [("posts", count)])
        peer: Any = SimpleNamespace(number=0, node=node)
        bounds.check(peer)
    assert found == ["bounds: peer 0 holds 17 posts, at most 16 are allowed"]
