"""Stacked models: each client's values in a lane, and back in its own model where its own code looks."""

from collections.abc import Sequence

import pytest
import torch
from torch import nn
from torch.func import vmap

from fedchain.learning.models.base import Model
from fedchain.learning.training.stacked_models import StackedModels, UpToDate


class Normed(Model):
    """A model with a running mean, which counts its passes if it is to."""

    counts = False

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.output, self.passes = nn.BatchNorm1d(3), nn.Linear(3, 2), 0

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.passes += self.counts
        embedding = self.norm(images)
        return embedding, self.output(embedding)


class Counting(Normed):
    counts = True


def stacked(kind: type[Normed] = Normed, clients: int = 3) -> tuple[list[Normed], StackedModels]:
    torch.manual_seed(0)
    models = [kind() for _ in range(clients)]
    return models, StackedModels(models, None, lambda tensors: torch.stack([*tensors]))


def through_all(models: StackedModels, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Embeddings (K, B, 3) and logits (K, B, 2)."""
    found: tuple[torch.Tensor, torch.Tensor] = vmap(models.of_lane)(models.values, images)
    return found


IMAGES = torch.arange(24.0).reshape(2, 4, 3) ** 0.5


def test_a_lane_gives_what_the_model_gives_by_itself() -> None:
    alone, _ = stacked(clients=2)
    _, together = stacked(clients=2)
    embeddings, logits = through_all(together, IMAGES)
    for place, model in enumerate(alone):
        model.train()
        embedding, of_one = model(IMAGES[place])
        torch.testing.assert_close(embeddings[place], embedding)
        torch.testing.assert_close(logits[place], of_one)
        mean = together.values["model.norm.running_mean"][place]
        torch.testing.assert_close(mean, model.norm.running_mean)


def test_one_model_by_itself_moves_its_own_running_means() -> None:
    _, models = stacked(clients=2)
    _, other = stacked(clients=2)
    with models.one(1) as (forward, trained, seen):
        embedding, _ = forward(IMAGES[1])
        assert seen == [embedding]
        assert [value.shape for value in trained] == [value[1].shape for value in models.trained]
    through_all(other, IMAGES)
    means = [of.values["model.norm.running_mean"] for of in (models, other)]
    torch.testing.assert_close(means[0][1], means[1][1])
    assert means[0][0].tolist() == [0.0] * 3


def test_buffers_are_as_they_were_after_an_error() -> None:
    _, models = stacked(clients=2)

    def fail_behind() -> None:
        with models.kept_on_error():
            through_all(models, IMAGES)
            assert models.values["model.norm.running_mean"].any()
            raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        fail_behind()
    assert not models.values["model.norm.running_mean"].any()


def test_a_model_that_sets_attributes_is_refused_and_put_back() -> None:
    own, models = stacked(Counting, 2)
    with pytest.raises(Exception, match="its attributes change"), models.unchanged():
        through_all(models, IMAGES)
    assert [model.passes for model in own] == [0, 0]


def test_a_client_s_values_travel_to_its_own_model_and_back() -> None:
    own, models = stacked()
    with torch.no_grad():
        models.values["model.output.bias"][1] = 5.0
    models.write_back(1)
    assert [model.output.bias.tolist() == [5.0] * 2 for model in own] == [False, True, False]
    with torch.no_grad():
        own[2].output.bias.fill_(7.0)
    models.take_over(2)
    assert models.values["model.output.bias"][2].tolist() == [7.0] * 2


@pytest.mark.parametrize("place", [0, 1])
def test_a_model_is_brought_up_to_date_for_code_that_reads_it_and_for_no_other(place: int) -> None:
    own, models = stacked(clients=2)
    with torch.no_grad():
        models.values["model.output.bias"].fill_(5.0)
    with UpToDate(models, 1) as look:
        read: Sequence[float] = (own[place].output.bias + 0).tolist()
        torch.cat([torch.zeros(2), torch.ones(2)])
    look.take_over()
    assert (read == [5.0] * 2) == (place == 1)
    assert (own[1].output.bias.tolist() == [5.0] * 2) == (place == 1), "it is written back when it is read"
    assert models.values["model.output.bias"].tolist() == [[5.0] * 2] * 2


def test_changes_of_a_client_s_own_code_are_taken_over() -> None:
    own, models = stacked(clients=2)
    with UpToDate(models, 0) as look, torch.no_grad():
        own[0].output.bias.fill_(7.0)
    look.take_over()
    assert [bias.tolist() == [7.0] * 2 for bias in models.values["model.output.bias"]] == [True, False]
