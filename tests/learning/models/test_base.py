"""Every model tells its layers, and which tensors are trained."""

import pytest
import torch
from torch import nn

from fedchain.learning.models.base import (
    LayeredModel,
    exchanged_state,
    frozen_names,
    hold_back,
    normalization_names,
    tied_names,
    trainable_names,
    twin_of,
)
from fedchain.learning.models.registry import MODELS, build_model


class Two(LayeredModel):
    pools = True

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm, self.head = nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.Linear(2, 3)
        self.convolution.bias = nn.Parameter(torch.zeros(2), requires_grad=False)

    def outputs(self, images: torch.Tensor) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        hidden = self.norm(self.convolution(images))  # (B, 2, 4, 4)
        embedding = hidden.mean(dim=(2, 3))  # (B, 2)
        return (hidden, embedding), self.head(embedding)


def test_the_last_output_is_the_embedding_and_layers_of_images_are_pooled() -> None:
    model, images = Two().eval(), torch.rand(5, 1, 4, 4)
    embedding, logits = model(images)
    (first, last), again = model.layers(images)
    assert torch.equal(last, embedding)
    assert torch.equal(first, embedding), "the mean over places"
    assert torch.equal(again, logits)


def test_what_is_frozen_is_not_trained_and_norms_are_known_with_their_buffers() -> None:
    model = Two()
    assert "convolution.bias" not in trainable_names(model)
    assert {"convolution.weight", "norm.weight", "head.bias"} <= trainable_names(model)
    assert normalization_names(model) == {
        f"norm.{name}" for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    }


def test_a_frozen_tensor_with_two_names_counts_by_both_and_what_is_held_back_is_not_exchanged() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2))
    model[2].weight = model[0].weight.requires_grad_(False)
    assert frozen_names(model) == {"0.weight", "2.weight"}
    assert exchanged_state(model).keys() == model.state_dict().keys()
    hold_back(model, frozen_names(model))
    assert exchanged_state(model).keys() == model.state_dict().keys() - {"0.weight", "2.weight"}


@pytest.mark.parametrize("name", [name for name in MODELS if not name.startswith(("resnet18", "fixup"))])
def test_a_twin_is_what_its_class_builds_and_shares_nothing_with_the_first(name: str) -> None:
    model, built = (build_model(name, 7, classes=3, channels=1, features=784, size=28) for _ in range(2))
    twin = twin_of(model)
    assert [type(part) for part in twin.modules()] == [type(part) for part in built.modules()]
    for part, expected in zip(twin.modules(), built.modules(), strict=True):
        assert vars(part).keys() == vars(expected).keys()
        for key, value in vars(part).items():
            known = key in ("_parameters", "_buffers", "_modules")
            assert known or value == vars(expected)[key], "an attribute that is neither copied nor a plain value"
    own, others = twin.state_dict(), built.state_dict()
    assert own.keys() == others.keys()
    for key, value in own.items():
        assert torch.equal(value, others[key])
        assert value.stride() == others[key].stride()
    assert trainable_names(twin) == trainable_names(built)
    for value in (*twin.parameters(), *twin.buffers()):
        value.detach().zero_()
    assert all(map(torch.equal, model.state_dict().values(), others.values()))


def test_a_twin_ties_what_is_tied_in_the_first() -> None:
    model = Two()
    model.again, model.head.weight.requires_grad = model.head, False
    model.convolution.register_parameter("tied", model.head.bias)
    twin = twin_of(model)
    assert isinstance(twin, Two)
    assert twin.again is twin.head
    assert twin.head is not model.head
    assert twin.convolution.tied is twin.head.bias
    assert not twin.head.weight.requires_grad
    trained = {"convolution.tied", "head.bias", "again.bias"} & trainable_names(twin)
    assert len(trained) == 1
    assert tied_names(twin) == tuple(
        (name, *trained) for name in ("again.bias", "convolution.tied", "head.bias") if name not in trained
    ), "and no frozen weight"
    assert tied_names(Two()) == ()
