"""A client's private state, set aside in memory or written as a safetensors file, so that a worker can go on."""

import safetensors
import safetensors.torch
import torch

from fedchain.learning.client import Client
from fedchain.learning.exceptions import ConfigurationError

State = tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]
"""Copies of a client's model tensors and of its memory."""

_MODEL, _MEMORY = "model.", "memory."


def copy_state(client: Client) -> State:
    """Set the client's state aside; later training does not change the copy."""
    model = {name: value.detach().clone() for name, value in client.model.state_dict().items()}
    return model, {name: value.detach().clone() for name, value in client.memory.items()}


def restore_state(client: Client, state: State) -> None:
    """Put the client back to a state set aside."""
    client.model.load_state_dict(state[0])
    client.memory = dict(state[1])


def save_state(client: Client) -> bytes:
    """Return the client's state as a safetensors file."""
    model, memory = copy_state(client)
    tensors = {_MODEL + name: value for name, value in model.items()}
    tensors |= {_MEMORY + name: value for name, value in memory.items()}
    return safetensors.torch.save({name: value.contiguous() for name, value in tensors.items()})


def load_state(client: Client, data: bytes) -> None:
    """Put the client back to a saved state. Raises `ConfigurationError`, and changes nothing, if it does not fit."""
    try:
        tensors = safetensors.torch.load(data)
    except safetensors.SafetensorError as error:
        raise ConfigurationError(f"checkpoint of client {client.index} is no safetensors file: {error}") from error
    model = {name.removeprefix(_MODEL): value for name, value in tensors.items() if name.startswith(_MODEL)}
    memory = {name.removeprefix(_MEMORY): value for name, value in tensors.items() if name.startswith(_MEMORY)}
    shapes = {name: tuple(value.shape) for name, value in model.items()}
    if shapes != dict(client.info.parameters):
        expected = dict(client.info.parameters)
        raise ConfigurationError(f"checkpoint of client {client.index} must hold {expected}, not {shapes}")
    restore_state(client, (model, memory))
