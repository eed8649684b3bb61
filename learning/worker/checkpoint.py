"""A client's private state, set aside in memory or written as a safetensors file, so that a worker can go on."""

import safetensors
import safetensors.torch
import torch

from fedchain.learning.client import Client
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.state import write_record

MODEL_PREFIX, _STATE = "model.", "state."

ClientState = dict[str, torch.Tensor]
"""Copies of a client's tensors, as a checkpoint names them."""


def copy_state(client: Client) -> ClientState:
    """Copy the client's model and the methods' state of it; later training does not change the copy.

    Frozen tensors, which are everybody's, are not in it.
    """
    stored, own = client.info.stored, client.model.state_dict()
    model = {MODEL_PREFIX + name: value.detach().clone() for name, value in own.items() if name in stored}
    records = client.saved | {name: write_record(record) for name, record in client.states.items()}
    return model | {
        f"{_STATE}{record}.{name}": value for record, written in records.items() for name, value in written.items()
    }


def restore_state(client: Client, state: ClientState) -> None:
    """Put the client back to a state set aside."""
    client.model.load_state_dict(_part(state, MODEL_PREFIX), strict=not client.info.frozen)
    client.states, client.saved = {}, {}
    for name, value in _part(state, _STATE).items():
        record, _, field = name.partition(".")
        client.saved.setdefault(record, {})[field] = value.clone()


def save_state(client: Client) -> bytes:
    """Return the client's state as a safetensors file."""
    return safetensors.torch.save({name: value.contiguous() for name, value in copy_state(client).items()})


def load_state(client: Client, data: bytes) -> None:
    """Put the client back to a saved state. Raises `ConfigurationError`, and changes nothing, if it does not fit."""
    try:
        state = safetensors.torch.load(data)
    except safetensors.SafetensorError as error:
        raise ConfigurationError(f"checkpoint of client {client.index} is no safetensors file: {error}") from error
    shapes = {name: tuple(value.shape) for name, value in _part(state, MODEL_PREFIX).items()}
    expected = {name: shape for name, shape in client.info.parameters if name in client.info.stored}
    if shapes != expected:
        raise ConfigurationError(f"checkpoint of client {client.index} must hold {expected}, not {shapes}")
    restore_state(client, state)


def _part(state: ClientState, prefix: str) -> ClientState:
    """Return the tensors whose names begin so, without that beginning."""
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
