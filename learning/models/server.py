"""The larger networks, of an aggregator, that learn from clients' features. B batch, C classes, H shape of features."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from fedchain.learning.models.blocks import EXPANSION, Bottleneck, initialise_convolutions

STAGE_BLOCKS = 6
"""Bottlenecks of each of the three stages, as FedGKT and FedICT have them."""

LARGE_BATCH = 1 << 21
"""Numbers in a batch of features, as many as 128 images of 32x32 have, from which on memory is saved at the cost of
time: with six bottlenecks a stage, the gradient of 255 such images needs 3 GB."""

_WIDTHS = (16, 32, 64)
_HIDDEN = (35, 38)


def build_server_model(feature_shape: tuple[int, ...], classes: int, stage_blocks: int = STAGE_BLOCKS) -> nn.Module:
    """Return a network features (B, *H) -> logits (B, C), drawn from torch's generator.

    Features of images (channels, height, width) take the rest of ResNet-56, as FedGKT (He et al., NeurIPS 2020) and
    FedICT have it: with six bottlenecks a stage, 590,858 parameters for 16 channels and ten classes. Any other features
    take a fully connected network of 35 and 38 hidden units, which for 13 features and five classes has the 2,053
    parameters that FedICT's Table III states; its layers are not described, so these are ours.
    """
    if len(feature_shape) == 3:
        model: nn.Module = ServerResNet(feature_shape[0], classes, stage_blocks)
    else:
        model = ServerMlp(feature_shape, classes)
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


class ServerResNet(nn.Module):
    """Three stages of bottlenecks, the second and third of stride 2, and a head."""

    def __init__(self, channels: int, classes: int, stage_blocks: int) -> None:
        super().__init__()
        stages, before = [], channels
        for place, width in enumerate(_WIDTHS):
            blocks = [Bottleneck(before, width, stride=1 if place == 0 else 2)]
            before = EXPANSION * width
            blocks += [Bottleneck(before, width) for _ in range(stage_blocks - 1)]
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.Sequential(*stages)
        self.fc = nn.Linear(before, classes)
        initialise_convolutions(self)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return logits (B, C) of features (B, channels, height, width)."""
        is_large = self.training and features.numel() >= LARGE_BATCH
        value = features
        for stage in self.stages:
            for block in stage:  # type: ignore[attr-defined]
                value = _forgetful(block, value) if is_large else block(value)
        logits: torch.Tensor = self.fc(value.mean(dim=(2, 3)))
        return logits


def _forgetful(block: nn.Module, value: torch.Tensor) -> torch.Tensor:
    """Apply a block of which only the input is kept for the gradient: what is inside is calculated a second time."""
    passes = partial(_passes, block)
    result: torch.Tensor = checkpoint(block, value, use_reentrant=False, preserve_rng_state=False, context_fn=passes)
    return result


def _passes(block: nn.Module) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    return nullcontext(), _statistics_stand_still(block)


@contextmanager
def _statistics_stand_still(block: nn.Module) -> Iterator[None]:
    """The second pass is not another batch, so running means stay as the first one left them."""
    norms = [module for module in block.modules() if isinstance(module, nn.BatchNorm2d)]
    before = [(norm.momentum, norm.num_batches_tracked) for norm in norms]
    for norm in norms:
        norm.momentum, norm.num_batches_tracked = 0.0, None
    try:
        yield
    finally:
        for norm, (momentum, tracked) in zip(norms, before, strict=True):
            norm.momentum, norm.num_batches_tracked = momentum, tracked


class ServerMlp(nn.Module):
    """Two hidden layers and a head."""

    def __init__(self, feature_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        widths = (torch.Size(feature_shape).numel(), *_HIDDEN)
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.fc = nn.Linear(_HIDDEN[-1], classes)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return logits (B, C) of features (B, *H)."""
        value = features.flatten(1)
        for layer in self.hidden:
            value = F.relu(layer(value))
        logits: torch.Tensor = self.fc(value)
        return logits
