"""Optimizers: the steps of torch.optim's SGD, Adam and AdamW, to the bit.

The classes themselves would load torch's compiler, a second and 70 MB a process. Adam: Kingma and Ba, "Adam: A Method
for Stochastic Optimization", ICLR 2015, Algorithm 1. AdamW: Loshchilov and Hutter, "Decoupled Weight Decay
Regularization", ICLR 2019, Algorithm 2.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from fedchain.learning.client import Client
from fedchain.learning.training.schedule import Schedule

Optimizer = Callable[[Iterable[torch.Tensor]], None]
"""optimizer(gradients): moves, in place, the parameters that it was opened for, each when its gradient comes."""


@dataclass(slots=True)
class OptimizerState:
    """An optimizer's memory, which a client keeps between rounds. Empty before the first step."""

    steps: int = 0
    """Steps taken."""

    means: tuple[torch.Tensor, ...] | None = None
    """Shaped as the parameters: the velocity, or the running means of gradients."""

    squares: tuple[torch.Tensor, ...] | None = None
    """The running means of squared gradients; None for momentum."""


def open_optimizer(client: Client, parameters: Sequence[torch.Tensor], schedule: Schedule) -> Optimizer:
    """Return the schedule's optimizer of a client's parameters. All but plain SGD go on where the last round ended."""
    parameters = [value.detach() for value in parameters]  # the same numbers, which autograd lets everybody change
    if schedule.optimizer == "sgd":
        return partial(take_sgd_step, parameters, first_velocities(parameters, schedule), schedule)
    state = client.state(OptimizerState)
    if schedule.optimizer == "momentum":
        if state.means is None:
            state.means = tuple(torch.zeros_like(value) for value in parameters)
        return partial(take_sgd_step, parameters, state.means, schedule)
    return partial(take_adam_step, parameters, state, schedule)


def first_velocities(parameters: Sequence[torch.Tensor], schedule: Schedule) -> list[torch.Tensor]:
    """Return the velocities before the first step, zeros; none without momentum, for which they are as large as the
    model and of no use."""
    return [torch.zeros_like(value) for value in parameters] if schedule.momentum > 0 else []


def take_sgd_step(
    parameters: Sequence[torch.Tensor],
    velocities: Sequence[torch.Tensor],
    schedule: Schedule,
    gradients: Iterable[torch.Tensor],
) -> None:
    """Take torch.optim.SGD's step. The parameters are detached; velocities are looked at where there is momentum."""
    for place, (value, gradient) in enumerate(zip(parameters, gradients, strict=True)):
        if schedule.weight_decay > 0:
            gradient = gradient.add(value, alpha=schedule.weight_decay)
        if schedule.momentum > 0:
            gradient = velocities[place].mul_(schedule.momentum).add_(gradient)
        value.sub_(gradient, alpha=schedule.learning_rate)


@torch.no_grad()
def take_adam_step(
    parameters: Sequence[torch.Tensor], state: OptimizerState, schedule: Schedule, gradients: Iterable[torch.Tensor]
) -> None:
    """Take torch.optim.Adam's step, or AdamW's, whose weight decay is none of the gradient."""
    if state.means is None or state.squares is None:
        state.means = tuple(torch.zeros_like(value) for value in parameters)
        state.squares = tuple(torch.zeros_like(value) for value in parameters)
    state.steps += 1
    rate, decay, is_decoupled = schedule.learning_rate, schedule.weight_decay, schedule.optimizer == "adamw"
    step_size = rate / (1 - schedule.beta1**state.steps)
    unbiased = (1 - schedule.beta2**state.steps) ** 0.5
    for value, gradient, mean, square in zip(parameters, gradients, state.means, state.squares, strict=True):
        if decay > 0 and is_decoupled:
            value.mul_(1 - rate * decay)
        elif decay > 0:
            gradient = gradient.add(value, alpha=decay)
        mean.lerp_(gradient, 1 - schedule.beta1)
        square.mul_(schedule.beta2).addcmul_(gradient, gradient, value=1 - schedule.beta2)
        value.addcdiv_(mean, (square.sqrt() / unbiased).add_(schedule.epsilon), value=-step_size)
