"""A user's examples as tensors: from any torch data set, or from a pair of tensors. N examples."""

import operator
from typing import Any

import torch

from fedchain.learning.exceptions import ConfigurationError, one_line


def read_examples(name: str, data: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the inputs (N, ...), float32, and the labels (N,), int64, of the set that messages call `name`.

    `data` is a pair (x, y) of what `torch.as_tensor` takes, or has a length and items (x, y), each read once. Raises
    `ConfigurationError` for anything else, and for no examples.
    """
    inputs, labels = _as_tensors(name, data) if isinstance(data, tuple) else _collect(name, data)
    if labels.shape != inputs.shape[:1]:
        raise ConfigurationError(
            f"the {name} must have one label for each input, not inputs of shape {tuple(inputs.shape)} and labels of "
            f"shape {tuple(labels.shape)}"
        )
    if len(labels) == 0:
        raise ConfigurationError(f"the {name} is empty")
    if not inputs.is_floating_point():
        raise ConfigurationError(f"the inputs of the {name} must be floating-point numbers, not {inputs.dtype}")
    if labels.is_floating_point() or labels.is_complex():
        raise ConfigurationError(f"the labels of the {name} must be integers, not {labels.dtype}")
    inputs = inputs.detach().to("cpu", torch.float32).contiguous()
    if not torch.isfinite(inputs).all():
        raise ConfigurationError(f"the inputs of the {name} are not all finite numbers")
    return inputs, labels.detach().to("cpu", torch.int64)


def validate_labels(name: str, labels: torch.Tensor, classes: int) -> None:
    """Raise `ConfigurationError` for a label (N,) that the model has no output for."""
    wrong = labels[(labels < 0) | (labels >= classes)]
    if len(wrong):
        raise ConfigurationError(
            f"label {int(wrong[0])} in the {name}: a model with {classes} outputs has 0 to {classes - 1}"
        )


def _as_tensors(name: str, data: tuple[Any, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    if len(data) != 2:
        raise ConfigurationError(f"the {name} must be a pair of tensors (x, y), not {len(data)} things")
    try:
        return torch.as_tensor(data[0]), torch.as_tensor(data[1])
    except Exception as error:
        raise ConfigurationError(f"the {name} cannot be made tensors: {one_line(error)}") from error


def _collect(name: str, data: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Read a map-style data set, item by item."""
    if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        found = type(data).__name__
        raise ConfigurationError(f"the {name} must be a torch Dataset with a length, or tensors (x, y), not {found}")
    inputs, labels = list[torch.Tensor](), list[int]()
    for place in range(len(data)):
        try:
            x, y = data[place]
            inputs.append(torch.as_tensor(x))
            labels.append(operator.index(y))
        except Exception as error:  # whatever a user's data set raises
            raise ConfigurationError(f"item {place} of the {name} is no (x, y): {one_line(error)}") from error
        if inputs[place].shape != inputs[0].shape:
            shapes = tuple(inputs[place].shape), tuple(inputs[0].shape)
            raise ConfigurationError(f"item {place} of the {name} has shape {shapes[0]}, but item 0 has {shapes[1]}")
    return (torch.stack(inputs) if inputs else torch.empty(0)), torch.tensor(labels, dtype=torch.int64)
