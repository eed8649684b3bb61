"""A contributor's method in one file: two phases a round, the second of them the aggregator's."""

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from fedchain.learning.application import Application
from fedchain.learning.client import Client
from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import ConfigurationError, InvalidPayload
from fedchain.learning.knowledge import write_knowledge
from fedchain.learning.method import Contributor, Lifetime, Method, Phase
from fedchain.learning.methods.fedavg import FedAvg
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.models.prototypes import forward_all
from fedchain.learning.payload.codec import document
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.round import OffChain, Round, Tensors
from fedchain.learning.worker.learner import Learner
from tests.support.learning.federation import check, read_payload

TOTAL = TensorSpec("total", (1,), "int64", minimum=1)
NAMES = {"count": "examples", "announce": "announced"}


@dataclass(frozen=True, kw_only=True)
class Census(Method):
    """Counts all examples; the aggregator announces the count times a factor."""

    factor: int = 2

    def count(self, client: Client, round: Round) -> Tensors:
        return {"examples": np.array([len(client.train_labels)])}

    def announce(self, client: Client, round: Round) -> Tensors:
        assert round.knowledge is not None
        return {"announced": round.knowledge["total"] * self.factor}

    introduce = count

    @property
    def setup(self) -> tuple[Phase, ...]:
        return (Phase("introduce"),)

    @property
    def phases(self) -> tuple[Phase, ...]:
        return Phase("count", quorum=2), Phase("announce", Contributor.AGGREGATOR)

    def payload_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        return (TensorSpec(NAMES.get(phase.name, "examples"), (1,), "int64", minimum=1),)

    def knowledge_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        return (TOTAL,) if phase.name == "count" else (TensorSpec("announced", (1,), "int64"),)

    def aggregate(self, phase: Phase, round: Round) -> Tensors:
        if phase.name == "announce":
            return round.posts[0].payload
        return {"total": np.array([sum(int(post.payload["examples"][0]) for post in round.posts)])}


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> LearningConfig:
    monkeypatch.setitem(sys.modules, "contributed", sys.modules[__name__])
    return LearningConfig(method="contributed:Census", clients=3, hyperparameters={"factor": 3})


def test_a_method_of_several_phases_runs_on_the_same_rules(config: LearningConfig) -> None:
    rules, learner = Application(config), Learner(config)
    assert rules.setup_phases == (("introduce", "participant", 0),)
    assert rules.phases == (("count", "participant", 2), ("announce", "aggregator", 0))
    posts = [(bytes([client]), learner.contribute(client, "count", 1, b"").payload) for client in range(3)]
    counted = rules.aggregate(OffChain("count", 1), b"", posts)
    announced = learner.contribute(0, "announce", 1, counted)
    assert announced.steps == 0
    assert announced.local is None
    final = rules.aggregate(OffChain("announce", 1), counted, [(b"aggregator", announced.payload)])
    known = rules.read_knowledge(final)
    assert known is not None
    assert known["announced"].tolist() == [3 * int(learner.histogram().sum())]
    assert learner.contribute(1, "count", 2, final).payload == posts[1][1]


def test_a_phase_closed_empty_leaves_the_knowledge_of_the_one_before(config: LearningConfig) -> None:
    rules, learner = Application(config), Learner(config)
    counted = rules.aggregate(OffChain("count", 1), b"", [(b"a", learner.contribute(0, "count", 1, b"").payload)])
    assert rules.aggregate(OffChain("announce", 1), counted, []) == counted
    assert learner.contribute(1, "count", 2, counted).steps == 0
    with pytest.raises(InvalidPayload, match="parts of 1 to 3 phases expected, found 0"):
        rules.read_knowledge(b"\x90")


def test_each_phase_has_its_own_payloads(config: LearningConfig) -> None:
    rules, learner = Application(config), Learner(config)
    with pytest.raises(InvalidPayload, match="names"):
        check(rules, learner.contribute(0, "count", 1, b"").payload, "announce")


@dataclass(frozen=True, kw_only=True)
class Silent(FedAvg):
    """Overrides one thing and repeats nothing."""

    def update(self, client: Client, round: Round) -> Tensors:
        return {**super().update(client, round), "examples": np.array([7])}


def test_an_overridden_update_is_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "contributed", sys.modules[__name__])
    chosen = LearningConfig(method="contributed:Silent", clients=3, hyperparameters={"local_steps": 1})
    rules, made = Application(chosen), Learner(chosen).contribute(0, "update", 1, b"")
    assert read_payload(rules, made.payload)["examples"].tolist() == [7]


@dataclass(frozen=True, kw_only=True)
class ThreePhases(FedAvg):
    """Trains in the first phase only."""

    @property
    def phases(self) -> tuple[Phase, ...]:
        return (*super().phases, Phase("rest"), Phase("tidy_up"))

    def rest(self, client: Client, round: Round) -> Tensors:
        return self.post_model(client)

    tidy_up = rest


def test_a_third_phase_costs_no_training_time_and_no_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "contributed", sys.modules[__name__])
    chosen = LearningConfig(method="contributed:ThreePhases", clients=3, hyperparameters={"local_steps": 4})
    rules, learner, knowledge = Application(chosen), Learner(chosen), b""
    monkeypatch.setattr("fedchain.learning.training.evaluation.forward_all", counted := Counted(forward_all))
    for number in (1, 2):
        for phase, steps, passes in (("update", 4, number), ("rest", 0, 0), ("tidy_up", 0, 0)):
            before = counted.calls
            assert learner.planned_steps(0, phase, 1) == steps
            made = learner.contribute(0, phase, number, knowledge)
            assert (made.steps, made.local is not None) == (steps, phase == "update")
            assert counted.calls - before == passes, "what was received, from round 2 on, and what was trained"
            knowledge = rules.aggregate(OffChain(phase, number), knowledge, [(b"a", made.payload)])


class Counted:
    """Counts calls of a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.calls, self._function = 0, function

    def __call__(self, *arguments: Any) -> Any:
        self.calls += 1
        return self._function(*arguments)


def phased(names: Sequence[str], **members: Any) -> type[Method]:
    """A method with phases of these names."""
    phases = property(lambda self: tuple(Phase(name) for name in names))
    return dataclass(frozen=True, kw_only=True)(type("Phased", (Census,), {"phases": phases, **members}))


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (phased(["count", "count"]), "phases of Phased are named twice: introduce, count, count"),
        (phased(["reveal"]), "phase 'reveal': Phased has no method of that name"),
        (phased(["factor"]), "phase 'factor': Phased has no method of that name"),
        (phased(["check"]), "phase 'check' has the name of something else that every method has"),
        (phased(["work"]), "phase 'work' has the name of something else"),
    ],
)
def test_phases_without_a_method_of_their_own_are_refused(method: type[Method], message: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        method()


def test_a_phase_of_every_round_leaves_nothing_for_ever() -> None:
    eternal = property(lambda self: (Phase("count", lifetime=Lifetime.FEDERATION),))
    method: type[Method] = dataclass(frozen=True, kw_only=True)(type("Eternal", (Census,), {"phases": eternal}))
    with pytest.raises(ConfigurationError, match="phase 'count' runs in every round"):
        method()


@dataclass(frozen=True, kw_only=True)
class Keys(Census):
    """A method whose setup leaves something that stands beside the knowledge in every round."""

    @property
    def setup(self) -> tuple[Phase, ...]:
        return (Phase("introduce", lifetime=Lifetime.FEDERATION),)

    @property
    def phases(self) -> tuple[Phase, ...]:
        return (Phase("count"),)

    def knowledge_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        return (TOTAL,)


def test_what_the_setup_leaves_for_ever_stands_beside_the_knowledge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "contributed", sys.modules[__name__])
    chosen = LearningConfig(method="contributed:Keys", clients=3)
    rules, learner = Application(chosen), Learner(chosen)
    known = rules.aggregate(OffChain("introduce", 0), b"", [(b"a", learner.contribute(0, "introduce", 0, b"").payload)])
    introduced = learner._contributing.knowledge.read(known)
    assert rules.read_knowledge(known) is None
    for number in (1, 2, 3):
        payload = learner.contribute(1, "count", number, known).payload
        known = rules.aggregate(OffChain("count", number), known, [(b"a", payload)])
        assert [(part.phase, part.round) for part in learner._contributing.knowledge.read(known)] == [
            ("count", number),
            ("introduce", 0),
        ]
        assert learner._contributing.knowledge.read(known)[1] == introduced[0]
        assert rules.read_knowledge(known) is not None


KNOWN = write_knowledge([("count", 1, document({"total": np.array([3])}))])


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        (KNOWN + b"\0", "bytes expected, found"),
        (KNOWN[:-1], "bytes expected, found"),
        (KNOWN.replace(b"count", b"other"), "one of introduce, count, announce expected, found phase 'other'"),
        (write_knowledge([("count", 1, (1, [b"\x90"]))] * 2), "tensors: an array of 1 expected, found 0"),
        (b"\x92" + KNOWN[1:] * 2, "another order than count, count expected"),
        (
            write_knowledge([("announce", 1, document({"announced": np.array([3])}))])[:1] + b"\x92",
            "found an array of 2",
        ),
        (
            write_knowledge(
                [
                    ("introduce", 0, document({"announced": np.array([3])})),
                    ("count", 1, document({"total": np.array([3])})),
                ]
            ),
            "one phase's expected, found introduce, count",
        ),
        (KNOWN.replace(b"count\x01", b"count\xcc\x01"), "canonical form: the shortest of integer 1 expected"),
    ],
)
def test_damaged_knowledge_is_refused(config: LearningConfig, damaged: bytes, message: str) -> None:
    rules = Application(config)
    assert rules.read_knowledge(KNOWN) == {"total": np.array([3])}
    with pytest.raises(InvalidPayload, match=re.escape(message)):
        rules.read_knowledge(damaged)
