import math

import pytest
import torch

from fedchain.learning.models.base import Model
from fedchain.learning.training.evaluation import evaluate, evaluate_local
from fedchain.learning.training.measured import Evaluation, calculate_taa, calculate_tal


class Parrot(Model):
    """Its images are its logits, and its embeddings."""

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return images.flatten(1), images.flatten(1)


class Doubled(Parrot):
    """Its embeddings are twice its images."""

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return 2 * images.flatten(1), images.flatten(1)


def test_accuracy_and_loss_against_the_formula() -> None:
    logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0]])
    accuracy, loss = evaluate(Parrot(), logits, torch.tensor([0, 1, 1]))
    assert accuracy == pytest.approx(2 / 3)
    expected = (math.log(1 + math.exp(-2)) + math.log(1 + math.exp(-1)) + math.log(1 + math.exp(3))) / 3
    assert loss == pytest.approx(expected)


def test_prediction_by_prototype() -> None:
    images = torch.tensor([[0.0, 1.0], [0.0, 8.0], [0.0, 9.0], [0.0, 2.0]])
    prototypes = torch.tensor([[0.0, 0.0], [0.0, 10.0]])
    found = evaluate_local(Parrot(), images, torch.tensor([0, 1, 0, 0]), prototypes, torch.tensor([0, 1]))
    assert found.prototype_accuracy == 3 / 4
    backwards = evaluate_local(Parrot(), images, torch.tensor([0, 1, 0, 0]), prototypes.flip(0), torch.tensor([1, 0]))
    assert backwards.prototype_accuracy == 3 / 4, "a method of one's own may list them in any order"


def test_the_term_beside_cross_entropy_sees_embeddings() -> None:
    images = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    found = evaluate_local(Doubled(), images, torch.tensor([0, 1]), auxiliary=lambda one, labels: (1.0, one.sum()))
    assert found.auxiliary_loss == 6.0


def test_the_term_beside_cross_entropy_is_weighted_once() -> None:
    images, labels = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1])
    found = evaluate_local(Parrot(), images, labels, auxiliary=lambda embeddings, labels: (0.5, embeddings.sum()))
    assert found.auxiliary_loss == 3.0
    assert found.local_objective == pytest.approx(found.local_loss + 1.5)
    assert evaluate_local(Parrot(), images, labels).local_objective is None


def test_every_client_counts_once() -> None:
    evaluations = [Evaluation(1.0, 0.2), Evaluation(0.5, 0.4)]
    assert calculate_taa(evaluations) == 0.75
    assert calculate_tal(evaluations) == pytest.approx(0.3)
