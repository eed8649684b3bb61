import torch

from fedchain.learning.models.base import Model
from fedchain.learning.models.prototypes import (
    EVALUATION_BATCH,
    calculate_prototypes,
    class_means,
    forward_all,
    nearest_prototype,
)


class Doubling(Model):
    """Embeds an image as twice its pixels while evaluating, and as nothing while training."""

    embedding_size = 2
    classes = 3

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        embedding = images.flatten(1) * (0.0 if self.training else 2.0)
        return embedding, torch.zeros(len(images), 3)


def test_a_prototype_is_the_mean_embedding_of_its_class() -> None:
    embeddings = torch.tensor([[1.0, 2.0], [3.0, 6.0], [5.0, 5.0]])
    means = class_means(embeddings, torch.tensor([2, 2, 0]), classes=4)
    assert means.labels.tolist() == [0, 2]
    assert means.counts.tolist() == [1, 2]
    assert means.prototypes.tolist() == [[5.0, 5.0], [2.0, 4.0]]


def test_prototypes_are_calculated_in_evaluation_mode() -> None:
    model = Doubling().train()
    means = calculate_prototypes(model, torch.tensor([[[[1.0, 3.0]]], [[[3.0, 5.0]]]]), torch.tensor([1, 1]))
    assert means.labels.tolist() == [1]
    assert means.prototypes.tolist() == [[4.0, 8.0]]


def test_all_images_are_seen_whatever_the_batch() -> None:
    images = torch.arange(2.0 * (EVALUATION_BATCH + 1)).reshape(-1, 1, 1, 2)
    embeddings, logits = forward_all(Doubling(), images)
    assert torch.equal(embeddings, images.flatten(1) * 2)
    assert logits.shape == (EVALUATION_BATCH + 1, 3)


def test_the_nearest_prototype_gives_its_label() -> None:
    prototypes = torch.tensor([[0.0, 0.0], [10.0, 0.0]])
    found = nearest_prototype(torch.tensor([[4.9, 0.0], [5.1, 0.0], [0.0, 9.0]]), torch.tensor([7, 3]), prototypes)
    assert found.tolist() == [7, 3, 7]


def test_the_nearest_prototype_is_that_at_the_least_euclidean_distance() -> None:
    """By the sum of the differences it would be the other one."""
    prototypes = torch.tensor([[3.0, 0.0], [2.0, 2.0]])
    assert nearest_prototype(torch.zeros(1, 2), torch.tensor([7, 8]), prototypes).tolist() == [8]
