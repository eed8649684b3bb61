"""A model's tensors as one vector, so that an equation about parameters is one line. P scalars of the parameters.

Frozen parameters are left out. The order is that of `model.parameters()`, each tensor row by row, whatever its layout
in memory.
"""

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedchain.files.spool import Spools
from fedchain.learning.models.base import exchanged_state


def trained_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that training moves, in the model's order."""
    return [value for value in model.parameters() if value.requires_grad]


def flatten(values: Iterable[torch.Tensor]) -> torch.Tensor:
    """Return a copy of the tensors' elements, one after another, (P,)."""
    return torch.cat([value.reshape(-1) for value in values])


def unflatten(vector: torch.Tensor, like: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Cut a vector (P,) into tensors of the given shapes; they are views of it."""
    parts = torch.split(vector, [value.numel() for value in like])
    return tuple(part.view(value.shape) for part, value in zip(parts, like, strict=True))


def read_vector(model: nn.Module) -> torch.Tensor:
    """Return a copy of the model's trainable parameters, (P,)."""
    return flatten(trained_parameters(model)).detach()


@torch.no_grad()
def write_vector(model: nn.Module, vector: torch.Tensor) -> None:
    """Overwrite the model's trainable parameters with a vector (P,)."""
    parameters = trained_parameters(model)
    for value, part in zip(parameters, unflatten(vector, parameters), strict=True):
        value.copy_(part)


def kept_vector(values: Iterable[torch.Tensor | NDArray[Any]], spools: Spools) -> torch.Tensor:
    """Return a copy of the elements of tensors of one type, one after another, (P,), which nobody may change.

    They are looked at one by one. `spools` begins the vector; a large one takes no memory, but lies in a file. Raises
    OSError if the disk refuses.
    """
    spool, dtype = spools(), np.dtype(np.float32)
    for value in values:
        flat = (value.detach().numpy() if isinstance(value, torch.Tensor) else value).reshape(-1)
        dtype = flat.dtype
        spool.write(flat.data)
    return tensor_on(np.frombuffer(spool.content(b""), dtype))


def tensor_on(array: NDArray[Any]) -> torch.Tensor:
    """Return a tensor whose memory is that of an array, such as a part of a file. Nobody may change it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        return torch.from_numpy(array)


def read_state(model: nn.Module) -> torch.Tensor:
    """Return a copy of the whole state, buffers such as running means included, as one float32 vector.

    Tensors that no post holds are not in it.
    """
    return flatten(value.float() for value in exchanged_state(model).values())


@torch.no_grad()
def write_state(model: nn.Module, vector: torch.Tensor) -> None:
    """Overwrite the whole state with a vector that `read_state` returned."""
    values = list(exchanged_state(model).values())
    for value, part in zip(values, unflatten(vector, values), strict=True):
        value.copy_(part)


def gradient_vector(loss: torch.Tensor, model: nn.Module) -> torch.Tensor:
    """Return the gradient of a scalar with respect to the model's trainable parameters, (P,)."""
    return flatten(torch.autograd.grad(loss, trained_parameters(model), materialize_grads=True))
