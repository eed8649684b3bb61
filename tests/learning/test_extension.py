"""A contributor's method in one file: two phases a round, the second of them the aggregator's."""

import sys
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch

from fedchain.learning.application import Application
from fedchain.learning.client import Client, Forward, Memory
from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import InvalidPayload
from fedchain.learning.learner import Learner
from fedchain.learning.method import Contributor, Method, Phase
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.payload.codec import decode
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.round import Round, Tensors
from tests.learning.federation import check

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

    setup: ClassVar[tuple[Phase, ...]] = (Phase("introduce", count),)
    phases: ClassVar[tuple[Phase, ...]] = (Phase("count", count), Phase("announce", announce, Contributor.AGGREGATOR))

    def payload_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        return (TensorSpec(NAMES.get(phase.name, "examples"), (1,), "int64", minimum=1),)

    def knowledge_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        return (TOTAL,) if phase.name == "count" else (TensorSpec("announced", (1,), "int64"),)

    def aggregate(self, phase: Phase, round: Round) -> Tensors:
        if phase.name == "announce":
            return round.posts[0].payload
        return {"total": np.array([sum(int(post.payload["examples"][0]) for post in round.posts)])}

    def loss(self, forward: Forward, images: torch.Tensor, labels: torch.Tensor, memory: Memory) -> torch.Tensor:
        return forward(images)[1].sum() * 0


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> LearningConfig:
    monkeypatch.setitem(sys.modules, "contributed", sys.modules[__name__])
    return LearningConfig(method="contributed:Census", clients=3, hyperparameters={"factor": 3})


def test_a_method_of_several_phases_runs_on_the_same_rules(config: LearningConfig) -> None:
    rules, learner = Application(config), Learner(config)
    assert rules.setup_phases == (("introduce", "participant"),)
    assert rules.phases == (("count", "participant"), ("announce", "aggregator"))
    posts = [(bytes([client]), learner.contribute(client, "count", 1, b"").payload) for client in range(3)]
    counted = rules.aggregate("count", 1, b"", posts)
    announced = learner.contribute(0, "announce", 1, counted)
    assert announced.steps == 0
    final = rules.aggregate("announce", 1, counted, [(b"aggregator", announced.payload)])
    total = int(learner.histogram().sum())
    assert decode(final, [TensorSpec("announced", (1,), "int64")])["announced"].tolist() == [3 * total]
    assert learner.contribute(1, "count", 2, final).payload == posts[1][1]


def test_a_phase_closed_empty_leaves_the_knowledge_of_the_one_before(config: LearningConfig) -> None:
    rules, learner = Application(config), Learner(config)
    counted = rules.aggregate("count", 1, b"", [(b"a", learner.contribute(0, "count", 1, b"").payload)])
    assert rules.aggregate("announce", 1, counted, []) == counted
    assert learner.contribute(1, "count", 2, counted).steps == 0
    with pytest.raises(InvalidPayload, match=r"count: .*; announce: .*; introduce: "):
        rules.read_knowledge(b"\x90")


def test_each_phase_has_its_own_payloads(config: LearningConfig) -> None:
    rules, learner = Application(config), Learner(config)
    with pytest.raises(InvalidPayload, match="names"):
        check(rules, learner.contribute(0, "count", 1, b"").payload, "announce")
