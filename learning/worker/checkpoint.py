"""A client's private state, set aside in memory or written as a safetensors file, so that a worker can go on."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType

import safetensors
import safetensors.torch
import torch

from fedchain.files.spool import MAPPED_SIZE, InMemory, Spools, path_of, write_pieces
from fedchain.learning.client import Client
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.models.low_rank import ORIGINAL
from fedchain.learning.payload.document import Buffer
from fedchain.learning.payload.tensor_file import file_pieces
from fedchain.learning.state import DTYPES, write_record

MODEL_PREFIX, _STATE = "model.", "state."

_ASIDE = "aside."
"""Before the names of buffers that are in no module's state (`persistent=False`): a user's model may change them."""

ClientState = dict[str, torch.Tensor]
"""Copies of a client's tensors, as a checkpoint names them."""


def copy_state(client: Client) -> ClientState:
    """Copy the client's model and the methods' state of it; later training does not change the copy.

    Frozen tensors, which are everybody's, are not in it.
    """
    return _copied(_state(client) | _named(_ASIDE, buffers_aside(client)))


def _copied(state: ClientState) -> ClientState:
    return {name: value.clone() for name, value in state.items()}


def buffers_aside(client: Client) -> ClientState:
    """Return the buffers that are in no module's state, by name; those of residuals, which never change, are left out.

    They share memory with the model's.
    """
    buffers = dict(client.model.named_buffers())
    own = client.model.state_dict() if buffers else {}
    return {name: value for name, value in buffers.items() if name not in own and ORIGINAL not in name}


def note_changed(client: Client, before: ClientState) -> None:
    """Note which buffers aside differ from copies of them: the client's checkpoints hold these from now on."""
    for name, value in buffers_aside(client).items():
        if name not in before or not torch.equal(value, before[name]):
            client.aside.add(name)


def _state(client: Client) -> ClientState:
    """The tensors themselves, under those names; of the buffers aside those that have ever changed."""
    stored, own = client.info.stored, client.model.state_dict()  # which are detached
    model = {MODEL_PREFIX + name: value for name, value in own.items() if name in stored}
    aside = buffers_aside(client) if client.aside else {}
    aside = {name: value for name, value in aside.items() if name in client.aside}
    records = client.saved | {name: write_record(record) for name, record in client.states.items()}
    return (
        model
        | _named(_ASIDE, aside)
        | {f"{_STATE}{record}.{name}": value for record, written in records.items() for name, value in written.items()}
    )


def restore_state(client: Client, state: ClientState) -> None:
    """Put the client back to a state set aside."""
    _restore_model(client, state)
    _restore_aside(client, state)
    _take_records(client, {name: value.clone() for name, value in state.items() if name.startswith(_STATE)})


def _restore_model(client: Client, state: ClientState) -> None:
    own = client.model.state_dict()  # whose tensors are the model's
    for name, value in _part(state, MODEL_PREFIX).items():
        own[name].copy_(value)


@torch.no_grad()
def _restore_aside(client: Client, state: ClientState) -> None:
    """Give the model the buffers aside that a state has; the others stay as they are."""
    for name, value in _part(state, _ASIDE).items():
        place, _, leaf = name.rpartition(".")
        owner = client.model.get_submodule(place)
        now = getattr(owner, leaf)
        if (now.shape, now.dtype) == (value.shape, value.dtype):
            now.copy_(value)
        else:  # as of a cache that grew
            setattr(owner, leaf, value.clone())


def _take_records(client: Client, state: ClientState) -> None:
    """Make the methods' records of a state the client's own; nobody else changes these tensors."""
    client.states, client.saved = {}, {}
    for name, value in _part(state, _STATE).items():
        record, _, field = name.partition(".")
        client.saved.setdefault(record, {})[field] = value


def set_aside(client: Client, spools: Spools) -> Callable[[], None]:
    """Set the client's state aside, a large one not in memory; return what puts the client back to it.

    Where the client's file holds the state, nothing is written. The full way writes every tensor, whatever was done to
    it since the last time; nothing was, as whoever may change a client takes that file from it (`worker/clients.py`).
    """
    aside, noted = _copied(_named(_ASIDE, buffers_aside(client))), set(client.aside)
    data = client.file
    if not data:
        state = _state(client)
        if sum(value.nbytes for value in state.values()) <= MAPPED_SIZE:
            return partial(restore_state, client, _copied(state) | aside)
        data = write_pieces(state_pieces(state), spools)

    def put_back() -> None:
        load_state(client, data)
        _restore_aside(client, aside)
        client.aside = noted

    return put_back


def save_state(client: Client, spools: Spools = InMemory) -> bytes:
    """Return the client's state as a safetensors file, which is written tensor by tensor."""
    return write_pieces(state_pieces(_state(client)), spools)


def go_on_from(client: Client, data: bytes) -> None:
    """Have a client that was saved go on from its file, if the state is a large one: its records lie there, and take no
    memory until they are changed. It is set aside there, too."""
    if path_of(data) is not None:
        _take_records(client, load_tensors(data))
        client.file = data


def load_tensors(data: bytes) -> ClientState:
    """Read the tensors of a safetensors file, which no change of theirs reaches. Those of a file that is read in place
    take no memory of their own until they are changed. Raises `safetensors.SafetensorError`."""
    path = path_of(data)
    return safetensors.torch.load(data) if path is None else safetensors.torch.load_file(path)


def load_state(client: Client, data: bytes) -> None:
    """Put the client back to a saved state. Raises `ConfigurationError`, and changes nothing, if it does not fit."""
    try:
        state = load_tensors(data)
    except safetensors.SafetensorError as error:
        raise ConfigurationError(f"checkpoint of client {client.index} is no safetensors file: {error}") from error
    shapes = {name: tuple(value.shape) for name, value in _part(state, MODEL_PREFIX).items()}
    expected = {name: shape for name, shape in client.info.parameters if name in client.info.stored}
    if shapes != expected:
        raise ConfigurationError(f"checkpoint of client {client.index} must hold {expected}, not {shapes}")
    _restore_aside(client, state)
    client.aside |= _part(state, _ASIDE).keys()
    _restore_model(client, state)
    _take_records(client, state)


def state_pieces(state: ClientState, metadata: Mapping[str, str] = MappingProxyType({})) -> Iterator[Buffer]:
    """Yield a safetensors file of some tensors, one after the other; the metadata are texts that stand beside them."""
    stated = {name: (DTYPES[value.dtype], tuple(value.shape)) for name, value in state.items()}

    def data_of(name: str) -> Buffer:
        return state[name].cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data

    return file_pieces(stated, data_of, metadata)


def _named(prefix: str, tensors: ClientState) -> ClientState:
    return {prefix + name: value for name, value in tensors.items()}


def _part(state: ClientState, prefix: str) -> ClientState:
    """Return the tensors whose names begin so, without that beginning."""
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
