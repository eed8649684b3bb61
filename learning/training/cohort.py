"""Cohorts: models of one architecture, each client's own, trained as one batch of models on the processor or a card.

Each client draws its batches, augmentation and dropout from its own generators, as if it were trained by itself: the
results are the same but for rounding. Their last bits depend on how many are in the cohort and on the place among them:
kernels for batches add in other orders, and compute the end of a long vector otherwise than its middle.

K clients, B batch, D embedding, P scalars of the model.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from operator import is_not
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.func import vmap

from fedchain.crypto.hashing import sha256
from fedchain.learning.client import Client
from fedchain.learning.device import kept_generator
from fedchain.learning.exceptions import OWN_CODE_ERRORS, OwnCodeFailed, one_line
from fedchain.learning.training.examples import Examples, are_moved
from fedchain.learning.training.given import Stack, Stacked, stack_given
from fedchain.learning.training.lanes import InLanes
from fedchain.learning.training.loop import Training, draw_batches, take_batch
from fedchain.learning.training.optimizers import first_velocities, take_sgd_step
from fedchain.learning.training.stacked_models import StackedModels, UpToDate

_log = logging.getLogger(__name__)

SMALL = 1 << 16
"""Scalars of a fully connected model up to which a processor gains from a cohort. Larger models and convolutions are as
fast, or faster, one by one."""


def pays(model: nn.Module, device: torch.device) -> bool:
    """Whether a cohort of such models takes less time than its members one by one. The machine's speed has no say."""
    if device.type != "cpu":
        return True
    convolves = any(value.ndim > 2 for value in model.parameters())
    return not convolves and sum(value.numel() for value in model.parameters()) <= SMALL


def train_cohort(
    trainings: Sequence[Training], dropout: Sequence[torch.Generator], device: torch.device
) -> list[torch.Tensor | Exception]:
    """Train the clients' models in place. Return the loss in each step (steps,), or the error, of each client.

    The model of a client whose code raised an error is of no use.

    All are of one `kind_of`. `dropout` has torch's generator of each client, which goes on from there. Models that
    torch cannot compute together take each step one by one.
    """
    with kept_generator():
        return _Cohort(trainings, dropout, device).train()


class _Found(NamedTuple):
    """The outcome of a pass through the models."""

    losses: torch.Tensor
    """(K,)."""

    gradients: Sequence[torch.Tensor]
    """(K, ...) each, corrected."""

    embeddings: Sequence[Sequence[torch.Tensor]]
    """(B, D) of each client, and each time that the loss looked at its model."""


class _Cohort:
    """Trainings of one kind, on a device."""

    def __init__(self, trainings: Sequence[Training], dropout: Sequence[torch.Generator], device: torch.device) -> None:
        self._trainings, self._dropout, self._device = trainings, dropout, device
        self._stack: Stack = partial(_stack, device)
        self._models = StackedModels(
            [training.client.model for training in trainings], trainings[0].through, self._stack
        )
        corrections = [training.correct for training in trainings if training.correct is not None]
        self._change: Callable[..., torch.Tensor] | None = corrections[0].change if corrections else None
        self._values = [self._cut(of_all) for of_all in zip(*(one.values for one in corrections), strict=True)]
        clients = [training.client for training in trainings]
        self._examples = Examples(clients, device) if are_moved(clients, device) else None
        self._is_together = len(trainings) > 1
        self._card_states: dict[int, torch.Tensor] = {}  # of a card's generator, by place
        self._errors: dict[int, Exception] = {}  # of clients, by place; the others go on
        self._answers: Sequence[Any] = ()
        self._given = stack_given(None, self._stack)

    def train(self) -> list[torch.Tensor | Exception]:
        """See `train_cohort`."""
        trainings, schedule, models = self._trainings, self._trainings[0].schedule, self._models
        batches = [draw_batches(len(a.client.train_labels), schedule.batch_size, a.client.generator) for a in trainings]
        moved = [value.detach() for value in models.trained]
        velocities = first_velocities(moved, schedule)
        losses = torch.empty(len(trainings), trainings[0].steps, device=self._device)
        drawn: list[torch.Tensor] = [torch.empty(0, dtype=torch.int64)] * len(trainings)  # (B,) each
        taken: list[tuple[torch.Tensor, ...]] = [()] * len(trainings)
        answers: list[Any] = [None] * len(trainings)
        for number in range(trainings[0].steps):
            for place, training in self._going_on():
                with self._told(place):
                    drawn[place] = next(batches[place])
                    taken[place] = self._take(place, training.client, drawn[place])
            self._fill(taken)
            if not self._going_on():
                break
            images, labels = self._batches(taken)  # before a client's own code changes them
            for place, training in self._going_on():
                if training.given is not None:
                    with self._told(place), self._as_alone(place):
                        answers[place] = training.given(drawn[place])
            self._fill(answers)
            if not self._going_on():
                break
            together = images, labels, tuple(answers)  # (K, B, ...), (K, B), K
            found = self._together(*together) or self._one_by_one(*together)
            for place, training in self._going_on():
                if training.seen is not None:
                    with self._told(place), self._as_alone(place):
                        for embedding in found.embeddings[place]:
                            training.seen(embedding.cpu())
            take_sgd_step(moved, velocities, schedule, found.gradients)
            losses[:, number] = found.losses
        for place in range(len(trainings)):
            models.write_back(place)
        return [self._errors.get(place, of_one) for place, of_one in enumerate(losses.cpu())]

    def _going_on(self) -> list[tuple[int, Training]]:
        """The trainings that have not failed, by place."""
        return [(place, training) for place, training in enumerate(self._trainings) if place not in self._errors]

    def _fill(self, values: list[Any]) -> None:
        """Put a value of a training that goes on in the place of each that has failed: a lane needs some."""
        going_on = self._going_on()
        for place in self._errors:
            values[place] = values[going_on[0][0]] if going_on else None

    def _take(self, place: int, client: Client, batch: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Look up and augment a batch (B,): images (B, ...) and labels (B,), or the places (B,) of both on the card."""
        return take_batch(client, batch) if self._examples is None else (self._examples.place(place, batch),)

    def _batches(self, taken: Sequence[tuple[torch.Tensor, ...]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return all clients' images (K, B, ...) and labels (K, B), on the device; of each what `_take` returned."""
        if self._examples is not None:
            return self._examples.take([places for (places,) in taken])
        images, labels = zip(*taken, strict=True)
        return self._stack([*images]), self._stack([*labels])

    @contextmanager
    def _as_alone(self, place: int) -> Iterator[None]:
        """Have a client's own code draw its own numbers, and find its model as it is now."""
        with self._drawing(place), UpToDate(self._models, place) as look:
            yield
        look.take_over()

    @contextmanager
    def _told(self, place: int) -> Iterator[None]:
        """Keep a client's error: it is its own."""
        try:
            yield
        except Exception as error:
            self._errors[place] = error
        except SystemExit as error:  # of a user's own code, which would end the process
            self._errors[place] = OwnCodeFailed(f"peer {self._trainings[place].client.index}: {one_line(error)}")

    def _together(self, images: torch.Tensor, labels: torch.Tensor, answers: Sequence[Any]) -> _Found | None:
        """Pass through all models at once. None, and all is as it was, if that cannot be done."""
        models = self._models
        if not self._is_together:
            return None
        lanes = InLanes(self._dropout, self._stack, models.has_channels_last)
        try:
            if any(map(is_not, answers, self._answers)) or not self._answers:
                self._answers, self._given = answers, stack_given(answers, self._stack)
            with models.kept_on_error(), models.unchanged(), _on(self._device), lanes:
                losses, embeddings = _losses(self._trainings[0], models, images, labels, self._given)
                found = torch.autograd.grad(losses.sum(), models.trained, materialize_grads=True)
                gradients = self._corrected(found)
            return _Found(losses.detach(), gradients, [*zip(*map(torch.Tensor.detach, embeddings), strict=True)])
        except OWN_CODE_ERRORS as error:
            # Torch has many names for what it cannot do; any other fault shows again one by one.
            _log.info("a cohort of %d is computed one by one: %s", len(answers), error)
            lanes.undo()
            self._is_together = False
        return None

    def _one_by_one(self, images: torch.Tensor, labels: torch.Tensor, answers: Sequence[Any]) -> _Found:
        """Pass through one model after the other."""
        models = self._models
        losses = torch.zeros(len(answers), device=self._device)
        gradients: list[Sequence[torch.Tensor]] = [()] * len(answers)  # of each client
        embeddings: list[Sequence[torch.Tensor]] = [()] * len(answers)
        failed = len(self._errors)
        for place, training in self._going_on():
            lane = InLanes([torch.default_generator], self._stack, models.has_channels_last)
            with self._told(place), self._drawing(place), models.one(place) as (forward, trained, seen):
                with self._drawing_on_card(place), _on(self._device), lane:
                    given = _given_to_one(answers[place], self._stack)
                    loss = training.loss(forward, images[place], labels[place], given)
                    found = torch.autograd.grad(loss, trained, materialize_grads=True)
                gradients[place] = self._corrected(found, place)
                losses[place] = loss.detach()
                embeddings[place] = [value.detach() for value in seen]
        self._is_together = len(self._errors) > failed  # it may have been on account of these
        still = [torch.zeros_like(value[0]) for value in models.trained] if self._errors else ()
        of_all = [*zip(*(gradients[place] or still for place in range(len(answers))), strict=True)]
        return _Found(losses, [torch.stack(of_each) for of_each in of_all], embeddings)

    @torch.no_grad()
    def _corrected(self, gradients: Sequence[torch.Tensor], place: int | None = None) -> Sequence[torch.Tensor]:
        """Return the gradients that SGD takes: (K, ...) each, or those of one client, (...) each."""
        change = self._change
        if change is None:
            return gradients

        def changed(*of_all: Sequence[torch.Tensor]) -> list[torch.Tensor]:
            return [*map(change, *of_all)]

        known = [self._models.trained, *self._values]  # (K, ...) each
        if place is not None:
            return changed(gradients, *([value[place] for value in values] for values in known))
        found: list[torch.Tensor] = vmap(changed)(gradients, *known)
        return found

    def _cut(self, vectors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the clients' vectors (P,) as tensors like the trained ones, (K, ...) each."""
        trained = self._models.trained
        parts = torch.split(self._stack([*vectors]), [value[0].numel() for value in trained], 1)
        return [part.reshape(value.shape) for part, value in zip(parts, trained, strict=True)]

    @contextmanager
    def _drawing(self, place: int) -> Iterator[None]:
        """Have torch draw from a client's generator."""
        own = self._dropout[place]
        torch.default_generator.set_state(own.get_state())
        try:
            yield
        finally:
            own.set_state(torch.default_generator.get_state())

    @contextmanager
    def _drawing_on_card(self, place: int) -> Iterator[None]:
        """Have a card draw a client's numbers, which follow from its generator as it was at first."""
        if self._device.type == "cpu":
            yield
            return
        before = torch.cuda.get_rng_state(self._device)
        try:
            if place in self._card_states:
                torch.cuda.set_rng_state(self._card_states[place], self._device)
            else:
                state = self._dropout[place].get_state().numpy().tobytes()
                with torch.cuda.device(self._device):
                    torch.cuda.manual_seed(int.from_bytes(sha256(state)[:6]))
            yield
            self._card_states[place] = torch.cuda.get_rng_state(self._device)
        finally:
            torch.cuda.set_rng_state(before, self._device)


def _stack(device: torch.device, tensors: list[torch.Tensor]) -> torch.Tensor:
    """Return each client's tensor in a lane of its own, (K, ...), on the device."""
    return torch.stack(tensors).to(device)


def _on(device: torch.device) -> AbstractContextManager[Any]:
    """Make new tensors on a device."""
    return nullcontext() if device.type == "cpu" else device


def _given_to_one(answer: Any, stack: Stack) -> Any:
    """Return what a client's loss is given, on the device."""
    alone = stack_given([answer], stack)
    fields = zip(alone.fields, alone.dimensions, strict=True)
    return alone.rebuild(tuple(value if place is None else value[0] for value, place in fields))


def _losses(
    training: Training, models: StackedModels, images: torch.Tensor, labels: torch.Tensor, given: Stacked
) -> tuple[torch.Tensor, Sequence[torch.Tensor]]:
    """Return each lane's loss (K,), and the embeddings (K, B, D) of each time that it looks at the model."""

    def of_one(
        values: dict[str, torch.Tensor], images: torch.Tensor, labels: torch.Tensor, fields: tuple[Any, ...]
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        seen: list[torch.Tensor] = []

        def forward(images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            embedding, logits = models.of_lane(values, images)
            seen.append(embedding)
            return embedding, logits

        return training.loss(forward, images, labels, given.rebuild(fields)), tuple(seen)

    found: tuple[torch.Tensor, Sequence[torch.Tensor]] = vmap(of_one, (0, 0, 0, given.dimensions), randomness="error")(
        models.values, images, labels, given.fields
    )
    return found
