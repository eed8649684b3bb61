"""Lanes: what torch does otherwise in a batch of models, or not at all, done as each model by itself would do it."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.modules.utils import _pair
from torch.overrides import TorchFunctionMode

from fedchain.learning.training.given import Stack

Masks = Callable[[torch.Tensor, float], torch.Tensor]
"""masks(a client's value, share of ones) -> masks (K, ...), of the value's shape and order in memory."""

PATCHES_SIZE_MAX = 1 << 30
"""Bytes of the patches of all lanes' images up to which a convolution is one product of matrices."""

IGNORED = -100
"""The label that torch's loss of classes leaves out."""

FINDS_CLASSES = frozenset({"cpu"})
"""Kinds of devices on which a label's logarithm is picked by its index. A card that has to repeat itself takes a sort
for the gradient of that."""

_OF_LABELS: dict[str, Any] = {
    "weight": None,
    "size_average": None,
    "ignore_index": IGNORED,
    "reduce": None,
    "reduction": "mean",
    "label_smoothing": 0.0,
}
"""Torch gives these beside logits and labels where a loss asks for nothing else."""

_BY_CHANNEL = {F.dropout: False, F.dropout1d: True, F.dropout2d: True, F.dropout3d: True}
"""Kinds of dropout, and whether they drop whole channels."""


class InLanes(TorchFunctionMode):
    """Does what torch does otherwise, or not at all, in lanes: each client's dropout, and group normalization. And what
    it does slowly: convolutions, which a card does for one lane after the other, and the loss of classes.

    Args:
        generators: of each client's dropout. Several are of lanes that are computed together; one is of a lane that is
            computed by itself.
        stack: puts what was drawn in lanes.
        has_channels_last: whether convolutions of such a model by itself put channels last in memory.
    """

    def __init__(self, generators: Sequence[torch.Generator], stack: Stack, has_channels_last: bool) -> None:
        super().__init__()
        self._generators, self._stack, self._has_channels_last = generators, stack, has_channels_last
        self._before: list[torch.Tensor] = []

    def undo(self) -> None:
        """Put the generators back to where they were before the first number."""
        for generator, state in zip(self._generators, self._before, strict=False):
            generator.set_state(state)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is F.group_norm:
            func = _group_norm
        elif func is F.conv2d and len(self._generators) > 1:
            func = partial(_convolve, len(self._generators))
        elif func is F.cross_entropy and len(self._generators) > 1:
            func = _cross_entropy
        elif func is F.batch_norm and len(self._generators) > 1:
            func = _batch_norm
        elif func in _BY_CHANNEL:
            func = partial(self._drop, _BY_CHANNEL[func])
        return func(*args, **(kwargs or {}))

    def _drop(
        self, by_channel: bool, value: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> torch.Tensor:
        if not training or p == 0:
            return value
        if len(self._generators) == 1:
            result: torch.Tensor = value * self._masks(_of_one(value, by_channel), 1.0 - p)[0]
        else:
            result = _Masked.apply(value, p, by_channel, self._masks)  # type: ignore[no-untyped-call]
        return value.copy_(result) if inplace else result

    def _masks(self, value: torch.Tensor, kept: float) -> torch.Tensor:
        """Draw a mask (K, ...) from each client's generator, as where it is alone: zeros, and ones over `kept`.

        Numbers are drawn in the order of memory. Convolutions of lanes give channels before rows.
        """
        self._before = self._before or [generator.get_state() for generator in self._generators]
        memory = sorted(range(value.ndim), key=lambda place: -value.stride()[place])  # dimensions, the slowest first
        if self._has_channels_last and value.ndim == 4:
            memory.append(memory.pop(1))
        places = [memory.index(place) for place in range(value.ndim)]
        shape = [value.shape[place] for place in memory]
        drawn = [
            torch.empty(shape, device="cpu").permute(places).bernoulli_(kept, generator=own) for own in self._generators
        ]
        return self._stack(drawn).div_(kept)


class _Masked(torch.autograd.Function):
    """Multiplies by masks, which are drawn where all lanes are in sight."""

    @staticmethod
    def forward(value: torch.Tensor, p: float, by_channel: bool, masks: Masks) -> torch.Tensor:
        raise AssertionError("masks are drawn for lanes")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is kept: the gradient is that of the multiplication."""

    @staticmethod
    def vmap(
        info: Any, dims: tuple[int | None, ...], value: torch.Tensor, p: float, by_channel: bool, masks: Masks
    ) -> tuple[torch.Tensor, int]:
        assert dims[0] is not None, "what a model makes of a lane's images is the lane's"
        value = value.movedim(dims[0], 0)
        return value * masks(_of_one(value[0], by_channel), 1.0 - p), 0


def _of_one(value: torch.Tensor, by_channel: bool) -> torch.Tensor:
    """Return a tensor of the shape and order in memory of a client's mask for its value."""
    return value.new_empty((*value.shape[:2], *(1,) * (value.ndim - 2))) if by_channel else value.detach()


def _group_norm(
    value: torch.Tensor,
    num_groups: int,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """Compute F.group_norm, which asks lanes for their layout, by layer normalization, which does not."""
    flat = value.reshape(len(value), num_groups, -1)
    normal = F.layer_norm(flat, flat.shape[2:], eps=eps).reshape(value.shape)
    shape = (-1, *(1,) * (value.ndim - 2))
    normal = normal if weight is None else normal * weight.view(shape)
    return normal if bias is None else normal + bias.view(shape)


def _cross_entropy(value: torch.Tensor, target: torch.Tensor, *others: Any, **named: Any) -> torch.Tensor:
    """Compute F.cross_entropy; for labels (B,) without picking anything by index."""
    is_plain = not others and named.items() <= _OF_LABELS.items() and value.ndim == 2 and target.ndim == 1
    if not is_plain or value.device.type in FINDS_CLASSES:
        return F.cross_entropy(value, target, *others, **named)
    classes = torch.arange(value.shape[1], device=value.device)
    logarithms = torch.where(target.unsqueeze(1) == classes, F.log_softmax(value, 1), 0.0)  # (B, C)
    return -logarithms.sum() / (target != IGNORED).sum()


def _batch_norm(*arguments: Any, **named: Any) -> torch.Tensor:
    """Compute F.batch_norm without cuDNN, which asks how numbers lie in memory: torch does not say that in lanes."""
    cudnn = torch.backends.cudnn
    before, cudnn.enabled = cudnn.enabled, False
    try:
        return F.batch_norm(*arguments, **named)
    finally:
        cudnn.enabled = before


def _convolve(
    lanes: int,
    value: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    *others: Any,
    **named: Any,
) -> torch.Tensor:
    """Compute F.conv2d as one product of matrices, (B H W, C h w) by (C h w, O), which is one of batches in lanes.

    Convolutions with dilation or groups, and those whose patches take too much memory, remain torch's.
    """
    plain = not named and set(others) <= {1, (1, 1)} and not isinstance(padding, str) and value.ndim == 4
    (height, width), (down, right) = weight.shape[2:], _pair(stride)
    if plain:
        vertical, horizontal = _pair(padding)
        padded = F.pad(value, (horizontal, horizontal, vertical, vertical)) if vertical or horizontal else value
        patches = padded.unfold(2, height, down).unfold(3, width, right)  # (B, C, H, W, h, w), no copy
    if not plain or lanes * patches.numel() * value.element_size() > PATCHES_SIZE_MAX:
        return torch.conv2d(value, weight, bias, stride, padding, *others, **named)
    size = len(value), *patches.shape[2:4], len(weight)
    rows = patches.permute(0, 2, 3, 1, 4, 5).reshape(-1, weight[0].numel())
    result = rows @ weight.flatten(1).t()
    result = result if bias is None else result + bias
    return result.view(size).permute(0, 3, 1, 2).contiguous()
