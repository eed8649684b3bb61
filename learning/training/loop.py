"""Local training: the one loop that every method shares. B batch, n examples of the client, P scalars of the model.

`train` takes an optimizer's steps on the method's loss. A method changes it in at most three places: `correct` adds to
the gradient terms that do not depend on the batch (a proximal term, a control variate), `given` gives the loss more
than the batch (another model's output for the same images), and `run_steps` replaces the step altogether. A `Training`
says all that `train` needs, so that many clients can be trained as one batch of models (`cohort.py`).

Beside a model and its gradients, a step holds single tensors: gradients are corrected, and taken, one by one.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import torch

from fedchain.learning.client import Client, Forward
from fedchain.learning.exceptions import TrainingDiverged
from fedchain.learning.models.base import Model
from fedchain.learning.models.vectors import trained_parameters, unflatten
from fedchain.learning.training.gradients import gradients_of
from fedchain.learning.training.optimizers import OptimizerState, open_optimizer, take_adam_step
from fedchain.learning.training.schedule import Schedule, batches_per_pass, count_steps

Loss = Callable[[Forward, torch.Tensor, torch.Tensor, Any], torch.Tensor]
"""loss(forward, images, labels, given) -> scalar."""

Through = Callable[[Model, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""through(model, images) -> embedding, logits: another way through a model than its own; the same for all clients."""

Seen = Callable[[torch.Tensor], None]
"""seen(embedding (B, D)): what a step's forward pass gave, before the step moved the model."""

Given = Callable[[torch.Tensor], Any]
"""given(batch) -> the loss's inputs in this step besides images and labels, by default None; batch (B,) are positions
among the client's examples. A tuple's type, and what of it is no tensor, are the same in every step. Called once a
step, in the order of the steps, before the step's pass through the model, which it may read."""

Step = Callable[[torch.Tensor, torch.Tensor, Any], torch.Tensor]
"""step(images, labels, given) -> loss: moves the client's model by one minibatch."""


@dataclass(frozen=True, slots=True, eq=False)
class Correction:
    """A change of each gradient into the one that the optimizer takes; weight decay and momentum come after."""

    change: Callable[..., torch.Tensor]
    """change(gradient, parameter, *values) -> gradient: element by element, of one trained tensor of the model, all of
    its shape. Clients differ in the values alone."""

    values: tuple[torch.Tensor, ...]
    """Vectors (P,) of one client that stay as they are during its training, such as the common model."""

    def of(self, parameters: Sequence[torch.Tensor]) -> Callable[[Iterable[torch.Tensor]], Iterator[torch.Tensor]]:
        """Return correct(gradients), which yields those of these parameters corrected, each when its turn comes."""
        parts = [unflatten(value, parameters) for value in self.values]
        return lambda gradients: map(self.change, gradients, parameters, *parts)


@dataclass(frozen=True, slots=True, eq=False)
class Training:
    """A client's training in a round."""

    client: Client
    loss: Loss
    schedule: Schedule
    round_number: int
    correct: Correction | None = None
    given: Given | None = None
    through: Through | None = None
    """None: the model's own way."""
    seen: Seen | None = None

    @property
    def steps(self) -> int:
        """How many steps it takes."""
        return count_steps(self.schedule, len(self.client.train_labels))


def train(training: Training) -> None:
    """Train the client's model in place and count the steps in `client.steps`.

    Raises `TrainingDiverged` if any step's loss was not finite; the model is then of no use.
    """
    client = training.client
    losses = None if client.trainer is None else client.trainer(training)  # (steps,)
    if losses is None:
        _train_alone(training)
        return
    client.steps += training.steps
    _validate_losses(losses.tolist(), client.index, training.round_number)


def _train_alone(training: Training) -> None:
    model, schedule = training.client.model, training.schedule
    parameters = trained_parameters(model)
    correct = None if training.correct is None else training.correct.of(parameters)
    take_step = open_optimizer(training.client, parameters, schedule)
    forward: Forward = model if training.through is None else partial(training.through, model)
    if training.seen is not None:
        forward = partial(_seen, forward, training.seen)

    def step(images: torch.Tensor, labels: torch.Tensor, given: Any) -> torch.Tensor:
        value = training.loss(forward, images, labels, given)
        gradients = gradients_of(value, parameters)
        if correct is None:
            take_step(gradients)
        else:
            with torch.no_grad():
                take_step(correct(gradients))
        return value

    run_steps(training.client, step, schedule, training.round_number, given=training.given)


def _seen(forward: Forward, seen: Seen, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    embedding, logits = forward(images)
    seen(embedding.detach())
    return embedding, logits


def run_steps(
    client: Client,
    step: Step,
    schedule: Schedule,
    round_number: int,
    *,
    given: Given | None = None,
    batches: Iterator[torch.Tensor] | None = None,
) -> None:
    """Take a round's steps on the client's model, in training mode, and count them in `client.steps`.

    `batches` yields the examples of each step, by default those of shuffled passes. Raises `TrainingDiverged` if any
    step's loss was not finite; the model is then of no use.
    """
    steps = count_steps(schedule, len(client.train_labels))
    if batches is None:
        batches = draw_batches(len(client.train_labels), schedule.batch_size, client.generator)
    client.model.train()
    losses = []
    for batch in islice(batches, steps):  # (B,)
        images, labels = take_batch(client, batch)
        losses.append(step(images, labels, None if given is None else given(batch)).item())
    client.steps += steps
    _validate_losses(losses, client.index, round_number)


def take_batch(client: Client, batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return training images and labels at these indices (B,); images augmented, where the client's task says so."""
    images = client.train_images.index_select(0, batch)
    if client.augmentation is not None:
        images = client.augmentation(images, client.generator)
    return images, client.train_labels.index_select(0, batch)


def train_network(
    parameters: Sequence[torch.Tensor],
    loss: Callable[[torch.Tensor], torch.Tensor],
    schedule: Schedule,
    examples: int,
    generator: torch.Generator,
) -> None:
    """Train a network that is no client's model, with AdamW: loss(batch (B,)) -> scalar, of so many examples.

    Its parameters must be leaves of the graph.
    """
    state = OptimizerState()
    batches = draw_batches(examples, schedule.batch_size, generator)
    for _ in range(schedule.epochs * batches_per_pass(examples, schedule.batch_size)):
        take_adam_step(parameters, state, schedule, torch.autograd.grad(loss(next(batches)), parameters))


def draw_batches(examples: int, batch_size: int, generator: torch.Generator) -> Iterator[torch.Tensor]:
    """Yield indices (B,) for ever: shuffled passes, each cut into full batches; the rest of a pass is left out."""
    size = min(batch_size, examples)
    while True:
        order = torch.randperm(examples, generator=generator)
        for start in range(0, examples - size + 1, size):
            yield order[start : start + size]


def _validate_losses(losses: Sequence[float], client: int, round_number: int) -> None:
    for step, loss in enumerate(losses):
        if not math.isfinite(loss):
            raise TrainingDiverged(client, round_number, step, loss)
