"""How long local training runs, with which optimizer and step; known without any data, and without torch."""

import math
from dataclasses import dataclass
from typing import Literal

OptimizerName = Literal["sgd", "momentum", "adam", "adamw"]
"""sgd begins each round with an empty memory; the others' stays with the client."""

RateCurve = Literal["constant", "cosine", "step", "linear"]
"""How the learning rate falls from round to round."""

RATE_FACTOR_MIN = 1e-9
"""Where falling by steps ends. Such a step moves no parameter of 32 bits any more, and methods may divide by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """How long, with which optimizer and step a model is trained in a round."""

    learning_rate: float
    """Step size."""

    batch_size: int
    """Examples per step."""

    steps: int = 1
    """Number of steps, unless `epochs` is positive."""

    epochs: int = 0
    """Number of passes over the data; 0 leaves the choice to `steps`."""

    optimizer: OptimizerName = "sgd"
    """The optimizer that takes the steps."""

    momentum: float = 0.0
    """Momentum of sgd, from an empty buffer, and of momentum."""

    weight_decay: float = 0.0
    """L2 penalty; for adamw, the part of a parameter, times the learning rate, that each step takes away from it."""

    beta1: float = 0.9
    """adam and adamw: the part of the running mean of gradients that a step keeps."""

    beta2: float = 0.999
    """adam and adamw: the part of the running mean of their squares that a step keeps."""

    epsilon: float = 1e-8
    """adam and adamw: keeps the division by the root of that mean finite."""


def adamw_schedule(learning_rate: float, epochs: int, batch_size: int) -> Schedule:
    """Return passes of AdamW with torch's other settings."""
    return Schedule(
        learning_rate=learning_rate, epochs=epochs, batch_size=batch_size, optimizer="adamw", weight_decay=0.01
    )


def count_steps(schedule: Schedule, examples: int) -> int:
    """Return the number of steps of one round for a client with this many examples."""
    if schedule.epochs > 0:
        return schedule.epochs * batches_per_pass(examples, schedule.batch_size)
    return schedule.steps


def batches_per_pass(examples: int, batch_size: int) -> int:
    """Return how many full batches one pass has; a client with fewer examples than a batch has one small one."""
    return max(1, examples // batch_size)


def rate_factor(curve: RateCurve, round_number: int, *, rounds: int, warmup: int, decay: float) -> float:
    """Return the learning rate of a round as a part of the largest.

    It rises linearly over the first `warmup` rounds. Then cosine and linear fall over so many rounds, in the last of
    which they are nearly 0, and stay there; step multiplies by `decay` after each so many, down to `RATE_FACTOR_MIN`.
    The setup, round 0, is before all that, and has the largest.
    """
    if round_number == 0:
        return 1.0
    if round_number <= warmup:
        return round_number / (warmup + 1)
    passed = round_number - warmup - 1
    if curve == "step":
        return max(float(decay ** (passed // rounds)), RATE_FACTOR_MIN)
    share = min(passed, rounds - 1) / rounds if rounds else 0.0
    if curve == "cosine":
        return (1 + math.cos(math.pi * share)) / 2
    return 1 - share if curve == "linear" else 1.0
