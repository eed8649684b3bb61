"""A peer that crashes comes back with what it promised, and a log of events says everything."""

import pytest

from fedchain.chain.genesis import PhaseRule
from fedchain.chain.storage.store import MemoryStore
from fedchain.network.messages import PostMessage
from fedchain.node.core.checks import Verification
from fedchain.node.core.effects import Contribute, Publish
from fedchain.node.core.events import Contributed, Tick
from fedchain.node.core.node import Node
from tests.chain.builders import CREATED_MS, UPDATE, SumRules, genesis, keys, payload
from tests.node.driver import Federation, Peer, check_agreement, check_promises


def test_after_a_restart_the_own_post_is_sent_again_byte_by_byte() -> None:
    peer = Peer(0, keys(1)[0], genesis(4), SumRules())
    peer.handle(Tick(), CREATED_MS)
    peer.handle(Contributed(1, 0, payload(1)), CREATED_MS + 1_000)
    peer.node = peer.new_node()
    late = peer.handle(Tick(), CREATED_MS + 90_000)
    assert not [effect for effect in late if isinstance(effect, Contribute)]
    assert peer.handle(Contributed(1, 0, payload(2)), CREATED_MS + 91_000) == []
    first, again = [effect.message for effect in peer.effects if isinstance(effect, Publish)]
    assert isinstance(first, PostMessage)
    assert first == again
    assert not [effect for effect in peer.handle(Tick(), CREATED_MS + 99_000) if isinstance(effect, Publish)]
    check_promises(peer)


def test_a_crash_before_the_post_is_ready_costs_only_the_work() -> None:
    peer = Peer(0, keys(1)[0], genesis(4), SumRules())
    assert [effect for effect in peer.handle(Tick(), CREATED_MS) if isinstance(effect, Contribute)]
    assert not [effect for effect in peer.handle(Tick(), CREATED_MS + 1) if isinstance(effect, Contribute)]
    peer.node = peer.new_node()
    assert [effect for effect in peer.handle(Tick(), CREATED_MS + 2) if isinstance(effect, Contribute)]


@pytest.mark.parametrize("seed", range(4))
def test_peers_crash_in_the_middle_of_phases_and_come_back(seed: int) -> None:
    phases = (UPDATE, PhaseRule("share", UPDATE.by))
    federation = Federation(genesis(4, phases=phases, phase_timeout_ms=8_000, target_mining_time_ms=1_000), seed)
    for turn in range(6):
        federation.run_for(2)
        number = (turn + seed) % 4
        federation.crash(number)
        federation.run_for(turn % 3)
        before = federation.peers[number].node.head
        federation.restart(number)
        after = federation.peers[number].node.head
        assert (after.block_hash, after.knowledge_root) == (before.block_hash, before.knowledge_root)
    height = max(peer.node.head.height for peer in federation.peers)
    federation.run_to_height(height + 3)
    check_agreement(federation)
    for peer in federation.peers:
        check_promises(peer)


def test_records_alone_bring_back_tree_votes_and_knowledge() -> None:
    federation = Federation(genesis(4, target_mining_time_ms=1_000), 3)
    federation.run_to_height(8)
    for peer in federation.peers:
        again = peer.new_node()
        assert again.head == peer.node.head
        assert len(again.tree) == len(peer.node.tree)
        assert again.knowledge() == peer.node.knowledge()
        assert again.tree.votes(again.head.block_hash) == peer.node.tree.votes(again.head.block_hash)


@pytest.mark.parametrize("loss", [0.0, 0.2])
def test_a_log_of_events_replays_to_the_same_effects(loss: float) -> None:
    founding = genesis(4, target_mining_time_ms=1_000)
    federation = Federation(founding, 9, loss=loss)
    federation.run_to_height(4, limit_s=400)
    for peer in federation.peers:
        store = MemoryStore()
        node = Node(founding, peer.key, Verification(founding, peer.rules), (), store.content)
        replayed = []
        for event, now_ms in peer.log:
            effects = node.handle(event, now_ms)
            replayed += effects
            for effect in effects:
                if hasattr(effect, "records"):
                    store.append(effect.records)
        assert [repr(effect) for effect in replayed] == [repr(effect) for effect in peer.effects]
        assert node.head == peer.node.head
        assert len(peer.log) > 50
