"""Good posts that peers share: the very same objects at one head, and no more than a few heads."""

from dataclasses import replace

import pytest

from fedchain.chain.state import State, genesis_state
from fedchain.crypto.hashing import sha256
from fedchain.simulator.engine.shared_posts import HEADS, SharedPosts
from tests.support.chain.builders import genesis, keys, post
from tests.support.simulator.quirks import QUIRKS
from tests.support.simulator.trivial import run_trivial, trivial_scenario

GENESIS = genesis()
PAYLOAD = b"a payload"
POST = post(keys(1)[0], GENESIS, 1, PAYLOAD)


def head(number: int) -> State:
    return replace(genesis_state(GENESIS), block_hash=sha256(b"%d" % number))


def test_a_post_is_known_at_the_head_where_it_was_noted_with_the_same_object_alone() -> None:
    shared = SharedPosts()
    assert not shared.knows(head(0), POST, PAYLOAD)
    shared.note(head(0), POST, PAYLOAD)
    assert shared.knows(head(0), POST, PAYLOAD)
    assert not shared.knows(head(0), POST, bytes(bytearray(PAYLOAD)))
    assert not shared.knows(head(1), POST, PAYLOAD)


def test_the_oldest_head_is_forgotten() -> None:
    shared = SharedPosts()
    for number in range(HEADS + 1):
        shared.note(head(number), POST, PAYLOAD)
    assert [shared.knows(head(number), POST, PAYLOAD) for number in range(HEADS + 1)] == [False] + [True] * HEADS


@pytest.mark.long
@pytest.mark.parametrize("quirk", QUIRKS)
def test_sharing_verification_changes_no_trace(quirk: str) -> None:
    """None that is traced; peers that share take fewer turns, for an aggregate is recomputed by the first alone."""
    own, shared = (
        run_trivial(trivial_scenario(peers=8, rounds=2, **QUIRKS[quirk]), shares_checks=shared)
        for shared in (False, True)
    )
    assert own.trace_hash == shared.trace_hash
