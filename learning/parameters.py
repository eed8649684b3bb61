"""A model's parameters as a payload: how the methods that average models post and load them."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedchain.learning.codec import TensorSpec
from fedchain.learning.method import Tensors
from fedchain.learning.models import Model, ModelInfo

PREFIX = "model."
"""Before the name of each of the model's tensors, so that a method's own tensors cannot clash with them."""


def parameter_spec(info: ModelInfo) -> tuple[TensorSpec, ...]:
    """State the tensors of the model's state."""
    return tuple(TensorSpec(PREFIX + name, shape) for name, shape in info.parameters)


def read_parameters(model: Model) -> dict[str, NDArray[Any]]:
    """Return copies of the model's tensors as float32 arrays."""
    state = model.state_dict()
    return {PREFIX + name: value.numpy().astype(np.float32, copy=True) for name, value in state.items()}


def load_parameters(model: Model, tensors: Tensors) -> None:
    """Overwrite the model's tensors."""
    with torch.no_grad():
        for name, value in model.state_dict().items():
            value.copy_(torch.from_numpy(np.array(tensors[PREFIX + name])))
