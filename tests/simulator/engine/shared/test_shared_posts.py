"""Good posts that peers share: the very same objects at one head, and no more than a few heads. And lulls, which stand
on them: that most posts come in some, and that nothing differs from whole turns.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from fedchain.chain.state import State, genesis_state
from fedchain.crypto import signature_memory
from fedchain.crypto.hashing import sha256
from fedchain.crypto.signatures import is_valid_signature
from fedchain.network.messages import PostMessage
from fedchain.node.core.effects import Effect
from fedchain.node.core.events import Event, MessageReceived, Moment
from fedchain.node.core.node import Node
from fedchain.node.core.posts import Arrival, Lull
from fedchain.simulator.engine.shared.shared_posts import HEADS, SharedPosts
from fedchain.simulator.engine.simulation import Simulation
from tests.support.chain.builders import genesis, keys, post
from tests.support.simulator.quirks import QUIRKS
from tests.support.simulator.trivial import run_trivial, trivial_scenario, trivial_simulation

GENESIS = genesis()
PAYLOAD = b"a payload"
POST = post(keys(1)[0], GENESIS, 1, PAYLOAD)


def head(number: int) -> State:
    return replace(genesis_state(GENESIS), block_hash=sha256(b"%d" % number))


def test_a_post_is_known_at_the_head_where_it_was_noted_by_the_very_object() -> None:
    shared = SharedPosts()
    assert not shared.at(head(0))
    shared.note(head(0), POST, PAYLOAD)
    assert shared.at(head(0))[POST.hash] is PAYLOAD
    assert not shared.at(head(1))


def test_the_oldest_head_is_forgotten() -> None:
    shared = SharedPosts()
    for number in range(HEADS + 1):
        shared.note(head(number), POST, PAYLOAD)
    assert [POST.hash in shared.at(head(number)) for number in range(HEADS + 1)] == [False] + [True] * HEADS


@pytest.mark.long
@pytest.mark.parametrize("quirk", QUIRKS)
def test_sharing_verification_changes_no_trace(quirk: str) -> None:
    """None that is traced; peers that share take fewer turns, for an aggregate is recomputed by the first alone."""
    own, shared = (
        run_trivial(trivial_scenario(peers=8, rounds=2, **QUIRKS[quirk]), shares_checks=shared)
        for shared in (False, True)
    )
    assert own.trace_hash == shared.trace_hash


@pytest.mark.parametrize("version", [2, 3])
def test_own_signatures_are_verified_by_nobody_that_shares_the_checks(
    monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """Those of blocks are: a member judges its own block as others do before it publishes it."""
    verified, check = list[bytes](), is_valid_signature

    def count(key: bytes, signature: bytes, message: bytes) -> bool:
        verified.append(message)
        return check(key, signature, message)

    monkeypatch.setattr(signature_memory, "is_valid_signature", count)
    scenario = trivial_scenario(peers=4, rounds=2, version=version)
    outcome = run_trivial(scenario)
    assert not outcome.violations
    mined = sum(row.blocks for row in outcome.rows)
    assert len(verified) == mined
    verified.clear()
    assert run_trivial(scenario, shares_checks=False).trace_hash == outcome.trace_hash
    assert len(verified) > 10 * mined, "each peer verifies those of all others"


LULLS: dict[str, dict[str, Any]] = QUIRKS | {
    "committee": {"committee_size": 4, "proof_function": "sha256d"},
    "version 2": {"version": 2},
    "phases": {"method": "fedph"},
    "mesh": {"degree": 3},
}


def _views(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, Any], *, has_lulls: bool
) -> tuple[list[Any], Counter[str]]:
    """The things that each node held after each event that was no post, the trace, and the posts in lulls."""
    found, taken = list[Any](), Counter[str]()
    handle, lull, on_post = Node.handle, Node.lull, Simulation.on_post

    def watched(node: Node, event: Event, now: Moment) -> list[Effect]:
        effects = handle(node, event, now)
        if not (isinstance(event, MessageReceived) and isinstance(event.message, PostMessage)):
            context, held = node._context, node._context.mempool
            since = {phase: [*times] for phase, times in held._held_since_ms.items() if times}
            clock = context.clock.quorum_ms, context.clock.mining_ms
            found.append((context.me, now, since, [*held.payload_hashes()], clock, sorted(context.contents._held)))
        return effects

    def asked(node: Node) -> Lull:
        found = lull(node)
        found.left = found.left if has_lulls else 0
        return found

    def counted(simulation: Simulation, numbers: Sequence[int], arrival: Arrival) -> None:
        taken["alone" if type(numbers) is tuple else "together"] += len(numbers)
        on_post(simulation, numbers, arrival)

    with monkeypatch.context() as patch:
        patch.setattr(Node, "handle", watched)
        patch.setattr(Node, "lull", asked)
        patch.setattr(Simulation, "on_post", counted)
        outcome = run_trivial(trivial_scenario(peers=8, rounds=2, **values))
    assert not outcome.violations
    return [*found, outcome.trace_hash, outcome.events], taken


@pytest.mark.parametrize("quirk", LULLS)
def test_a_post_in_a_lull_leaves_the_node_as_a_whole_turn_does(quirk: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, none = _views(monkeypatch, LULLS[quirk], has_lulls=False)
    short, taken = _views(monkeypatch, LULLS[quirk], has_lulls=True)
    assert short == whole
    assert (none.total(), taken.total() > 15) == (0, True), "otherwise this compares nothing"
    assert (taken["together"] > 10) == (quirk != "mesh")


@pytest.mark.parametrize("shares_checks", [True, False])
def test_peers_of_a_mesh_that_links_everybody_pass_nothing_on(shares_checks: bool) -> None:
    traces = set[str]()
    for degree in (0, 3):
        outcome = trivial_simulation(trivial_scenario(degree=degree), shares_checks=shares_checks).run()
        assert outcome.violations == []
        traces.add(outcome.trace_hash)
    assert len(traces) == 1
