"""Stacked models: those of a cohort's clients, each in a lane of its own, and what one client's own code sees of them.

K clients, B batch, D embedding, C classes.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any

import torch
from torch import nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode

from fedchain.learning.client import Forward
from fedchain.learning.models.base import Model
from fedchain.learning.training.given import Stack
from fedchain.learning.training.kinds import attributes_of
from fedchain.learning.training.loop import Through


class StackedModels:
    """The clients' models, stacked.

    Args:
        models: one for each client, all of one architecture; they change with `write_back` alone.
        through: another way through a model than its own; None for its own.
        stack: puts each client's tensor into a lane of its own, on the device.
    """

    def __init__(self, models: Sequence[Model], through: Through | None, stack: Stack) -> None:
        self._states = [_state(model) for model in models]
        self.values = {name: stack([state[name].detach() for state in self._states]) for name in self._states[0]}
        """Parameters and buffers by name, (K, ...) each."""
        self._trained = [name for name, value in self._states[0].items() if value.requires_grad]
        self.trained = [self.values[name].requires_grad_() for name in self._trained]
        """The parameters that training moves, (K, ...) each, in the model's order."""
        self._buffers = [f"model.{name}" for name, _ in models[0].named_buffers()]
        self._slots = _slots(models[0], self._states[0])
        self._buffer_slots = [(slot, name) for slot, name in self._slots.items() if name in self._buffers]
        self.memory = [{_address(value) for value in state.values()} - {0} for state in self._states]
        """Where the numbers of each client's own model are."""
        for model in models:
            model.train()
        self._templates = [_Template(model, through) for model in models]
        self._keeps_attributes = False
        self.has_channels_last = any(_has_channels_last(value) for value in self._states[0].values())
        """Whether convolutions of such a model by itself give images whose channels come last in memory."""

    def of_lane(self, values: dict[str, torch.Tensor], images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return embedding (B, D) and logits (B, C) under one lane's values; running means move in place.

        Raises an error for a model that puts other tensors in place of its buffers.
        """
        given = self._given(values)
        found: tuple[torch.Tensor, torch.Tensor] = self._call(0, given, images)
        if any(now is not values[name] for name, now in self._buffers_of(given)):
            raise _NotInLanes("its buffers are replaced")
        return found

    @contextmanager
    def kept_on_error(self) -> Iterator[None]:
        """Leave buffers as they were after any error."""
        before = {name: self.values[name].clone() for name in self._buffers}
        try:
            yield
        except BaseException:
            for name, value in before.items():
                self.values[name].copy_(value)
            raise

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Raise an error for a model that sets attributes, and put them back. The first step shows which one does."""
        if self._keeps_attributes:
            yield
            return
        model = self._templates[0].model
        before, known = [(module, _copied(vars(module))) for module in model.modules()], attributes_of(model)
        try:
            yield
            if attributes_of(model) != known:
                raise _NotInLanes("its attributes change")
            self._keeps_attributes = True
        except BaseException:
            for module, attributes in before:
                vars(module).clear()
                vars(module).update(attributes)
            raise

    @contextmanager
    def one(self, place: int) -> Iterator[tuple[Forward, list[torch.Tensor], list[torch.Tensor]]]:
        """Give one client's model by itself, its trained parameters, and a list of the embeddings that it gives."""
        own = {name: value.detach()[place] for name, value in self.values.items()}
        trained, seen = [own[name].requires_grad_() for name in self._trained], list[torch.Tensor]()
        given = self._given(own)

        def forward(images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            embedding, logits = self._call(place, given, images)
            seen.append(embedding)
            return embedding, logits

        yield forward, trained, seen
        for name, now in self._buffers_of(given):
            if now is not own[name]:
                own[name].copy_(now.detach())

    @torch.no_grad()
    def write_back(self, place: int) -> None:
        """Give a client's own model its values."""
        for name, values in self.values.items():
            self._states[place][name].copy_(values[place])

    @torch.no_grad()
    def take_over(self, place: int) -> None:
        """Take a client's values from its own model."""
        for name, value in self._states[place].items():
            self.values[name][place].copy_(value)

    def _given(self, values: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The tensor that each place in a model is to hold."""
        return {slot: values[name] for slot, name in self._slots.items()}

    def _buffers_of(self, given: dict[str, torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
        """The tensors that the places of buffers hold now, with the buffers' names."""
        return ((name, given[slot]) for slot, name in self._buffer_slots)

    def _call(self, place: int, given: dict[str, torch.Tensor], images: torch.Tensor) -> Any:
        # Torch would fill every name of a tied weight, so a module of two names twice; the second time it takes out the
        # first filling, which then stays in the model.
        return functional_call(self._templates[place], given, (images,), tie_weights=False)


class UpToDate(TorchFunctionMode):
    """Brings a client's own model up to date when torch is first asked about a tensor of it."""

    def __init__(self, models: StackedModels, place: int) -> None:
        super().__init__()
        self._models, self._place, self._is_read = models, place, False

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if not self._is_read and self._reads((args, kwargs)):
            self._is_read = True
            self._models.write_back(self._place)
        return func(*args, **(kwargs or {}))

    def take_over(self) -> None:
        """Take over what was done to it."""
        if self._is_read:
            self._models.take_over(self._place)

    def _reads(self, value: Any) -> bool:
        """Whether a tensor of the model is among the arguments."""
        if isinstance(value, torch.Tensor):
            return _address(value) in self._models.memory[self._place]
        if isinstance(value, dict):
            return self._reads([*value.values()])
        return isinstance(value, tuple | list) and any(map(self._reads, value))


def _address(tensor: torch.Tensor) -> int:
    """Where a tensor's numbers are; 0 for one that has none of its own, as within `vmap`."""
    try:
        return tensor.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):
        return 0


class _NotInLanes(Exception):
    """A model does what no batch of models does."""


class _Template(nn.Module):
    """A model by another way through it."""

    def __init__(self, model: Model, through: Through | None) -> None:
        super().__init__()
        self.model, self._through = model, through

    def forward(self, images: torch.Tensor) -> Any:
        return self.model(images) if self._through is None else self._through(self.model, images)


def _state(model: nn.Module) -> dict[str, torch.Tensor]:
    """A model's parameters, and then its buffers, by their names in a `_Template`."""
    return {f"model.{name}": value for name, value in (*model.named_parameters(), *model.named_buffers())}


def _slots(model: nn.Module, state: dict[str, torch.Tensor]) -> dict[str, str]:
    """The places of tensors in a model's modules, each once, by name in a `_Template`: the name of its tensor there."""
    names = {id(value): name for name, value in state.items()}
    found = dict[str, str]()
    for place, module in model.named_modules(prefix="model"):
        own = (
            named(recurse=False, remove_duplicate=False) for named in (module.named_parameters, module.named_buffers)
        )
        found |= {f"{place}.{name}": names[id(value)] for part in own for name, value in part}
    return found


def _copied(attributes: dict[str, Any]) -> dict[str, Any]:
    """Copy attributes, and lists, dictionaries and sets among them."""
    return {name: copy(value) if type(value) in (list, dict, set) else value for name, value in attributes.items()}


def _has_channels_last(value: torch.Tensor) -> bool:
    """Whether it lies in memory so, and not in the order of its shape."""
    return value.ndim == 4 and not value.is_contiguous() and value.is_contiguous(memory_format=torch.channels_last)
