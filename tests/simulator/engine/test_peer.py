"""A simulated peer crashes and comes back with what it had stored, and mines as fast as its pace says."""

import gc
import tracemalloc
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean, stdev
from types import SimpleNamespace
from typing import Any

import pytest

from fedchain.chain.exceptions import Refused
from fedchain.chain.knowledge import Occasion
from fedchain.chain.state import State
from fedchain.chain.storage.store import MemoryStore
from fedchain.crypto.keys import PublicKey
from fedchain.learning.executors.executor import Answer, Job, Question
from fedchain.learning.executors.inline import Done
from fedchain.node.core.effects import Effect
from fedchain.node.core.events import Contributed, Event, Tick
from fedchain.node.core.node import Node
from fedchain.simulator.disturbances import Fault
from fedchain.simulator.engine.measurement import RoundMetrics
from fedchain.simulator.engine.peer import SimulatedPeer
from fedchain.simulator.engine.sleeping import Shifts
from fedchain.simulator.scenario import ScenarioError
from tests.support.chain.builders import ChainBuilder, genesis
from tests.support.simulator.trivial import (
    TrivialExecutor,
    TrivialRules,
    contribution,
    posts_counted,
    run_trivial,
    trivial_scenario,
    trivial_simulation,
)


def test_every_post_is_counted_when_nothing_goes_wrong() -> None:
    simulation = trivial_simulation(trivial_scenario(peers=4, rounds=3))
    outcome = simulation.run()
    assert outcome.violations == []
    for peer in simulation.peers:
        assert peer.node is not None
        assert posts_counted(peer.node.knowledge() or b"") == 12


def test_a_question_names_the_members_with_data() -> None:
    class Noting(TrivialExecutor):
        def ask(self, question: Question) -> Job[Answer]:
            counts.add(question.clients)
            return super().ask(question)

    counts: set[int] = set()
    run_trivial(trivial_scenario(peers=4, rounds=1), executor=Noting())
    assert counts == {4}


@pytest.mark.long
def test_mining_takes_as_long_as_asked_however_few_the_attempts() -> None:
    """With fewer attempts than peers, whole attempts would have most peers find their blocks at one moment."""
    outcome = run_trivial(trivial_scenario(peers=16, rounds=12, mining_s=4.0, mining_attempts=4, seed=3))
    mined = [row.mining_s for row in outcome.rows]
    assert 2.0 < sum(mined) / len(mined) < 8.0
    assert outcome.totals["not_taken"] <= 3


def test_a_peer_that_crashed_comes_back_with_its_promises() -> None:
    """Peer 1 posts at 1 s, crashes at once and returns: its post must be the same, and nobody else may notice."""
    faults = (Fault(at_s=1.5, kind="crash", peers=(1,)), Fault(at_s=2.5, kind="restart", peers=(1,)))
    executor = TrivialExecutor()
    simulation = trivial_simulation(trivial_scenario(faults=faults), executor=executor)
    outcome = simulation.run()
    assert outcome.violations == []
    assert executor.asked.count((1, 1)) == 1, "what was promised is sent again, not computed again"


def test_a_peer_that_crashed_before_it_posted_computes_again() -> None:
    faults = (Fault(at_s=0.5, kind="crash", peers=(1,)), Fault(at_s=0.6, kind="restart", peers=(1,)))
    executor = TrivialExecutor()
    outcome = trivial_simulation(trivial_scenario(faults=faults), executor=executor).run()
    assert outcome.violations == []
    assert executor.asked.count((1, 1)) == 2


def test_a_crashed_peer_takes_no_part_and_its_storage_stays() -> None:
    store = MemoryStore()
    faults = (Fault(at_s=2.0, kind="crash", peers=(0,)),)
    simulation = trivial_simulation(trivial_scenario(faults=faults, phase_timeout_s=5.0), store=store)
    outcome = simulation.run()
    assert outcome.violations == []
    assert simulation.peers[0].node is None
    assert store.head() is not None
    assert outcome.rows[-1].posts == 3


def test_a_peer_that_was_away_for_longer_than_payloads_are_kept_comes_back() -> None:
    faults = (Fault(at_s=0.5, kind="crash", peers=(1,)), Fault(at_s=150.0, kind="restart", peers=(1,)))
    scenario = trivial_scenario(peers=5, rounds=40, faults=faults, retention_blocks=3, phase_timeout_s=5.0)
    simulation = trivial_simulation(scenario)
    outcome = simulation.run()
    assert outcome.violations == []
    late, other = simulation.peers[1], simulation.peers[0]
    assert late.node is not None
    assert other.node is not None
    assert late.node.head == other.node.head
    assert late.node.knowledge() == other.node.knowledge()
    assert outcome.rows[-1].posts == 5


@pytest.mark.long
def test_a_node_that_stops_is_freed_at_once() -> None:
    """Its payloads go with it: waiting for the collector of cycles, thousands of sleepers filled the memory."""
    scenario = trivial_scenario(
        peers=30, rounds=6, contributors_per_round=4, committee_size=3, idle_sleep=True, retention_blocks=2
    )
    simulation = trivial_simulation(scenario)
    stopped: list[weakref.ref[Node]] = []
    for peer in simulation.peers:
        sleep = peer.sleep

        def watched(peer: SimulatedPeer = peer, sleep: Callable[[], None] = sleep) -> None:
            assert peer.node is not None
            stopped.append(weakref.ref(peer.node))
            sleep()

        peer.sleep = watched  # type: ignore[method-assign]
    gc.collect()
    gc.disable()
    try:
        simulation.run()
    finally:
        gc.enable()
    assert len(stopped) > 10
    assert [node() for node in stopped if node() is not None] == []


@pytest.mark.long
@pytest.mark.slow
def test_payloads_that_left_the_retention_window_are_nowhere_in_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither sleepers nor those who watch the run may keep them: with real models that is megabytes a round."""
    monkeypatch.setattr("fedchain.simulator.engine.shared.content_pool.SWEEP_SIZE", 2**20)
    size, traced = 256 * 1024, list[int]()

    class LargeRules(TrivialRules):
        def check(self, occasion: Occasion, sender: PublicKey, knowledge: bytes, payload: bytes) -> None:
            super().check(occasion, sender, knowledge, payload[:-size])

        def aggregate(self, occasion: Occasion, knowledge: bytes, posts: Sequence[tuple[PublicKey, bytes]]) -> bytes:
            return super().aggregate(occasion, knowledge, [(who, data[:-size]) for who, data in posts])

    class LargeExecutor(TrivialExecutor):
        def ask(self, question: Question) -> Job[Answer]:
            small = contribution(question.client, question.round, question.knowledge)
            return Done(replace(small, payload=small.payload + bytes(size)))

    def on_round(row: RoundMetrics) -> None:
        if row.round > 10:
            gc.collect()
            traced.append(tracemalloc.get_traced_memory()[0])

    scenario = trivial_scenario(
        peers=30,
        rounds=40,
        contributors_per_round=4,
        committee_size=3,
        idle_sleep=True,
        retention_blocks=1,
    )
    simulation = trivial_simulation(scenario, rules=LargeRules(), executor=LargeExecutor(), on_round=on_round)
    tracemalloc.start()
    outcome = simulation.run()
    tracemalloc.stop()
    assert outcome.violations == []
    posted = sum(row.posts for row in outcome.rows[20:]) * size
    assert fmean(traced[-10:]) - fmean(traced[:10]) < posted / 4, "the mean: a round holds more or fewer for a moment"


@pytest.mark.long
def test_peers_that_are_not_drawn_sleep_and_catch_up_when_they_are() -> None:
    scenario = trivial_scenario(
        peers=30, rounds=25, contributors_per_round=4, committee_size=3, idle_sleep=True, retention_blocks=2
    )
    executor = TrivialExecutor()
    simulation = trivial_simulation(scenario, executor=executor)
    outcome = simulation.run()
    assert outcome.violations == []
    assert sum(row.posts for row in outcome.rows) >= 4 * 25 - 2, "hardly anybody is late by bad luck"
    awake = [peer for peer in simulation.peers if peer.node is not None]
    assert len(awake) <= 1 + 2 * 7, "those of the last draw, those of the one before, and peer 0"
    asked = {client for client, _ in executor.asked}
    assert len(asked) > 20, "most were drawn at least once"
    assert len(executor.asked) == 4 * 25, "nobody trained who was not drawn"
    lasted_s = [later.virtual_s - row.virtual_s for row, later in pairwise(outcome.rows)]
    assert all(row.voting_s < max(lasted_s) for row in outcome.rows), "who slept did not wait for a vote"
    asleep = next(peer for peer in simulation.peers if peer.number in asked and peer.node is None)
    assert any(True for _ in asleep.storage.posts(0))


@pytest.mark.long
def test_nobody_sleeps_while_only_sleepers_know_what_the_others_need(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = trivial_scenario(
        peers=20,
        rounds=20,
        seed=9,
        contributors_per_round=4,
        committee_size=3,
        idle_sleep=True,
        retention_blocks=1,
        mining_s=0.01,  # a block is often accepted before all payloads have come to everybody
        delay_max_ms=1_000,
        max_virtual_s=1_000.0,
    )
    simulation = trivial_simulation(scenario, founded={"inline_size_max": 0})  # every payload has to be fetched
    change, is_held, let_go = Shifts.change, list[bool](), Shifts._let_sleep

    def changing(shifts: Shifts, first: SimulatedPeer) -> None:
        keeper = simulation.peers[0].node
        is_held.append(keeper is not None and keeper.knowledge() is not None)
        change(shifts, first)

    def letting(shifts: Shifts, peers: Sequence[SimulatedPeer]) -> None:
        assert is_held[-1] or not peers, "peer 0, which never sleeps, lacks the knowledge"
        let_go(shifts, peers)

    monkeypatch.setattr(Shifts, "change", changing)
    monkeypatch.setattr(Shifts, "_let_sleep", letting)
    outcome = simulation.run()
    assert {*is_held} == {False, True}
    assert outcome.violations == []
    assert len(outcome.rows) == 20


@pytest.mark.long
def test_a_peer_that_wakes_has_followed_the_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stands at the newest head with its knowledge, asks nobody for blocks, and speaks without listening first."""
    started: list[tuple[int, bool, bool]] = []
    wake = SimulatedPeer.start

    def watched(self: SimulatedPeer, *, has_listened: bool = False) -> None:
        wake(self, has_listened=has_listened)
        assert self.node is not None
        started.append((self.node.head.height, self.node.knowledge() is not None, self.node.is_silent()))

    monkeypatch.setattr(SimulatedPeer, "start", watched)
    scenario = trivial_scenario(
        peers=40,
        rounds=15,
        contributors_per_round=4,
        committee_size=3,
        idle_sleep=True,
        retention_blocks=1,
    )
    outcome = trivial_simulation(scenario).run()
    assert outcome.violations == []
    assert sum(row.posts for row in outcome.rows) >= 4 * 15 - 2
    woken = started[8:]  # after those that the genesis document draws
    assert len(woken) > 40
    heights = [height for height, _, _ in woken]
    assert heights == sorted(heights), "nobody stands below one that woke before"
    assert all(knows for _, knows, _ in woken)
    assert not any(is_silent for _, _, is_silent in woken)


def test_who_sleeps_needs_to_be_drawn() -> None:
    with pytest.raises(ScenarioError, match="idle_sleep needs"):
        trivial_scenario(peers=10, idle_sleep=True, contributors_per_round=3).validate()


def test_a_slow_peer_delays_the_round() -> None:
    usual = run_trivial(trivial_scenario(rounds=1))
    slow = run_trivial(trivial_scenario(rounds=1, faults=(Fault(at_s=0.0, kind="slow", peers=(2,), factor=10.0),)))
    assert slow.rows[0].virtual_s >= usual.rows[0].virtual_s


def test_what_was_begun_before_a_crash_is_not_told_to_the_node_that_came_back() -> None:
    """Neither the training that went on, nor the ticks."""
    faults = (Fault(at_s=0.5, kind="crash", peers=(1,)), Fault(at_s=0.6, kind="restart", peers=(1,)))
    simulation = trivial_simulation(trivial_scenario(faults=faults))
    told, note = list[tuple[float, Event]](), simulation.on_event

    def noting(peer: SimulatedPeer, event: Event, effects: Sequence[Effect]) -> None:
        if peer.number == 1:
            told.append((simulation.loop.time(), event))
        note(peer, event, effects)

    simulation.on_event = noting  # type: ignore[method-assign]
    assert simulation.run().violations == []
    contributed = [(at_s, event.round) for at_s, event in told if isinstance(event, Contributed)]
    assert [number for _, number in contributed] == [1, 2, 3]
    assert contributed[0][0] == pytest.approx(1.6, abs=0.01), "it trained again, for the second that it takes"
    ticks = Counter(int(at_s) for at_s, event in told if isinstance(event, Tick) and at_s > 1.0)
    assert max(ticks.values()) <= 2, "one a second, and alarms"


def test_a_kill_comes_between_any_two_effects(monkeypatch: pytest.MonkeyPatch) -> None:
    """A statement that was written down may be sent or not, and never do all effects of an event come."""
    whole, left = list[int](), list[int]()
    follow = SimulatedPeer._follow

    def noting(peer: SimulatedPeer, event: Event, old: State, effects: Sequence[Effect]) -> Refused | None:
        if peer.kill_pending and len(effects) > 1:
            whole.append(len(effects))
        return follow(peer, event, old, effects)

    monkeypatch.setattr(SimulatedPeer, "_follow", noting)
    times = [2.0 + 3 * number for number in range(12)]
    faults = tuple(Fault(at_s=at_s, kind="kill", peers=(number % 4,)) for number, at_s in enumerate(times))
    faults += tuple(Fault(at_s=at_s + 2, kind="restart", peers=(number % 4,)) for number, at_s in enumerate(times))
    simulation = trivial_simulation(trivial_scenario(rounds=12, faults=faults, phase_timeout_s=5.0))
    note = simulation.on_event

    def seeing(peer: SimulatedPeer, event: Event, effects: Sequence[Effect]) -> None:
        if len(left) < len(whole):
            left.append(len(effects))
        note(peer, event, effects)

    simulation.on_event = seeing  # type: ignore[method-assign]
    assert simulation.run().violations == []
    assert 5 < len(left) == len(whole) <= len(times), "each kill is one"
    assert all(0 <= count < most for count, most in zip(left, whole, strict=True))
    assert sum(left) > 0, "some effects came before"


def test_mining_has_an_exponential_law_and_takes_a_slow_peer_longer() -> None:
    simulation = trivial_simulation(trivial_scenario(mining_s=3.0))
    bits = simulation._genesis.initial_bits
    peer, header = simulation.peers[0], ChainBuilder(genesis(initial_bits=bits)).extend().header
    lasted_s: dict[float, list[float]] = {}
    for peer.slowness in (1.0, 5.0):
        found = lasted_s[peer.slowness] = []

        def later(delay_s: float, *_: object, found: list[float] = found) -> None:
            found.append(delay_s)

        simulation.loop.call_later = later  # type: ignore[assignment, method-assign]
        for _ in range(2_000):
            peer.mine(header, lambda sealed: None, lambda: True)
    usual, slow = (lasted_s[slowness] for slowness in (1.0, 5.0))
    assert fmean(usual) == pytest.approx(4 * 3.0, rel=0.1), "one of four equal miners"
    assert stdev(usual) == pytest.approx(fmean(usual), rel=0.15)
    assert fmean(slow) == pytest.approx(5 * fmean(usual), rel=0.15)


def test_parts_stay_while_training_that_runs_ahead_of_time_may_read_them() -> None:
    peer, kept = trivial_simulation(trivial_scenario()).peers[0], list[frozenset[bytes]]()
    parts: Any = SimpleNamespace(keep_only=kept.append)
    peer._parts = parts
    peer.under_way.append((1, Done(contribution(0, 1, b""))))
    peer._keep_parts(frozenset())
    assert not kept
    peer.under_way.clear()
    peer._keep_parts(frozenset())
    assert kept == [frozenset()]
