"""Cost of a local step in each method, beside FedAvg's: CPU time of a client's work in round 2.

By then clients have received knowledge and have their memories. Images are random, in Fashion-MNIST's shape.
A step is measured as the difference between a long update and a usual one: work that is done once a round cancels out.
"""

import time
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import torch

from fedchain.learning.application import Application
from fedchain.learning.config import LearningConfig
from fedchain.learning.families.local_sgd import LocalSgdMethod
from fedchain.learning.method import Contributor
from fedchain.learning.models.registry import build_model
from fedchain.learning.registry import METHODS
from fedchain.learning.round import OffChain, Round
from fedchain.learning.task.custom import describe_task
from fedchain.learning.worker.checkpoint import copy_state, restore_state
from fedchain.learning.worker.learner import Learner

CLIENTS = 4
EXAMPLES, CLASSES_OF_CLIENT = 300, 3
"""Examples and classes of each client, as DFPL's tables deal them on average."""

STEPS, STEPS_LONG, BATCH_SIZE = 20, 60, 32

OTHER_NETWORKS = frozenset({"feddkc", "fededs", "fedgkt", "fedict"})
"""Methods that train networks of other kinds: they are split, or end with a pooling."""


@dataclass(frozen=True, slots=True)
class StepCost:
    """CPU milliseconds."""

    step_ms: float
    """Time of one more local step; not a number for SGD, which takes exactly one."""

    update_ms: float
    """Time of a usual update: receive, train, make the post."""


def run(repetitions: int) -> dict[str, list[float]]:
    """Method -> ms of a step, of an update, and the medians of their ratios to FedAvg's, measured in turns."""
    updates = {name: Update(name) for name in measured_methods()}
    plain = updates["fedavg"]
    for update in updates.values():
        update.measure()  # the first time loads what torch loads late
    pairs: dict[str, list[tuple[StepCost, StepCost]]] = {name: [] for name in updates}
    for _ in range(repetitions):
        for name, update in updates.items():
            beside = plain.measure()
            pairs[name].append((update.measure(), beside))
    return {
        name: [
            median(ours.step_ms for ours, _ in found),
            median(ours.update_ms for ours, _ in found),
            median(ours.step_ms / beside.step_ms for ours, beside in found),
            median(ours.update_ms / beside.update_ms for ours, beside in found),
        ]
        for name, found in pairs.items()
    }


def measured_methods() -> list[str]:
    """The methods that train such a network."""
    return sorted(set(METHODS) - OTHER_NETWORKS)


class Update:
    """One client at the beginning of its second round, over and over again."""

    def __init__(self, method: str) -> None:
        few = {} if method == "sgd" else {"local_steps": STEPS, "local_epochs": 0}
        chosen = LearningConfig(method=method, clients=CLIENTS, hyperparameters={"batch_size": BATCH_SIZE, **few})
        config = describe_task(chosen, random_task)
        self._learner, rules, knowledge = Learner(config, random_task), Application(config), b""
        assert isinstance(self._learner.method, LocalSgdMethod)
        self._method = self._learner.method
        for phase in (*self._method.setup, *self._method.phases):
            senders = range(CLIENTS if phase.by is Contributor.PARTICIPANT else 1)
            made = [self._learner.contribute(client, phase.name, 1, knowledge) for client in senders]
            knowledge = rules.aggregate(
                OffChain(phase.name, 1), knowledge, [(bytes([client]), made[client].payload) for client in senders]
            )
        self._round = Round(2, rules.read_knowledge(knowledge), clients=CLIENTS)

    def measure(self) -> StepCost:
        """A usual update and a long one."""
        usual_ms = self._cpu_ms(STEPS)
        if self._method.local_steps != STEPS:
            return StepCost(float("nan"), usual_ms)
        return StepCost((self._cpu_ms(STEPS_LONG) - usual_ms) / (STEPS_LONG - STEPS), usual_ms)

    def _cpu_ms(self, steps: int) -> float:
        """Receive, train and make the post of the first phase; then the client is put back as it was."""
        method = self._method
        if method.local_steps != 1:
            method = replace(method, local_steps=steps)
        with self._learner.lend(0, self._round.number) as client:
            before = copy_state(client)
            begun = time.process_time()
            method.receive(client, self._round)
            method.update(client, self._round)
            spent_s = time.process_time() - begun
            restore_state(client, before)
        return 1000 * spent_s


def random_task(member: int, seed: int) -> tuple[Any, Any, Any]:
    """A client's (model, train set, test set): 21,840 parameters and noise."""
    images = torch.randn(EXAMPLES, 1, 28, 28, generator=torch.Generator().manual_seed(member))
    labels = (torch.arange(EXAMPLES) + member) % CLASSES_OF_CLIENT
    return build_model("cnn", seed), (images, labels), (images[:32], labels[:32])
