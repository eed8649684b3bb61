"""Rounds that begin not before an interval is over: nobody trains, posts, or is waited for until then."""

from fedchain.chain.genesis import AggregatorRule
from fedchain.network.messages import PostMessage
from fedchain.node.core.deadlines import GRACE, deadline_ms, opens_after_ms, patience_ms
from fedchain.node.core.effects import Mine
from fedchain.node.core.events import Contributed
from tests.support.chain.builders import GLOBAL, UPDATE, ChainBuilder, genesis, payload
from tests.support.node.stage import Stage, asked_to_contribute, published

INTERVAL_S, TIMEOUT_S = 300, 60


def _stage() -> Stage:
    return Stage(genesis(4, phases=(UPDATE, UPDATE), round_interval_ms=1_000 * INTERVAL_S))


def test_the_first_round_and_later_phases_begin_at_once_and_further_rounds_after_the_interval() -> None:
    stage = _stage()
    assert asked_to_contribute(stage.victim.effects) == [(1, 0)]
    stage.accept(2)
    assert asked_to_contribute(stage.victim.effects) == [(1, 0), (1, 1)]
    assert asked_to_contribute(stage.wait(INTERVAL_S - 2)) == []
    assert 0 < stage.node.opens_in_ms() <= 2_000
    effects = stage.wait(4)
    assert asked_to_contribute(effects) == [(2, 0)]
    assert published(effects, PostMessage)
    assert stage.node.opens_in_ms() == 0
    stage.accept(1)
    assert asked_to_contribute(stage.victim.effects)[-1] == (2, 1)


def test_a_tick_is_asked_for_when_the_interval_ends() -> None:
    stage = _stage()
    stage.accept(2)
    wakes = stage.node._parts.attendance.wakes_at_ms()
    assert wakes == stage.node._context.clock.since_ms + 1_000 * INTERVAL_S


def test_what_was_computed_too_early_is_not_said_too_early() -> None:
    stage = _stage()
    stage.accept(2)
    assert published(stage.handle(Contributed(2, 0, payload(1, 2, 0, 7))), PostMessage) == []
    assert published(stage.wait(INTERVAL_S + 2), PostMessage)


def test_a_member_that_was_started_again_posts_at_once() -> None:
    stage = _stage()
    stage.accept(2)
    before = len(stage.victim.effects)
    stage.restart()
    assert asked_to_contribute(stage.victim.effects[before:]) == [(2, 0)]


def test_who_is_late_is_waited_for_from_the_opening_on() -> None:
    stage = _stage()
    stage.accept(2)
    late, *punctual = stage.others
    stage.wait(INTERVAL_S + 1)
    stage.post(*stage.chain.posts(stage.node.head.block_hash, members=sorted(punctual)))
    assert not any(isinstance(effect, Mine) for effect in stage.wait(TIMEOUT_S - 4)), late
    assert any(isinstance(effect, Mine) for effect in stage.wait(8))


def test_deadline_and_patience_count_from_the_opening() -> None:
    chains = [ChainBuilder(genesis(4, round_interval_ms=interval_ms)) for interval_ms in (0, 300_000)]
    plain, slow = (chain.state for chain in chains)
    assert (opens_after_ms(plain), opens_after_ms(slow)) == (0, 0), "nothing came before the first round"
    for chain in chains:
        chain.extend()
    plain, slow = (chain.state for chain in chains)
    assert (opens_after_ms(plain), opens_after_ms(slow)) == (0, 300_000)
    assert deadline_ms(slow) == deadline_ms(plain) + 300_000
    quorum_ms = 500_000
    assert patience_ms(plain, quorum_ms) == quorum_ms + 60_000
    assert patience_ms(slow, 400_000) == 400_000 + 100_000 // GRACE


def test_an_empty_close_is_not_voted_for_before_the_opening_and_its_timeouts() -> None:
    phases = (UPDATE, GLOBAL)
    rule = AggregatorRule.FIXED
    stage = Stage(
        genesis(4, phases=phases, aggregator=rule, centralized=True, round_interval_ms=1_000 * INTERVAL_S), number=1
    )
    stage.accept(2)
    assert not any(isinstance(effect, Mine) for effect in stage.wait(INTERVAL_S + 2 * TIMEOUT_S - 2))
    assert any(isinstance(effect, Mine) for effect in stage.wait(4))
