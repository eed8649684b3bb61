"""The models. Each returns the embedding, from which prototypes are made, beside the logits.

B batch, C classes, D embedding.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from types import MappingProxyType
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedchain.learning.config import LearningConfig
from fedchain.learning.datasets.catalogue import DATASETS
from fedchain.learning.exceptions import unknown_name


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The shapes of a model, as the specs of payloads need them."""

    parameters: tuple[tuple[str, tuple[int, ...]], ...]
    """Name and shape of every tensor of the model's state, in the model's order."""

    embedding_size: int
    """Width D of the embedding."""

    classes: int
    """Number of classes C."""

    trainable: frozenset[str]
    """Names of the tensors that training moves; the others are frozen, or buffers such as running means."""

    normalization: frozenset[str]
    """Names of the tensors of batch normalization, trainable or not."""

    input_shape: tuple[int, ...] | None = None
    """Shape of one example; None: as the built-in data set has it."""

    @property
    def parameter_count(self) -> int:
        """Number of scalars that training moves, P."""
        return sum(math.prod(shape) for name, shape in self.parameters if name in self.trainable)


class Model(nn.Module):
    """Base of the built-in models: images -> (embedding, logits). A user's own model need not state its sizes."""

    embedding_size: int
    """Width D of the embedding."""

    classes: int
    """Number of classes C."""

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return embedding (B, D) and logits (B, C) of images (B, channels, height, width)."""
        raise NotImplementedError

    def layers(self, images: torch.Tensor) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        """Return the outputs (B, D_l) of the layers that can be compared, the embedding last, and the logits (B, C)."""
        embedding, logits = self(images)
        return (embedding,), logits


class LayeredModel(Model):
    """A model whose layers can be compared. What only the comparison needs is made where it is asked for."""

    pools: ClassVar[bool] = False
    """Whether the layers' outputs are averaged over the pixels to be compared, or else flattened."""

    def outputs(self, images: torch.Tensor) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        """Return the layers' outputs as they come, the embedding last, and the logits."""
        raise NotImplementedError

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return embedding (B, D) and logits (B, C) of images (B, channels, height, width)."""
        outputs, logits = self.outputs(images)
        return outputs[-1], logits

    def layers(self, images: torch.Tensor) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        """See `Model.layers`."""
        outputs, logits = self.outputs(images)
        return tuple(self._comparable(output) for output in outputs), logits

    def _comparable(self, output: torch.Tensor) -> torch.Tensor:
        return output.mean(dim=(2, 3)) if self.pools and output.ndim == 4 else output.flatten(1)


class Cnn(LayeredModel):
    """The small convolutional network of the federated-prototype literature, for 28x28 images: 21,840 parameters.

    Layers and dropout follow CNNMnist of Tan et al., FedProto (AAAI 2022); DFPL's Table II counts this network. For
    larger images only `fc1` grows.
    """

    embedding_size = 50

    def __init__(self, classes: int = 10, channels: int = 1, size: int = 28) -> None:
        super().__init__()
        self.classes = classes
        self.conv1 = nn.Conv2d(channels, 10, kernel_size=5)
        self.conv2 = nn.Conv2d(10, 20, kernel_size=5)
        self.conv2_drop = nn.Dropout2d()
        self.fc1 = nn.Linear(20 * (((size - 4) // 2 - 4) // 2) ** 2, 50)
        self.fc2 = nn.Linear(50, classes)

    def outputs(self, images: torch.Tensor) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        """Return the outputs of both convolutions and the embedding (B, 50), and the logits; shapes for size 28."""
        first = F.relu(F.max_pool2d(self.conv1(images), 2))  # (B, 10, 12, 12)
        second = F.relu(F.max_pool2d(self.conv2_drop(self.conv2(first)), 2))  # (B, 20, 4, 4)
        embedding = F.relu(self.fc1(second.flatten(1)))  # (B, 50)
        logits = self.fc2(F.dropout(embedding, training=self.training))  # (B, C)
        return (first, second, embedding), logits


class DigitsMlp(LayeredModel):
    """A small fully connected network for the 8x8 digits or 64 features: 6,570 parameters. Ours, for fast examples."""

    embedding_size = 32

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.classes = classes
        self.fc1 = nn.Linear(64, 64)
        self.fc2 = nn.Linear(64, 32)
        self.fc3 = nn.Linear(32, classes)

    def outputs(self, images: torch.Tensor) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        """Return the outputs of the hidden layer and the embedding (B, 32), and the logits, of 64 features each."""
        hidden = F.relu(self.fc1(images.flatten(1)))  # (B, 64)
        embedding = F.relu(self.fc2(hidden))  # (B, 32)
        return (hidden, embedding), self.fc3(embedding)


_MODELS: Mapping[str, Callable[..., Model]] = MappingProxyType({"cnn": Cnn, "digits-mlp": DigitsMlp})


def build_model(name: str, seed: int, **shape: int) -> Model:
    """Build a model whose initial parameters depend on the seed alone; torch's own generator is left as it was.

    `shape` is what is known about its examples: classes, channels, size. Of these a model takes what it does not fix.
    """
    from fedchain.learning.models.large import NETWORKS  # they build on this module

    builders = {**_MODELS, **NETWORKS}
    if name not in builders:
        raise unknown_name("model", name, builders)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = builders[name](**{key: shape[key] for key in signature(builders[name]).parameters if key in shape})
    # Pixel by pixel in memory, a CPU trains the convolutional network in two thirds of the time.
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def info_of(config: LearningConfig) -> ModelInfo:
    """Return the shapes that a task's payloads follow."""
    return config.shapes or describe_model(config.model_name, **DATASETS[config.dataset].model_shape)


def describe_model(name: str, **shape: int) -> ModelInfo:
    """Return the shapes of the named model."""
    model = build_model(name, seed=0, **shape)
    return ModelInfo(
        parameters=tuple((key, tuple(value.shape)) for key, value in model.state_dict().items()),
        embedding_size=model.embedding_size,
        classes=model.classes,
        trainable=trainable_names(model),
        normalization=normalization_names(model),
    )


def trainable_names(model: nn.Module) -> frozenset[str]:
    """Return the names of the tensors that training moves: parameters that are not frozen."""
    return frozenset(key for key, value in model.named_parameters() if value.requires_grad)


def normalization_names(model: nn.Module) -> frozenset[str]:
    """Return the names of the tensors of batch normalization."""
    norms = [(prefix, module) for prefix, module in model.named_modules() if isinstance(module, _BatchNorm)]
    return frozenset(f"{prefix}.{key}" for prefix, module in norms for key in module.state_dict())
