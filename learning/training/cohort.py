"""Cohorts: models of one architecture, each client's own, trained as one batch of models on the processor or a card.

Each client draws its batches, augmentation and dropout from its own generators, as if it were trained by itself: the
results are the same but for rounding. Their last bits depend on how many are in the cohort and on the place among them:
kernels for batches add in other orders, and compute the end of a long vector otherwise than its middle.

K clients, B batch, D embedding, P scalars of the model.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, vmap
from torch.overrides import TorchFunctionMode

from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.models.base import Model
from fedchain.learning.training.given import Stack, Stacked, stack_given
from fedchain.learning.training.loop import Correction, Through, Training, draw_batches, take_batch, take_step

SMALL = 1 << 16
"""Scalars of a fully connected model up to which a processor gains from a cohort. Larger models and convolutions are as
fast, or faster, one by one."""

Masks = Callable[[torch.Tensor, float], torch.Tensor]
"""masks(a client's value, share of ones) -> masks (K, ...), of the value's shape and order in memory."""

_BY_CHANNEL = {F.dropout: False, F.dropout1d: True, F.dropout2d: True, F.dropout3d: True}
"""Kinds of dropout, and whether they drop whole channels."""


def pays(model: nn.Module, device: torch.device) -> bool:
    """Whether a cohort of such models takes less time than its members one by one. The machine's speed has no say."""
    if device.type != "cpu":
        return True
    convolves = any(value.ndim > 2 for value in model.parameters())
    return not convolves and sum(value.numel() for value in model.parameters()) <= SMALL


def train_cohort(
    trainings: Sequence[Training], dropout: Sequence[torch.Generator], device: torch.device
) -> torch.Tensor:
    """Train the clients' models in place. Return each client's loss in each step, (K, steps).

    All are of one `kind_of`. `dropout` has the generator of each client's dropout. Raises `ConfigurationError` for a
    model or a loss that cannot be in a cohort.
    """
    first, stack = trainings[0], partial(_stack, device)
    models = _Models([training.client.model for training in trainings], first.through, stack)
    velocities = [torch.zeros_like(value) for value in models.trained]
    batches = [draw_batches(len(a.client.train_labels), a.schedule.batch_size, a.client.generator) for a in trainings]
    correct = _stacked_correction([a.correct for a in trainings if a.correct is not None], stack)
    losses = torch.empty(len(trainings), first.steps, device=device)
    answers: list[Any] = []
    for number in range(first.steps):
        drawn = [next(of_client) for of_client in batches]
        taken = [take_batch(a.client, batch) for a, batch in zip(trainings, drawn, strict=True)]
        images, labels = (stack([*parts]) for parts in zip(*taken, strict=True))  # (K, B, ...), (K, B)
        before, answers = answers, [a.given and a.given(batch) for a, batch in zip(trainings, drawn, strict=True)]
        if number == 0 or any(now is not earlier for now, earlier in zip(answers, before, strict=True)):
            given = stack_given(answers, stack)
        with device if device.type != "cpu" else nullcontext(), _InLanes(dropout, stack, models.has_channels_last):
            values, embeddings = _losses(first, models, images, labels, given)  # (K,), (K, B, D)
        gradients = torch.autograd.grad(values.sum(), models.trained, materialize_grads=True)
        if correct is not None:
            gradients = correct(gradients, models.trained)
        take_step(models.trained, gradients, velocities, first.schedule)
        losses[:, number] = values.detach()
        for training, embedding in zip(trainings, embeddings, strict=True):
            if training.seen is not None:
                training.seen(embedding.detach().cpu())
    models.write_back()
    return losses.cpu()


def _stack(device: torch.device, tensors: list[torch.Tensor]) -> torch.Tensor:
    """Return each client's tensor in a lane of its own, (K, ...), on the device."""
    return torch.stack(tensors).to(device)


class _Models:
    """The clients' models, stacked."""

    def __init__(self, models: Sequence[Model], through: Through | None, stack: Stack) -> None:
        self._states = [_state(model) for model in models]
        self.values = {name: stack([state[name].detach() for state in self._states]) for name in self._states[0]}
        self.trained = [
            self.values[name].requires_grad_() for name, value in self._states[0].items() if value.requires_grad
        ]
        """The parameters that training moves, (K, ...) each, in the model's order."""
        for model in models:
            model.train()
        self._template = _Template(models[0], through)
        self.has_channels_last = any(_has_channels_last(value) for value in self._states[0].values())
        """Whether convolutions of such a model by itself give images whose channels come last in memory."""

    def of_lane(self, values: dict[str, torch.Tensor], images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return embedding (B, D) and logits (B, C) under one lane's values; running means move in place."""
        found: tuple[torch.Tensor, torch.Tensor] = functional_call(self._template, values, (images,))
        return found

    @torch.no_grad()
    def write_back(self) -> None:
        """Give each model its own values, and leave it in training mode."""
        for name, values in self.values.items():
            for state, value in zip(self._states, values.cpu(), strict=True):
                state[name].copy_(value)


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


def _has_channels_last(value: torch.Tensor) -> bool:
    """Whether it lies in memory so, and not in the order of its shape."""
    return value.ndim == 4 and not value.is_contiguous() and value.is_contiguous(memory_format=torch.channels_last)


def _losses(
    training: Training, models: _Models, images: torch.Tensor, labels: torch.Tensor, given: Stacked
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return each lane's loss (K,) and embeddings (K, B, D)."""

    def of_one(
        values: dict[str, torch.Tensor], images: torch.Tensor, labels: torch.Tensor, fields: tuple[Any, ...]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        seen: list[torch.Tensor] = []

        def forward(images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            embedding, logits = models.of_lane(values, images)
            seen.append(embedding)
            return embedding, logits

        return training.loss(forward, images, labels, given.rebuild(fields)), seen[-1]

    try:
        found = vmap(of_one, (0, 0, 0, given.dimensions), randomness="error")(
            models.values, images, labels, given.fields
        )
    except RuntimeError as error:
        if "vmap" not in str(error):
            raise
        why = str(error).splitlines()[0].rstrip(".")
        raise ConfigurationError(f"models cannot be trained at once, set vectorize_clients = false: {why}") from error
    return found[0], found[1]


def _stacked_correction(
    corrections: Sequence[Correction], stack: Stack
) -> Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor]], tuple[torch.Tensor, ...]] | None:
    """Return (gradients, parameters) -> the corrected gradients, (K, ...) each; None where nobody corrects."""
    if not corrections:
        return None
    own = [stack([*values]) for values in zip(*(correction.values for correction in corrections), strict=True)]
    change = vmap(corrections[0].change)

    @torch.no_grad()
    def correct(gradients: Sequence[torch.Tensor], parameters: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        flat = (torch.cat([value.flatten(1) for value in values], 1) for values in (gradients, parameters))  # (K, P)
        parts = torch.split(change(*flat, *own), [value[0].numel() for value in parameters], 1)
        return tuple(part.reshape(value.shape) for part, value in zip(parts, parameters, strict=True))

    return correct


class _InLanes(TorchFunctionMode):
    """Does what torch does otherwise, or not at all, in lanes: each client's dropout, and group normalization."""

    def __init__(self, generators: Sequence[torch.Generator], stack: Stack, has_channels_last: bool) -> None:
        super().__init__()
        self._generators, self._stack, self._has_channels_last = generators, stack, has_channels_last

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is F.group_norm:
            func = _group_norm
        elif func in _BY_CHANNEL:
            func = partial(self._drop, _BY_CHANNEL[func])
        return func(*args, **(kwargs or {}))

    def _drop(
        self, by_channel: bool, value: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> torch.Tensor:
        if not training or p == 0:
            return value
        result: torch.Tensor = _Masked.apply(value, p, by_channel, self._masks)  # type: ignore[no-untyped-call]
        return value.copy_(result) if inplace else result

    def _masks(self, value: torch.Tensor, kept: float) -> torch.Tensor:
        """Draw a mask (K, ...) from each client's generator, as where it is alone: zeros, and ones over `kept`.

        Numbers are drawn in the order of memory. Convolutions of lanes give channels before rows.
        """
        memory = sorted(range(value.ndim), key=lambda place: -value.stride()[place])  # dimensions, the slowest first
        if self._has_channels_last and value.ndim == 4:
            memory.append(memory.pop(1))
        places = [memory.index(place) for place in range(value.ndim)]
        shape = [value.shape[place] for place in memory]
        drawn = [
            torch.empty(shape, device="cpu").permute(places).bernoulli_(kept, generator=own) for own in self._generators
        ]
        return self._stack(drawn).div_(kept)


class _Masked(torch.autograd.Function):
    """Multiplies by masks, which are drawn where all lanes are in sight."""

    @staticmethod
    def forward(value: torch.Tensor, p: float, by_channel: bool, masks: Masks) -> torch.Tensor:
        raise AssertionError("masks are drawn for lanes")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is kept: the gradient is that of the multiplication."""

    @staticmethod
    def vmap(
        info: Any, dims: tuple[int | None, ...], value: torch.Tensor, p: float, by_channel: bool, masks: Masks
    ) -> tuple[torch.Tensor, int]:
        assert dims[0] is not None, "what a model makes of a lane's images is the lane's"
        value = value.movedim(dims[0], 0)
        of_one = value[0].detach()
        if by_channel:
            of_one = of_one.new_empty((*value.shape[1:3], *(1,) * (value.ndim - 3)))
        return value * masks(of_one, 1.0 - p), 0


def _group_norm(
    value: torch.Tensor,
    num_groups: int,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """Compute F.group_norm, which asks lanes for their layout, by layer normalization, which does not."""
    flat = value.reshape(len(value), num_groups, -1)
    normal = F.layer_norm(flat, flat.shape[2:], eps=eps).reshape(value.shape)
    shape = (-1, *(1,) * (value.ndim - 2))
    normal = normal if weight is None else normal * weight.view(shape)
    return normal if bias is None else normal + bias.view(shape)
