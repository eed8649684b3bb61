"""Kinds of trainings: those of one kind can be one cohort, as their models differ in parameters and buffers alone."""

from collections.abc import Hashable, Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import nn

from fedchain.learning.training.loop import Training

_OF_ANY_MODULE = frozenset(vars(nn.Module()))
"""Attributes of every module; hooks alone among them change its outputs, and training sets the mode."""

_HOOKS = "_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks"
_HOOK_KINDS = "_forward_pre_hooks_with_kwargs", "_forward_hooks_with_kwargs", "_forward_hooks_always_called"

_PLAIN = type(None), bool, int, complex, str, bytes, range, torch.dtype, torch.device, type
_SAME_OBJECT = FunctionType, BuiltinFunctionType, Enum


class _Incomparable(Exception):
    """Nobody knows what the value is equal to."""


def kind_of(training: Training) -> Hashable:
    """Return what trainings have in common that can be one cohort.

    A model that has something which cannot be compared is of a kind of its own.
    """
    client, model = training.client, training.client.model
    try:
        attributes = attributes_of(model)
    except Exception:  # of whatever kind: values are the user's own
        return object()
    tensors = *model.named_parameters(), *model.named_buffers()
    shapes = tuple((name, value.dtype, value.shape, value.stride(), value.requires_grad) for name, value in tensors)
    images = client.train_images.dtype, client.train_images.shape[1:], client.train_images.stride()[1:]
    batch = training.steps, min(training.schedule.batch_size, len(client.train_labels)), images
    values = () if training.correct is None else training.correct.values
    corrected = training.correct is None, tuple((value.dtype, value.shape) for value in values)
    extras = training.through, corrected, training.given is None, training.seen is None
    return attributes, shapes, batch, training.loss, training.schedule, extras


def attributes_of(model: nn.Module) -> Hashable:
    """Return what a model is besides its parameters and buffers: its modules' classes, attributes and hooks.

    Raises an error for an attribute that cannot be compared.
    """
    places = {id(module): name for name, module in model.named_modules()}
    own = {id(value) for value in model.parameters()}
    return tuple(
        (name, type(module), *_hooks(module, places, own), *_attributes(module, places, own))
        for name, module in model.named_modules(remove_duplicate=False)
    )


def _attributes(module: nn.Module, places: dict[int, str], own: set[int]) -> Iterator[Hashable]:
    for name, value in vars(module).items():
        if name not in _OF_ANY_MODULE:
            yield name, _value(value, places, own)


def _hooks(module: nn.Module, places: dict[int, str], own: set[int]) -> Iterator[Hashable]:
    for name in _HOOKS:
        for number, hook in vars(module)[name].items():
            yield name, _value(hook, places, own), tuple(number in vars(module)[kind] for kind in _HOOK_KINDS)


def _value(value: Any, places: dict[int, str], own: set[int]) -> Hashable:
    """Return what is equal for equal values. Modules of the model are known by their place in it."""
    kind, inner = type(value), partial(_value, places=places, own=own)
    if isinstance(value, nn.Module) and id(value) in places:
        return nn.Module, places[id(value)]
    if kind is float:
        return kind, value.hex()  # 0 and -0 are two, and a number that is none is itself
    if kind in _PLAIN or isinstance(value, _SAME_OBJECT):
        return kind, value
    if isinstance(value, tuple | list):
        return kind, *map(inner, value)
    if isinstance(value, dict):
        return kind, *((inner(key), inner(part)) for key, part in value.items())
    if isinstance(value, set | frozenset):
        return kind, frozenset(map(inner, value))
    if isinstance(value, torch.Tensor) and id(value) not in own:  # a parameter there is not the cohort's
        content = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        return kind, value.dtype, value.shape, value.stride(), value.requires_grad, content
    if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
        return kind, value.dtype.str, value.shape, value.tobytes()
    if is_dataclass(value):
        return kind, *(inner(getattr(value, field.name)) for field in fields(value))
    if isinstance(value, partial):
        return kind, inner(value.func), inner(value.args), inner(value.keywords)
    if isinstance(value, MethodType):
        return kind, value.__func__, inner(value.__self__)
    if not any("__eq__" in vars(base) for base in kind.__mro__[:-1]) and not isinstance(
        value, nn.Module | torch.Tensor
    ):
        return kind, value  # the same object, or another one
    raise _Incomparable(f"a {kind.__name__}")
