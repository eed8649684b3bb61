"""Blocks that leave out posts which all honest members held: some may, and some break a promise."""

from types import SimpleNamespace
from typing import Any

import pytest

from fedchain.network.messages import CandidateMessage, PostMessage
from fedchain.simulator.oracles.inclusion import Inclusion
from tests.support.chain.builders import keys
from tests.support.chain.late import late_chain

MEMBERS = range(4)
PEERS: Any = [SimpleNamespace(number=number, public_key=keys(4)[number].public_key) for number in MEMBERS]
LONG_MS = 60_000


@pytest.mark.parametrize(("in_time", "broken"), [(1, 0), (2, 1)])
def test_owed_posts_are_none_of_those_that_a_phase_needs_to_be_closed_with_posts(in_time: int, broken: int) -> None:
    """Two contributors are drawn and both are needed; of two rounds before, one post is owed that everybody has."""
    chain = late_chain(len(MEMBERS), contributors_per_round=2)
    late = chain.posts()[:1]
    chain.extend(posts=())
    before, found = chain.state, list[str]()
    assert before.owed_to(late[0].key)
    oracle = Inclusion(chain.genesis, MEMBERS, found.append)
    for post in (*late, *chain.posts()[:in_time]):
        oracle.on_post(MEMBERS, post, 0)
    block = chain.extend(posts=())
    for peer in PEERS:
        oracle.on_message(peer, CandidateMessage(block), (), LONG_MS)
    oracle.on_first_final(before, block, LONG_MS + 1, PEERS)
    assert len(found) == broken


@pytest.mark.parametrize("can_tell", [True, False])
def test_a_post_may_be_left_out_if_somebody_cannot_tell_whether_its_parts_came(can_tell: bool) -> None:
    chain, found = late_chain(len(MEMBERS)), list[str]()
    before, posts, oracle = chain.state, chain.posts(), Inclusion(chain.genesis, MEMBERS, found.append)
    for peer in PEERS:
        node = SimpleNamespace(insists_on=lambda post, sees=can_tell or peer.number: sees)
        seeing: Any = SimpleNamespace(**vars(peer), node=node)
        for post in posts:
            oracle.on_message(seeing, PostMessage(post, b""), (), 0)
    block = chain.extend(posts=posts[1:])
    for peer in PEERS:
        oracle.on_message(peer, CandidateMessage(block), (), LONG_MS)
    oracle.on_first_final(before, block, LONG_MS + 1, PEERS)
    assert len(found) == can_tell
