"""Gradients against torch's own, to the bit, and its errors."""

import pytest
import torch
import torch.nn.functional as F

from fedchain.learning.models.base import Model
from fedchain.learning.models.registry import build_model
from fedchain.learning.models.vectors import trained_parameters
from fedchain.learning.training.gradients import gradients_of


def loss_of(model: Model, seed: int = 3) -> torch.Tensor:
    torch.manual_seed(seed)
    images = torch.randn(8, 1, 28, 28)
    return F.cross_entropy(model(images)[1], torch.arange(8) % 10)


@pytest.mark.parametrize("name", ["cnn", "logistic", "mlp-bn"])
def test_gradients_are_torchs_to_the_bit(name: str) -> None:
    model = build_model(name, 1, classes=10, channels=1, size=28, features=784)
    parameters = trained_parameters(model)
    expected = torch.autograd.grad(loss_of(model), parameters)
    loss = loss_of(model)
    found = gradients_of(loss, parameters)
    assert all(map(torch.equal, found, expected))
    assert not any(gradient.requires_grad for gradient in found)
    assert all(value.grad is None for value in parameters)
    with pytest.raises(RuntimeError, match="second time"):  # the pass is over, and its memory free
        torch.autograd.grad(loss, parameters)


def test_a_parameter_that_the_loss_does_not_depend_on_has_a_gradient_of_zeros() -> None:
    used, unused = torch.ones(3, requires_grad=True), torch.ones(2, 2, requires_grad=True)
    gradients = gradients_of((2 * used).sum(), [used, unused])
    assert [gradient.tolist() for gradient in gradients] == [[2.0, 2.0, 2.0], [[0.0, 0.0], [0.0, 0.0]]]


def test_a_loss_in_a_list_of_one_or_in_double_precision_is_a_number() -> None:
    value = torch.tensor([3.0], requires_grad=True)
    assert gradients_of(value.square(), [value])[0].tolist() == [6.0]
    double = torch.tensor(3.0, dtype=torch.float64, requires_grad=True)
    assert gradients_of(double.square(), [double])[0].dtype == torch.float64


def test_what_is_no_loss_is_refused_as_torch_refuses_it() -> None:
    value = torch.ones(3, requires_grad=True)
    for loss, error in (
        (2 * value, "only for scalar outputs"),
        (value.sum() * 1j, "only for real scalar outputs"),
        (torch.tensor(1.0), "does not require grad"),
    ):
        with pytest.raises(RuntimeError, match=error):
            torch.autograd.grad(loss, [value], materialize_grads=True)
        with pytest.raises(RuntimeError, match=error):
            gradients_of(loss, [value])
