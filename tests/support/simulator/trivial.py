"""A learning task that costs nothing: what is simulated with it is the protocol alone.

Payloads are a few bytes that depend on the peer, the round and the knowledge it saw; knowledge is an exact sum over
all of them, so a peer that lost, doubled or reordered anything ends up with other bytes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from struct import Struct
from types import MappingProxyType
from typing import Any

from fedchain.chain.genesis import Genesis
from fedchain.chain.knowledge import Occasion, Rules
from fedchain.chain.storage.store import Storage
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import PublicKey
from fedchain.learning.amended import Amended
from fedchain.learning.application import Application
from fedchain.learning.executors.executor import Answer, Job, Question
from fedchain.learning.executors.inline import Done
from fedchain.learning.training.measured import Evaluation
from fedchain.learning.worker.contribution import Contribution
from fedchain.simulator.disturbances import Fault, Traitors
from fedchain.simulator.engine.measurement import RoundMetrics
from fedchain.simulator.engine.outcome import Outcome
from fedchain.simulator.engine.simulation import Simulation, Supervision
from fedchain.simulator.founding import consensus_of, found_federation, simulation_keys
from fedchain.simulator.scenario import Scenario

_PAYLOAD = Struct("<3I")  # client + 1, round, first bytes of the hash of the knowledge
_KNOWLEDGE = Struct("<4Q")  # posts so far, and the sums of the three numbers

LOCAL_STEPS = 20


class TrivialRules(Rules):
    """Adds up what was posted since the first round."""

    def check(self, occasion: Occasion, sender: PublicKey, knowledge: bytes, payload: bytes) -> None:
        if len(payload) != _PAYLOAD.size:
            raise ValueError(f"{len(payload)} bytes found, {occasion.phase} has {_PAYLOAD.size}")

    def is_slow_to_check(self, phase: str) -> bool:
        return False

    def aggregate(self, occasion: Occasion, knowledge: bytes, posts: Sequence[tuple[PublicKey, bytes]]) -> bytes:
        count, *sums = _KNOWLEDGE.unpack(knowledge) if knowledge else (0, 0, 0, 0)
        rows = [_PAYLOAD.unpack(payload) for _, payload in posts]
        rows += [_PAYLOAD.unpack(late.payload) for late in occasion.late]
        return _KNOWLEDGE.pack(count + len(rows), *(sum(column) for column in zip(sums, *rows, strict=True)))


def posts_counted(knowledge: bytes) -> int:
    """How many posts the knowledge is made of."""
    return int(_KNOWLEDGE.unpack(knowledge)[0])


class TrivialExecutor:
    """Answers at once, in this process. Peers with higher numbers are measured to be better.

    Attributes:
        asked: (client, round) of every contribution that was asked for, in order.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def planned_steps(self, client: int, phase: str, round_number: int, amended: Amended = ()) -> int:
        return LOCAL_STEPS

    def ask(self, question: Question) -> Job[Answer]:
        self.asked.append((question.client, question.round))
        return Done(contribution(question.client, question.round, question.knowledge))

    def foresee(self, question: Question) -> None:
        """It takes no time."""

    def evaluate_received(
        self, client: int, round_number: int, knowledge: bytes, *, evaluate_test: bool, amended: Amended = ()
    ) -> Job[Evaluation | None]:
        return Done(None)

    def save_model(self, client: int, path: Path) -> Job[None]:
        return Done(None)

    def close(self) -> None:
        """Nothing to stop."""


def contribution(client: int, round_number: int, knowledge: bytes) -> Contribution:
    """Contribution of a client to a round."""
    seen = int.from_bytes(sha256(knowledge)[:4], "little")
    accuracy = client / (client + round_number)
    return Contribution(
        payload=_PAYLOAD.pack(client + 1, round_number, seen),
        steps=LOCAL_STEPS,
        local=Evaluation(local_accuracy=accuracy, local_loss=1.0 / round_number),
        received=None,
    )


def trivial_scenario(**values: Any) -> Scenario:
    """A scenario whose proof of work costs next to nothing; four peers and three rounds unless given."""
    quick: dict[str, Any] = {
        "name": "trivial",
        "peers": 4,
        "rounds": 3,
        "proof_function": "sha256d",
        "mining_attempts": 4,
    }
    scenario = Scenario(**(quick | values))
    scenario.validate()
    return scenario


def troubled_scenario(**values: Any) -> Scenario:
    """A double voter, a member that falls silent, loss, and miners that find blocks at about the same time."""
    return trivial_scenario(
        peers=6,
        rounds=4,
        seed=1,
        loss=0.2,
        mining_s=0.02,
        phase_timeout_s=6.0,
        adversaries=(Traitors(behaviour="double-voter", peers=(5,)),),
        faults=(Fault(at_s=6.0, kind="crash", peers=(2,)),),
        **values,
    )


def trivial_simulation(
    scenario: Scenario,
    *,
    rules: TrivialRules | None = None,
    executor: TrivialExecutor | None = None,
    store: Storage | None = None,
    on_round: Callable[[RoundMetrics], None] = lambda row: None,
    founded: Mapping[str, Any] | None = None,
    shares_checks: bool = True,
) -> Simulation:
    """A simulation of the protocol alone, ready to run; ``founded``: what is to stand in the genesis document."""
    genesis, keys = trivial_genesis(scenario, founded or {}), simulation_keys(scenario)
    rules, executor = rules or TrivialRules(), executor or TrivialExecutor()
    supervision = Supervision(lambda row, _: on_round(row), shares_checks=shares_checks)
    simulation = Simulation(scenario, genesis, keys, rules, executor, supervision=supervision)
    if store is not None:
        simulation.keep_chain(store)
    return simulation


def trivial_genesis(scenario: Scenario, founded: Mapping[str, Any] = MappingProxyType({})) -> Genesis:
    """The genesis document of such a simulation."""
    founders = simulation_keys(scenario)[: scenario.members]
    members = tuple(key.public_key for key in founders)
    return replace(_founded(), members=members, **(consensus_of(scenario) | dict(founded)))


@cache
def _founded() -> Genesis:
    """A genesis document of the default task: to look for methods on the disk takes longer than a simulation."""
    scenario = Scenario()
    return found_federation(scenario, Application(scenario.learning_config()), simulation_keys(scenario))


def run_trivial(scenario: Scenario, **arguments: Any) -> Outcome:
    """Run :func:`trivial_simulation` to its end."""
    return trivial_simulation(scenario, **arguments).run()
