"""The private side of a round: one client's model, data and randomness. B batch, C classes, D embedding, K clients."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from fedchain.learning.models.base import Model
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.task.augmentation import Augmentation

Forward = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""The model as the loss sees it: images (B, channels, height, width) -> embedding (B, D), logits (B, C)."""

Memory = Mapping[str, torch.Tensor]
"""What the loss knows besides the batch: tensors that `receive` derived from the knowledge, or kept."""


@dataclass(slots=True)
class Client:
    """The private side of a round: one client's model, data and randomness. It never leaves its peer."""

    index: int
    """Position in the partition, 0 to K - 1."""

    model: Model
    """The local model; training changes it in place."""

    info: ModelInfo
    """The model's shapes."""

    train_images: torch.Tensor
    """(n, ...), float32: normalised images (n, channels, height, width), or whatever else the model takes."""

    train_labels: torch.Tensor
    """(n,), int64."""

    test_images: torch.Tensor
    """The client's own test set, shaped as `train_images`."""

    test_labels: torch.Tensor
    """Labels of the own test set, int64."""

    classes: tuple[int, ...]
    """Classes among the training labels, ascending."""

    generator: torch.Generator = field(default_factory=torch.Generator)
    """Order of the batches, and their augmentation; newly seeded for every phase of every round."""

    augmentation: Augmentation | None = None
    """What is done to training images each time that they are looked at; None: nothing."""

    memory: dict[str, torch.Tensor] = field(default_factory=dict)
    """What the method remembers between rounds and what the loss reads."""

    steps: int = 0
    """SGD steps taken since the phase began."""
