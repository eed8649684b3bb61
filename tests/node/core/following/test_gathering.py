"""A member that waits for others holds back what it would say first, and nothing else."""

from types import SimpleNamespace
from typing import cast

from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import PostMessage, VoteMessage
from fedchain.node.core.effects import Contribute, Effect, Mine
from fedchain.node.core.events import PeersConnected, PeersDisconnected
from fedchain.node.operating.report import waiting_for
from fedchain.node.shell.activity import Activity
from fedchain.node.shell.service import Service
from tests.support.chain.builders import genesis
from tests.support.node.stage import Stage, published

TIMEOUT_S = 60
"""A phase's, in the builders' genesis document."""


def _begins(effects: list[Effect]) -> bool:
    return any(isinstance(effect, Contribute | Mine) for effect in effects)


def _waiting_stage() -> Stage:
    """A node that waits for all four members, of whom one is away."""
    stage = Stage(genesis(4), wait_for=4, is_heard=False)
    stage.handle(PeersDisconnected((stage.others[0],)))
    for other in stage.others[1:]:
        stage.receive(stage.status(), other)
    return stage


def test_nothing_is_posted_or_mined_before_enough_members_are_connected() -> None:
    stage = _waiting_stage()
    stage.post(*stage.chain.posts(stage.node.head.block_hash, members=sorted(stage.others)))
    stage.wait(10 * TIMEOUT_S)
    assert not _begins(stage.victim.effects)
    assert stage.node.gathers() == 4
    stage.handle(PeersConnected((stage.others[0],)))
    effects = stage.tick(1)
    assert _begins(effects)
    assert published(effects, PostMessage)
    assert stage.node.gathers() == 0


def test_who_was_there_once_may_go_again() -> None:
    stage = _waiting_stage()
    stage.handle(PeersConnected((stage.others[0],)))
    stage.tick(1)
    before = len(stage.victim.effects)
    for other in stage.others:
        stage.handle(PeersDisconnected((other,)))
    assert stage.node.gathers() == 0
    stage.post(*stage.chain.posts(stage.node.head.block_hash, members=sorted(stage.others)))
    assert any(isinstance(effect, Mine) for effect in stage.victim.effects[before:])


def test_the_time_until_then_is_not_held_against_who_is_late() -> None:
    stage = _waiting_stage()
    late, *punctual = stage.others
    stage.post(*stage.chain.posts(stage.node.head.block_hash, members=sorted(punctual)))
    stage.wait(10 * TIMEOUT_S)
    stage.handle(PeersConnected((late,)))
    effects = stage.wait(TIMEOUT_S - 2)
    assert published(effects, PostMessage)
    assert not any(isinstance(effect, Mine) for effect in effects), "one post is missing, and may come"
    assert any(isinstance(effect, Mine) for effect in stage.wait(4))


def test_enough_members_are_no_quorum_of_posts() -> None:
    stage = _waiting_stage()
    stage.handle(PeersConnected((stage.others[0],)))
    effects = stage.wait(10 * TIMEOUT_S)
    assert published(effects, PostMessage)
    assert not any(isinstance(effect, Mine) for effect in effects)


def test_the_first_block_ends_the_waiting_of_all() -> None:
    stage = Stage(genesis(4), wait_for=9)
    assert not _begins(stage.victim.effects)
    stage.accept(1)
    assert [(item.round, item.phase) for item in stage.victim.effects if isinstance(item, Contribute)] == [(2, 0)]


def test_who_waits_votes_on_what_others_mine() -> None:
    stage = Stage(genesis(4), wait_for=9)
    effects = [*stage.candidate(stage.block(without=[stage.me])), *stage.wait(70)]
    assert published(effects, VoteMessage)
    assert not _begins(stage.victim.effects)


def test_the_status_says_how_many_are_here_and_when_the_next_round_begins() -> None:
    def says(stage: Stage, peers: list[PublicKey]) -> str:
        seen = SimpleNamespace(node=stage.node, me=stage.me, asks=str, peers=set(peers), activity=Activity())
        return waiting_for(cast(Service, seen), [])

    stage = _waiting_stage()
    assert says(stage, stage.others[1:]) == "members: 3 of 4 are here"
    paced = Stage(genesis(4, round_interval_ms=90_000))
    paced.accept(1)
    assert says(paced, []) == "the next round, which begins in 90 s"


def test_nobody_waits_unless_told_so() -> None:
    for wait_for in (0, 1):
        assert _begins(Stage(genesis(4), wait_for=wait_for).victim.effects)
