"""One memory of checks for all peers."""

import pytest

from fedchain.chain.exceptions import InvalidPayload
from fedchain.chain.knowledge import Occasion
from fedchain.crypto.keys import PublicKey
from fedchain.node.core.checks import Checks
from fedchain.node.core.jobs import CheckPost, Recompute
from fedchain.simulator.engine.remembered_checks import Remembered
from tests.support.chain.builders import ChainBuilder, SumRules, genesis
from tests.support.simulator.quirks import QUIRKS
from tests.support.simulator.trivial import run_trivial, trivial_scenario


@pytest.mark.long
@pytest.mark.parametrize("quirk", QUIRKS)
def test_sharing_verification_changes_no_trace(quirk: str) -> None:
    """None that is traced; peers that share take fewer turns, for an aggregate is recomputed by the first alone."""
    own, shared = (
        run_trivial(trivial_scenario(peers=8, rounds=2, shared_verification=shared, **QUIRKS[quirk]))
        for shared in (False, True)
    )
    assert own.trace_hash == shared.trace_hash


class CountingRules(SumRules):
    """Notes the senders whose payloads were checked."""

    def __init__(self) -> None:
        self.checked: list[PublicKey] = []

    def check(self, occasion: Occasion, sender: PublicKey, knowledge: bytes, payload: bytes) -> None:
        self.checked.append(sender)


def test_what_passed_for_one_peer_is_not_computed_for_another_that_looks_at_the_bytes_itself() -> None:
    builder, rules, elsewhere = ChainBuilder(genesis(4)), CountingRules(), Remembered()
    one, other = (Checks(builder.genesis, rules, elsewhere=elsewhere) for _ in range(2))
    state, posts = builder.state, builder.posts()
    job = Recompute(state, posts, dict(builder.contents))
    known = one.recompute(job)
    assert not any(other.has_passed(state, post) for post in posts), "each peer remembers for itself"
    damaged = CheckPost(state, builder.contents[state.knowledge_root], posts[0], b"other bytes")
    assert isinstance(other.run(damaged), InvalidPayload)
    assert other.recompute(job) is known
    assert all(other.has_passed(state, post) for post in posts)
    assert rules.checked == [post.sender for post in posts]
