"""Lanes: what is computed there in another way is what each lane computes by itself, however it is asked for."""

from itertools import count
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.func import vmap

from fedchain.learning.training import lanes
from fedchain.learning.training.lanes import InLanes

LANES = 3

ASKED: list[dict[str, Any]] = [
    {},
    {"stride": 2},
    {"stride": (1, 2), "padding": (2, 0)},
    {"padding": 1, "bias": None},
    {"padding": "same"},
    {"dilation": 2},
    {"groups": 2},
]


def compute(asked: dict[str, Any], *, together: bool) -> list[torch.Tensor]:
    """The results of all lanes, (K, B, O, H, W), and the gradients of their values, weights and biases, (K, ...)."""
    drawn = torch.Generator().manual_seed(1)
    shapes = (LANES, 2, 4, 7, 6), (LANES, 6, 4 // asked.get("groups", 1), 3, 2)
    value, weight = (torch.randn(shape, generator=drawn, dtype=torch.float64).requires_grad_() for shape in shapes)
    bias = torch.randn(LANES, 6, generator=drawn, dtype=torch.float64).requires_grad_()
    others = {name: given for name, given in asked.items() if name != "bias"}

    def of_one(value: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return F.conv2d(value, weight, bias if "bias" not in asked else None, **others)

    if together:
        generators = [torch.Generator() for _ in range(LANES)]
        with InLanes(generators, torch.stack, has_channels_last=False):
            result = vmap(of_one)(value, weight, bias)
    else:
        result = torch.stack([of_one(*of_lane) for of_lane in zip(value, weight, bias, strict=True)])
    pulled = torch.randn(result.shape, generator=drawn, dtype=torch.float64)
    found = torch.autograd.grad((result * pulled).sum(), (value, weight, bias), materialize_grads=True)
    return [result.detach(), *found]


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("size_max", [lanes.PATCHES_SIZE_MAX, 0])
@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_convolutions_in_lanes_are_those_of_each_lane(
    asked: dict[str, Any], size_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "PATCHES_SIZE_MAX", size_max)
    together, alone = compute(asked, together=True), compute(asked, together=False)
    for one, other in zip(together, alone, strict=True):
        torch.testing.assert_close(one, other)
    in_memory = together[0][0].stride()
    assert sorted(in_memory, reverse=True) == [*in_memory], "channels before rows, as dropout takes it"


@pytest.mark.filterwarnings("ignore:Using padding='same'")
def test_a_convolution_in_lanes_is_one_product_of_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = torch.conv2d, count()

    def counting(*arguments: Any, **named: Any) -> torch.Tensor:
        next(calls)
        return real(*arguments, **named)

    monkeypatch.setattr(torch, "conv2d", counting)
    compute({"padding": 1}, together=True)
    compute({"padding": "same"}, together=True)
    assert next(calls) == 1, "the second one is torch's own"


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"reduction": "mean", "ignore_index": -100},
        {"reduction": "sum"},
        {"label_smoothing": 0.1},
        {"weight": torch.arange(1.0, 5).double()},
    ],
    ids=str,
)
@pytest.mark.parametrize("finds", [True, False])
def test_a_loss_of_classes_in_lanes_is_that_of_each_lane(
    asked: dict[str, Any], finds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "FINDS_CLASSES", {"cpu"} if finds else ())  # as on a card
    real, calls = F.log_softmax, count()

    def counting(*arguments: Any) -> torch.Tensor:
        next(calls)
        return real(*arguments)

    monkeypatch.setattr(F, "log_softmax", counting)
    drawn = torch.Generator().manual_seed(1)
    logits = torch.randn(LANES, 5, 4, generator=drawn, dtype=torch.float64)
    logits[0, 0, 1] = -torch.inf  # of no use, but of a class that is not the label
    logits.requires_grad_()
    labels = torch.tensor([[0, 1, 2, 3, 3], [1, 1, 1, 1, 1], [-100, 0, -100, 2, 3]])
    with InLanes([torch.Generator() for _ in range(LANES)], torch.stack, has_channels_last=False):
        together = vmap(lambda values, classes: F.cross_entropy(values, classes, **asked))(logits, labels)
    is_plain = not asked or "ignore_index" in asked
    assert next(calls) == (is_plain and not finds), "nothing is picked by its index"
    alone = torch.stack([F.cross_entropy(*of_lane, **asked) for of_lane in zip(logits, labels, strict=True)])
    torch.testing.assert_close(together, alone)
    gradients = [torch.autograd.grad(losses.sum(), logits)[0] for losses in (together, alone)]
    torch.testing.assert_close(*gradients)
    assert gradients[0].isfinite().all()


def test_batch_normalization_in_lanes_is_torch_s_own_and_not_cudnn_s(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = torch.Generator().manual_seed(1)
    values = torch.randn(LANES, 5, 4, 3, 3, generator=drawn, dtype=torch.float64)
    means, real, asked = torch.zeros(2, LANES, 4, dtype=torch.float64), torch.batch_norm, list[bool]()

    def noting(*arguments: Any) -> torch.Tensor:
        asked.append(arguments[-1])  # whether cuDNN is to do it
        return real(*arguments)

    def of_one(value: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
        return F.batch_norm(value, mean, torch.ones_like(mean), training=True)

    monkeypatch.setattr(torch, "batch_norm", noting)
    with InLanes([torch.Generator() for _ in range(LANES)], torch.stack, has_channels_last=False):
        together = vmap(of_one)(values, means[0])
    alone = torch.stack([of_one(*of_lane) for of_lane in zip(values, means[1], strict=True)])
    torch.testing.assert_close(together, alone)
    torch.testing.assert_close(means[0], means[1])
    assert asked == [False] + [True] * LANES
