"""A model as a safetensors file that `load_state_dict` of the module takes as it is: its own names, nothing else.

A member's last model is in its training process, or in the checkpoint that a node keeps. For methods that exchange
parameters, the model that all members share is the knowledge (`models/parameters.py`).
"""

import safetensors
import torch
from torch import nn
from torch.nn.parameter import is_lazy

from fedchain.learning.client import Client
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.models.base import trainable_names
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.models.parameters import common_parameters, find_residual
from fedchain.learning.models.vectors import tensor_on
from fedchain.learning.models.weights import find_misfit
from fedchain.learning.round import Tensors
from fedchain.learning.worker.checkpoint import MODEL_PREFIX, load_tensors

ModelState = dict[str, torch.Tensor]
"""A module's state by the module's own names, as `state_dict` has it: parameters and buffers."""


def state_of(module: nn.Module, info: ModelInfo) -> ModelState:
    """Return copies of a module's state but for frozen tensors that every member has.

    No two share memory, and later training changes none.
    """
    own = module.state_dict()
    return {name: value.detach().clone().contiguous() for name, value in own.items() if name in info.stored}


def state_of_checkpoint(data: bytes) -> ModelState:
    """Return the model in a client's checkpoint (`save_state`), such as a node keeps of its member.

    Raises `ConfigurationError` for bytes that are no safetensors file.
    """
    tensors = read_model(data)
    return {name.removeprefix(MODEL_PREFIX): tensors[name] for name in tensors if name.startswith(MODEL_PREFIX)}


def state_of_knowledge(knowledge: Tensors, info: ModelInfo) -> ModelState:
    """Return the model that all members share, whose tensors are the knowledge's own memory: nobody may change them.

    Raises `ConfigurationError` where the knowledge is no whole model; if that is because it holds what members add to
    their frozen tensors, `Learner.common_state` has it.
    """
    if frozen := find_residual(knowledge):
        raise ConfigurationError(f"the knowledge holds what members add to their {frozen}, and not the whole of it")
    return {name: tensor_on(value) for name, value in common_parameters(knowledge, info).items()}


def read_model(data: bytes) -> ModelState:
    """Return the state in a safetensors file; of one that is read in place, the tensors are its own pages.

    Raises `ConfigurationError` for bytes that are none.
    """
    try:
        return load_tensors(data)
    except safetensors.SafetensorError as error:
        raise ConfigurationError(f"{len(data)} bytes are no safetensors file: {error}") from error


def load_model(module: nn.Module, state: ModelState, whose: str, frozen: frozenset[str] = frozenset()) -> None:
    """Give a module another state, which may lack frozen tensors. A parameter that has two names is what its first
    says, as `load_parameters` has it.

    Raises `ConfigurationError`, and changes nothing, if it does not fit.
    """
    found = {name: tuple(value.shape) for name, value in state.items()}
    # torch's lazy layers have no shape before their first input, and take any
    own = {
        name: found.get(name, ()) if is_lazy(value) else tuple(value.shape)
        for name, value in module.state_dict().items()
    }
    expected = {name: shape for name, shape in own.items() if name in found or name not in frozen}
    if (misfit := find_misfit(expected, found)) is not None:
        raise ConfigurationError(f"{whose} model: {misfit}")
    module.load_state_dict(state, strict=not frozen)
    module.load_state_dict({name: state[name] for name in trainable_names(module) & state.keys()}, strict=False)


def lend_model(client: Client, state: ModelState) -> None:
    """Give a client that nobody trains another state to be measured. Raises as `load_model`."""
    own, frozen = client.model.state_dict(), client.info.frozen - client.info.stored
    for name in frozen & state.keys():
        if not torch.equal(state[name], own[name]):
            raise ConfigurationError(f"{name} of the model is frozen, and the file has other values of it")
    kept = {name: value for name, value in state.items() if name not in frozen}
    load_model(client.model, kept, f"member {client.index}'s", client.info.frozen)
