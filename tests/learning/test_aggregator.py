"""The dedicated aggregator as a client: it is number K, has a model and no examples, and a state of its own."""

import re
import sys
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from fedchain.learning.application import Application
from fedchain.learning.client import Client
from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.method import Contributor, Phase
from fedchain.learning.methods.fedavg import FedAvg
from fedchain.learning.round import OffChain, Round, Tensors
from fedchain.learning.task.custom import describe_task
from fedchain.learning.worker.learner import Learner
from tests.support.learning.federation import Federation
from tests.support.learning.own_task import Net, config, load, points
from tests.support.learning.tally import Book

TALLY = LearningConfig(method="tests.support.learning.tally:Tally", clients=3)


def test_the_aggregator_has_a_model_and_no_examples() -> None:
    learner = Learner(TALLY)
    with learner.lend(3, 1) as aggregator, learner.lend(0, 1) as first:
        assert (aggregator.index, aggregator.classes) == (3, ())
        assert aggregator.train_images.shape == aggregator.test_images.shape == (0, 1, 8, 8)
        assert aggregator.train_labels.dtype == aggregator.test_labels.dtype == torch.int64
        assert aggregator.train_images.dtype == torch.float32
        ours, theirs = aggregator.model.state_dict(), first.model.state_dict()
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert learner.histogram().shape == (3, 10)
    with pytest.raises(ConfigurationError, match="client must be between 0 and 3, not 4"):
        learner.prepare(4)


def test_nobody_but_a_dedicated_aggregator_is_client_k() -> None:
    for learner in (Learner(TALLY, members=[b"a", b"b", b"c"]), Learner(LearningConfig(clients=3))):
        with pytest.raises(ConfigurationError, match="client must be between 0 and 2, not 3"):
            learner.prepare(3)
    Learner(LearningConfig(clients=3), members=[b"a", b"b", b"c", b"d"]).prepare(3)


def test_the_aggregator_reads_no_data_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDCHAIN_DATA", raising=False)
    learner = Learner(replace(TALLY, dataset="cifar10", data_dir="/nowhere"))
    with learner.lend(3, 1) as aggregator:
        assert aggregator.train_images.shape == (0, 3, 32, 32)


def test_a_frozen_backbone_sees_no_examples_either() -> None:
    learner = Learner(replace(TALLY, dataset="cifar10", model="frozen-2", data_dir="/nowhere"))
    with learner.lend(3, 1) as aggregator:
        assert aggregator.train_images.shape == (0, 512)


def test_its_state_is_checkpointed_like_everybody_s() -> None:
    federation = Federation(TALLY)
    federation.play(2)
    examples = int(federation.learner.histogram().sum())
    assert federation.known()["total"].tolist() == [2 * examples]
    again = Federation(TALLY)
    again.knowledge, again.round = federation.knowledge, federation.round
    again.learner.restore(3, federation.learner.checkpoint(3))
    federation.play()
    again.play()
    assert again.knowledge == federation.knowledge
    assert again.client(3).state(Book) == Book(rounds=3, total=3 * examples)


@dataclass(frozen=True, kw_only=True)
class TrainsLast(FedAvg):
    """The aggregator trains as well, after the clients."""

    aggregator: ClassVar[str] = "dedicated"

    @property
    def phases(self) -> tuple[Phase, ...]:
        return (*super().phases, Phase("distil", Contributor.AGGREGATOR, trains=True))

    def distil(self, client: Client, round: Round) -> Tensors:
        return {**self.post_model(client), "examples": np.array([1])}


def test_a_phase_in_which_the_aggregator_trains_takes_the_steps_of_all_examples_and_is_not_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "contributed", sys.modules[__name__])
    settings = {"local_epochs": 1, "batch_size": 10}
    chosen = LearningConfig(method="contributed:TrainsLast", clients=3, hyperparameters=settings)
    learner = Learner(chosen)
    of_each = learner.histogram().sum(axis=1)
    assert learner.planned_steps(3, "distil", 1) == int(of_each.sum()) // 10
    assert learner.planned_steps(1, "update", 1) == int(of_each[1]) // 10
    rules = Application(chosen)
    made = learner.contribute(0, "update", 1, b"")
    knowledge = rules.aggregate(OffChain("update", 1), b"", [(b"a", made.payload)])
    distilled = learner.contribute(3, "distil", 1, knowledge, evaluate_test=True)
    assert (made.local is None, distilled.local) == (False, None)
    assert learner.evaluate_received(3, 2, knowledge, evaluate_test=True) is None


def test_with_own_data_the_aggregator_s_model_is_the_function_s_and_its_sets_are_not_looked_at() -> None:
    def without_data(member: int, members: int) -> tuple[Any, Any, Any]:
        return load(member, members) if member < members else (Net, None, "nothing")

    chosen = describe_task(config("tests.support.learning.tally:Tally", hyperparameters={}), load)
    learner = Learner(chosen, without_data)
    with learner.lend(3, 1) as aggregator:
        assert isinstance(aggregator.model, Net)
        assert aggregator.train_images.shape == (0, 4)
        embedding, logits = aggregator.model(points(2)[0])
    assert (embedding.shape, logits.shape) == ((2, 6), (2, 3))
    with pytest.raises(ConfigurationError, match=re.escape("(model, train set, test set) must be returned, not None")):
        Learner(chosen, lambda: None).prepare(3)
