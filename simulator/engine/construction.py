"""Construction: builds the network and the peers of a scenario, before any time passes."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedchain.chain.genesis import Genesis
from fedchain.chain.knowledge import Rules as ChainRules
from fedchain.chain.state import genesis_state
from fedchain.chain.storage.store import MemoryStore
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PrivateKey
from fedchain.learning.executors.executor import Executor
from fedchain.learning.payload.part_folder import LinkedPartFolder
from fedchain.learning.seeding import derive
from fedchain.node.core.checks import Checks
from fedchain.node.core.posts import NO_GOOD_POSTS
from fedchain.simulator.adversaries.adversary import Coalition
from fedchain.simulator.adversaries.registry import build_adversary
from fedchain.simulator.engine.clock import VirtualTimeLoop, WallClock
from fedchain.simulator.engine.network import Conditions, NetworkWatch, SimulatedNetwork
from fedchain.simulator.engine.peer import Behaviour, Machine, Observer, Pace, SimulatedPeer, Surroundings
from fedchain.simulator.engine.sealing import Seal
from fedchain.simulator.engine.shared.content_pool import ContentPool
from fedchain.simulator.engine.shared.shared_posts import SharedPosts
from fedchain.simulator.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Construction:
    """Builds a scenario's network and its peers."""

    scenario: Scenario
    """Validated."""
    genesis: Genesis
    keys: Sequence[PrivateKey]
    """The keys of all that ever take part, by peer number."""
    rules: ChainRules
    loop: VirtualTimeLoop
    contents: ContentPool
    """The one copy of each content, for all peers."""
    checks: Checks | None
    """The checks of all peers; None if each has its own."""

    def network(self, watch: NetworkWatch) -> SimulatedNetwork:
        """The network between the peers, under the scenario's conditions."""
        scenario = self.scenario
        return SimulatedNetwork(
            self.loop,
            [key.public_key for key in self.keys],
            Conditions(
                delay_min_ms=scenario.delay_min_ms,
                delay_max_ms=scenario.delay_max_ms,
                loss=scenario.loss,
                replay=scenario.replay,
                bandwidth_mbit_s=scenario.bandwidth_mbit_s,
                degree=scenario.degree,
            ),
            derive(scenario.seed, "network"),
            watch,
            self.contents.share,
            founders=len(genesis_state(self.genesis).roster),
        )

    def surroundings(
        self,
        network: SimulatedNetwork,
        executor: Executor,
        seal: Seal,
        observer: Observer,
        restart: Callable[[SimulatedPeer], None],
    ) -> Surroundings:
        """Objects and settings that all peers share."""
        return Surroundings(
            self.loop,
            network,
            self.genesis,
            executor,
            seal,
            pace_of(self.scenario),
            NO_GOOD_POSTS if self.checks is None else SharedPosts(),
            self.contents,
            self._evaluates_test(),
            observer,
            self.scenario.train_ahead,
            restart,
        )

    def peers(self, around: Surroundings, parts: Path | None) -> Iterator[SimulatedPeer]:
        """The peers, by number.

        Args:
            around: the result of :meth:`surroundings`.
            parts: folder with each peer's parts; None if posts have none.
        """
        scenario = self.scenario
        behaviours, rates = self._behaviours(), dict(enumerate(scenario.hash_rates))
        pool: dict[Hash, Any] = {}
        known_parts: dict[Hash, Path] = {}
        correct = WallClock()
        for number, key in enumerate(self.keys):
            settings = [setting for setting in scenario.clocks if number in setting.peers]
            clock = WallClock(settings) if settings else correct
            draw = random.Random(derive(scenario.seed, "peer", number))
            folder = None if parts is None else LinkedPartFolder(parts / str(number), known_parts)
            yield SimulatedPeer(
                number,
                key,
                self.checks or Checks(self.genesis, self.rules, self.contents.intern),
                Machine(MemoryStore(pool, self.contents.shelf()), clock, draw, folder, rates.get(number, 1.0)),
                around,
                behaviours.get(number),
            )

    def _behaviours(self) -> dict[int, Behaviour]:
        """Behaviours of the traitors, by peer number."""
        traitors = {number for row in self.scenario.adversaries for number in row.peers}
        if not traitors:
            return {}
        honest = tuple(number for number in range(len(self.keys)) if number not in traitors)
        known = tuple(self.keys[number] for number in sorted(traitors))
        coalition = Coalition(self.genesis, self.rules, self.loop, known, honest)
        built: dict[int, Behaviour] = {}
        for row in self.scenario.adversaries:
            for number in row.peers:
                draw = random.Random(derive(self.scenario.seed, "adversary", number))
                built[number] = build_adversary(row.behaviour, coalition, draw, row.parameters)
        return built

    def _evaluates_test(self) -> Callable[[int], bool]:
        """A function that says whether models are measured on the whole test set in a round. Each contribution asks it,
        and to find the last round takes a look at all changes.
        """
        every, last = self.scenario.test_every, self.scenario.last_round
        return lambda round_number: every > 0 and (round_number % every == 0 or round_number == last)


def pace_of(scenario: Scenario) -> Pace:
    """Speeds of a peer; all miners together need ``mining_s`` for ``mining_attempts`` hashes at equal rates."""
    members = scenario.members
    awake = scenario.contributors_per_round + scenario.committee_size if scenario.idle_sleep else members
    miners = 1 if scenario.centralized else min(awake, members)
    return Pace(scenario.iteration_s, scenario.mining_attempts / (scenario.mining_s * miners))
