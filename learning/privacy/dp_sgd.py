"""DP-SGD: Abadi et al., "Deep Learning with Differential Privacy", CCS 2016 (arXiv:1607.00133), in every local step.

Each example's own gradient is clipped to L2 norm C; their sum gets noise N(0, (sigma C)^2) and is divided by the
expected batch size. Everything that the model becomes follows from these sums, so everything that is made of the model
is covered, too. B batch, n examples of the client, P scalars of the model.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import torch

from fedchain.learning.client import Client
from fedchain.learning.models.base import Model
from fedchain.learning.models.vectors import read_vector, trained_parameters, unflatten
from fedchain.learning.privacy.clipping import clip_factors, finite_rows
from fedchain.learning.privacy.ledger import Budget, Entry
from fedchain.learning.privacy.noise import add_noise, fingerprint
from fedchain.learning.privacy.releases import Release, Sampling
from fedchain.learning.seeding import GENERATOR_SIZE, fill_generator
from fedchain.learning.training.given import stack_given
from fedchain.learning.training.gradients import expect_gradient
from fedchain.learning.training.loop import Correction, Given, Loss, run_steps
from fedchain.learning.training.optimizers import open_optimizer
from fedchain.learning.training.schedule import Schedule, batches_per_pass, count_steps

GRADIENTS = "gradients"
"""Name of the mechanism in a ledger."""

_NUMBERS_MAX = 1 << 24
"""Numbers of per-example gradients that are in memory at once, as float64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientNoise:
    """How gradients are hidden."""

    multiplier: float
    """Standard deviation of the noise over the clipping norm, sigma."""

    clip: float
    """Largest L2 norm of one example's gradient, C."""

    sampling: Sampling
    """SHUFFLED or POISSON."""

    budget: Budget
    """The member's budget for the whole run."""

    phase: str
    """Name of the phase that trains."""


def train_privately(
    client: Client,
    loss: Loss,
    schedule: Schedule,
    round_number: int,
    noise: GradientNoise,
    *,
    correct: Correction | None = None,
    given: Given | None = None,
) -> None:
    """Train the client's model in place as `loop.train` does, with noise on every gradient, and charge the ledger.

    The loss of one example is the method's loss on the batch of it alone, with `given`'s result for that batch.
    `correct` comes after the noise: it must not look at examples. Raises `ReleaseRefused` before any step that the
    budget does not cover. Nothing that an example does to a loss or a gradient breaks it off: that would show without
    noise in who posts. A model of no use is found when it is posted, and charged as any other.
    """
    release = planned_release(schedule, len(client.train_labels), noise)
    client.ledger.validate(round_number, noise.phase, [release], noise.budget)
    parameters = trained_parameters(client.model)
    take_step = open_optimizer(client, parameters, schedule)
    corrected = None if correct is None else correct.of(parameters)
    start = fingerprint(read_vector(client.model).double().numpy(), noise.multiplier)
    labels: tuple[str | int, ...] = (GRADIENTS, noise.phase, "round", round_number, start)
    batch_size = min(schedule.batch_size, len(client.train_labels))  # as expected of a Poisson batch
    values, numbers = hashlib.sha256(start.encode()), count()  # from another model, equal sums have other noise

    def step(images: torch.Tensor, targets: torch.Tensor, given: Any) -> torch.Tensor:
        total, value = clipped_sum(client.model, loss, images, targets, given, noise.clip)  # (P,), ()
        scaled = (total / noise.clip).numpy()
        values.update(fingerprint(scaled, noise.multiplier).encode())
        # The sums of several steps may be equal, as those of empty batches are, and each step is counted with noise of
        # its own: otherwise the posted model would show how many batches were empty.
        noised = add_noise(scaled, noise.multiplier, client.secrets, *labels, "step", next(numbers))
        with torch.no_grad():
            gradient = torch.from_numpy(noised * (noise.clip / batch_size)).to(parameters[0].dtype)
            gradients: Iterable[torch.Tensor] = unflatten(gradient, parameters)
            take_step(gradients if corrected is None else corrected(gradients))
        return torch.zeros_like(value)  # no loss may decide whether there is a post

    batches = None
    if noise.sampling is Sampling.POISSON:
        batches = draw_poisson_batches(client, release.rate, *labels, "batches")
        seed_privately(client, *labels)
    run_steps(client, step, schedule, round_number, given=per_example(given), batches=batches)
    identity = client.secrets.draw(16, "ledger", values.hexdigest()).hex()
    client.ledger.charge(Entry(round_number, noise.phase, identity, release), noise.budget)


def planned_release(schedule: Schedule, examples: int, noise: GradientNoise) -> Release:
    """Return the release of a round's training. In units of C: an example that comes or goes moves a sum by 1, one that
    is replaced by another moves it by 2."""
    steps = count_steps(schedule, examples)
    if noise.sampling is Sampling.POISSON:
        rate = min(schedule.batch_size, examples) / examples
        return Release(GRADIENTS, noise.multiplier, 1.0, steps, noise.sampling, rate)
    passes = math.ceil(steps / batches_per_pass(examples, schedule.batch_size))
    return Release(GRADIENTS, noise.multiplier, 2.0, passes, noise.sampling)


def draw_poisson_batches(client: Client, rate: float, *labels: str | int) -> Iterator[torch.Tensor]:
    """Yield indices (B,) for ever, B random: each example is in each batch with probability `rate`, in private."""
    examples, number = len(client.train_labels), 0
    while True:
        words = np.frombuffer(client.secrets.draw(8 * examples, *labels, number), dtype="<u8") >> np.uint64(11)
        yield torch.from_numpy(np.flatnonzero(words * 2.0**-53 < rate))
        number += 1


def seed_privately(client: Client, *labels: str | int) -> None:
    """Have dropout and augmentation follow from the member's private randomness.

    Which numbers an example gets of them depends on its place in its batch. An example that is replaced has the place
    of the one before; but one that joins a Poisson batch moves all behind it, and those of all later batches. Were the
    numbers known, as those of a public seed are, the rest of a sum would move by far more than the clipping norm.
    Unknown and independent ones are as likely to belong to the same examples with it as without it.
    """
    for name, generator in (("dropout", torch.default_generator), ("augmentation", client.generator)):
        fill_generator(generator, client.secrets.draw(GENERATOR_SIZE, *labels, name))


def per_example(given: Given | None) -> Given | None:
    """Let `given` be asked for each example of a batch by itself: its answers, in order."""
    if given is None:
        return None
    return lambda batch: [given(batch[place : place + 1]) for place in range(len(batch))]


def clipped_sum(
    model: Model,
    loss: Loss,
    images: torch.Tensor,
    labels: torch.Tensor,
    given: list[Any] | None,
    clip: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sum (P,) of the examples' clipped gradients, float64, and their mean loss; zeros of an empty batch.

    `given` holds, for each example, the loss's further inputs for the batch of it alone.
    """
    parameters = {name: value for name, value in model.named_parameters() if value.requires_grad}
    scalars = sum(value.numel() for value in parameters.values())
    total, losses = torch.zeros(scalars, dtype=torch.float64), torch.zeros(())
    size = max(1, _NUMBERS_MAX // scalars)
    for begin in range(0, len(labels), size):
        part = slice(begin, begin + size)
        gradients, values = example_gradients(
            model, loss, images[part], labels[part], None if given is None else given[part]
        )  # (b, P), (b,)
        gradients = finite_rows(gradients)
        total += clip_factors(gradients, clip) @ gradients
        losses += values.sum()
    return total, losses / max(1, len(labels))


def example_gradients(
    model: Model, loss: Loss, images: torch.Tensor, labels: torch.Tensor, given: list[Any] | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return each example's gradient with respect to the trained parameters, (b, P), and its loss, (b,), detached."""
    from torch.func import functional_call, grad_and_value, vmap  # slow to import, and only needed here

    parameters = {name: value.detach() for name, value in model.named_parameters() if value.requires_grad}
    rebuild, stacked, dimensions = stack_given(given, torch.stack)

    def of_one(
        parameters: dict[str, torch.Tensor], image: torch.Tensor, label: torch.Tensor, parts: tuple[Any, ...]
    ) -> torch.Tensor:
        def forward(images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            result: tuple[torch.Tensor, torch.Tensor] = functional_call(model, parameters, (images,))
            return result

        value = loss(forward, image.unsqueeze(0), label.unsqueeze(0), rebuild(parts))
        expect_gradient(value)
        return value

    each = vmap(grad_and_value(of_one), in_dims=(None, 0, 0, dimensions), randomness="different")
    gradients, values = each(parameters, images, labels, stacked)
    rows = [gradients[name].reshape(len(labels), -1) for name in parameters]  # a parameter may be one number
    return torch.cat(rows, dim=1), values.detach()
