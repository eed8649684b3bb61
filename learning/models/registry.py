"""The models by their names."""

from collections.abc import Callable, Mapping
from functools import cache, partial
from inspect import signature
from types import MappingProxyType

import torch

from fedchain.learning.device import in_float32, kept_generator
from fedchain.learning.exceptions import UnknownName
from fedchain.learning.models.base import Model, normalization_names, trainable_names
from fedchain.learning.models.frozen import FrozenHead
from fedchain.learning.models.large import CovidCnn, FedRegCnn, FixupResNet9, Mlp, ResNet18
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.models.plain import PlainCnn, PlainResNet18
from fedchain.learning.models.small import Cnn, DigitsMlp, Logistic
from fedchain.learning.models.split import SplitMlp, SplitResNet
from fedchain.learning.models.vit import VisionTransformer
from fedchain.learning.seeding import seed_torch

MODELS: Mapping[str, Callable[..., Model]] = MappingProxyType(
    {
        "cnn": Cnn,
        "cnn-narrow": partial(Cnn, width=5),
        "cnn-wide": partial(Cnn, width=20),
        "covid-cnn": CovidCnn,
        "digits-mlp": DigitsMlp,
        "digits-mlp-bn": partial(Mlp, (64, 32), size=8, norm=True),
        "fedreg-cnn": FedRegCnn,
        "fixup-resnet9": FixupResNet9,
        "frozen-2": FrozenHead,
        "frozen-3": partial(FrozenHead, layers=3),
        "logistic": Logistic,
        "mlp": partial(Mlp, (200, 200)),
        "mlp-50": partial(Mlp, (200, 50)),
        "mlp-bn": partial(Mlp, (200, 200), norm=True),
        "mlp-bn-50": partial(Mlp, (200, 100, 50), norm=True),
        "mlp-linear": partial(Mlp, (32,), linear=True),
        "plain-cnn": PlainCnn,
        "resnet10-56": partial(SplitResNet, 2),
        "resnet12-56": partial(SplitResNet, 2),
        "resnet18": ResNet18,
        "resnet18-200": partial(ResNet18, embedding=200),
        "resnet18-plain": PlainResNet18,
        "resnet18-plain-16": partial(PlainResNet18, width=16),
        "resnet2-56": partial(SplitResNet, 0),
        "resnet4-56": partial(SplitResNet, 1),
        "resnet8-56": partial(SplitResNet, 2, bottleneck=True),
        "split-mlp-1": partial(SplitMlp, (14,)),
        "split-mlp-2": partial(SplitMlp, (16, 12)),
        "split-mlp-3": partial(SplitMlp, (20, 18, 15)),
        "vit-tiny": VisionTransformer,
    }
)
"""Name of each model, and the class that builds it from classes, channels and, where it matters, size."""


def build_model(name: str, seed: int, **shape: int) -> Model:
    """Build a model whose initial parameters depend on the seed alone; torch's own generator is left as it was.

    `shape` is what is known about its examples: classes, features, channels, size. A model takes those of them that it
    does not fix.
    """
    if name not in MODELS:
        raise UnknownName("model", name, MODELS)
    with kept_generator(), in_float32():
        seed_torch(seed)
        model = MODELS[name](**{key: shape[key] for key in _parameters_of(name) if key in shape})
    # Pixel by pixel in memory, a CPU trains the convolutional network in two thirds of the time.
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


@cache
def _parameters_of(name: str) -> tuple[str, ...]:
    return tuple(signature(MODELS[name]).parameters)


def describe_model(name: str, **shape: int) -> ModelInfo:
    """Return the shapes of the named model."""
    return describe(build_model(name, seed=0, **shape))


def describe(model: Model) -> ModelInfo:
    """Return the shapes of a built-in model."""
    return ModelInfo(
        parameters=tuple((key, tuple(value.shape)) for key, value in model.state_dict().items()),
        embedding_size=model.embedding_size,
        classes=model.classes,
        trainable=trainable_names(model),
        normalization=normalization_names(model),
        feature_shape=model.feature_shape,
    )
