"""Logistic regressions of many clients, trained at once: the same as one after another, but for rounding."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fedchain.learning.application import Application
from fedchain.learning.client import Forward
from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import TrainingDiverged
from fedchain.learning.families.local_sgd import LocalSgdMethod
from fedchain.learning.methods.fedavg import FedAvg
from fedchain.learning.payload.codec import decode
from fedchain.learning.registry import METHODS, HyperparameterValue, build_method
from fedchain.learning.round import OffChain
from fedchain.learning.training.linear import SCALARS_MAX
from fedchain.learning.worker.contribution import Contribution
from fedchain.learning.worker.learner import Learner

TOGETHER = {"blade-fl", "fedadam", "fedavg", "fedprox", "sgd"}

CLIENTS = range(5)


def config(method: str = "fedavg", **hyperparameters: HyperparameterValue) -> LearningConfig:
    """Five clients, of which some have fewer examples than a batch."""
    return LearningConfig(
        method=method,
        hyperparameters=hyperparameters,
        model="logistic",
        clients=len(CLIENTS),
        partition="dirichlet",
        train_examples=150,
    )


def tensors(chosen: LearningConfig, made: Contribution) -> dict[str, np.ndarray[Any, Any]]:
    rules = Application(chosen)
    return dict(decode(made.payload, rules.method.payload_spec(rules.method.phases[0], rules.info)))


@pytest.mark.long
@pytest.mark.parametrize(
    "chosen",
    [
        config(),
        config("fedprox", proximal_weight=0.5, momentum=0.9, weight_decay=0.01),
        config("fedavg", local_epochs=2, batch_size=16),
        config("sgd"),
        config("blade-fl"),
    ],
    ids=lambda chosen: chosen.method,
)
@pytest.mark.parametrize("scalars", [SCALARS_MAX, 3 * 5 * 32 * 64])
def test_many_at_once_learn_what_they_learn_alone(
    chosen: LearningConfig, scalars: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedchain.learning.training.linear.SCALARS_MAX", scalars)
    rules, alone, together = Application(chosen), Learner(chosen), Learner(chosen)
    assert len({len(alone.source.train_labels(client, 0)) < 32 for client in CLIENTS}) == 2
    knowledge = b""
    for number in (1, 2):
        expected = [alone.contribute(client, "update", number, knowledge) for client in CLIENTS]
        found = together.contribute_together(CLIENTS, "update", number, knowledge)
        assert list(found) == list(CLIENTS)
        for one, other in zip(expected, found.values(), strict=True):
            assert (one.steps, one.scalars) == (other.steps, other.scalars)
            assert one.trained.local_loss == pytest.approx(other.trained.local_loss, rel=1e-4)
            theirs, ours = tensors(chosen, one), tensors(chosen, other)
            assert theirs.keys() == ours.keys()
            for name, tensor in theirs.items():
                np.testing.assert_allclose(ours[name], tensor, rtol=1e-4, atol=1e-6)
        posts = [(bytes([client]), made.payload) for client, made in enumerate(expected)]
        knowledge = rules.aggregate(OffChain("update", number), knowledge, posts)


def test_which_methods_train_together() -> None:
    built = {name: build_method(name, {}) for name in METHODS}
    found = {name for name, method in built.items() if isinstance(method, LocalSgdMethod) and method.trains_together}
    assert found == TOGETHER


@dataclass(frozen=True, kw_only=True)
class OtherLoss(FedAvg):
    """A method that overrides something that training at once does not know of."""

    def loss(self, forward: Forward, images: torch.Tensor, labels: torch.Tensor, given: Any) -> torch.Tensor:
        return 2 * F.cross_entropy(forward(images)[1], labels)


def test_what_a_method_overrides_is_never_left_out() -> None:
    assert FedAvg().trains_together
    assert not OtherLoss().trains_together


def test_other_models_and_one_s_own_loss_are_left_to_who_asks_one_by_one() -> None:
    assert Learner(replace(config(), model="auto")).contribute_together(CLIENTS, "update", 1, b"") == {}
    assert Learner(config("scaffold")).contribute_together(CLIENTS, "update", 1, b"") == {}


def test_who_diverges_is_as_before_and_says_so_alone() -> None:
    learner = Learner(config(learning_rate=1e3))
    before = learner.checkpoint(2)
    with learner._clients.use(2) as client:
        client.train_images[:] = 1e30
    found = learner.contribute_together(CLIENTS, "update", 1, b"")
    assert 2 not in found
    assert learner.checkpoint(2) == before
    with pytest.raises(TrainingDiverged):
        learner.contribute(2, "update", 1, b"")
