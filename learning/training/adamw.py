"""AdamW: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019, Algorithm 2.

torch.optim's class would load torch's compiler, a second and 70 MB a process.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from fedchain.learning.training.loop import draw_batches
from fedchain.learning.training.schedule import batches_per_pass

_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class AdamWSchedule:
    """How long AdamW runs, and with which step."""

    learning_rate: float
    """First and largest step of a parameter, nearly."""

    epochs: int
    """Passes over the data."""

    batch_size: int
    """Examples per step."""

    weight_decay: float = 0.01
    """Part of a parameter, times the learning rate, that each step takes away from it; torch's default."""


class AdamW:
    """Moves parameters in place, which must be leaves of the graph; remembers the moments of their gradients."""

    def __init__(self, parameters: Sequence[torch.Tensor], schedule: AdamWSchedule) -> None:
        self._parameters, self._schedule = parameters, schedule
        self._means = [torch.zeros_like(value) for value in parameters]
        self._squares = [torch.zeros_like(value) for value in parameters]
        self._steps = 0

    @torch.no_grad()
    def step(self, loss: torch.Tensor) -> None:
        """Take one step down a scalar loss."""
        with torch.enable_grad():
            gradients = torch.autograd.grad(loss, self._parameters)
        self._steps += 1
        rate, decay = self._schedule.learning_rate, self._schedule.weight_decay
        unbiased_mean, unbiased_square = 1 - _BETA1**self._steps, 1 - _BETA2**self._steps
        for value, gradient, mean, square in zip(self._parameters, gradients, self._means, self._squares, strict=True):
            value.mul_(1 - rate * decay)
            mean.lerp_(gradient, 1 - _BETA1)
            square.mul_(_BETA2).addcmul_(gradient, gradient, value=1 - _BETA2)
            value.addcdiv_(mean / unbiased_mean, (square / unbiased_square).sqrt_().add_(_EPSILON), value=-rate)


def train_with_adamw(
    parameters: Sequence[torch.Tensor],
    loss: Callable[[torch.Tensor], torch.Tensor],
    schedule: AdamWSchedule,
    examples: int,
    generator: torch.Generator,
) -> None:
    """Move parameters down the loss of batches, loss(batch (B,)) -> scalar, which are drawn among so many examples."""
    optimizer = AdamW(parameters, schedule)
    batches = draw_batches(examples, schedule.batch_size, generator)
    for _ in range(schedule.epochs * batches_per_pass(examples, schedule.batch_size)):
        optimizer.step(loss(next(batches)))
