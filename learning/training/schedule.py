"""How long local SGD runs, and with which step; known without any data, and without torch."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """How long and with which step SGD runs."""

    learning_rate: float
    """Step size."""

    batch_size: int
    """Examples per step."""

    steps: int
    """Number of steps, unless `epochs` is positive."""

    epochs: int
    """Number of passes over the data; 0 leaves the choice to `steps`."""

    momentum: float
    """Momentum, from an empty buffer."""

    weight_decay: float
    """L2 penalty."""


def count_steps(schedule: Schedule, examples: int) -> int:
    """Return the number of steps of one round for a client with this many examples."""
    if schedule.epochs > 0:
        return schedule.epochs * batches_per_pass(examples, schedule.batch_size)
    return schedule.steps


def batches_per_pass(examples: int, batch_size: int) -> int:
    """Return how many full batches one pass has; a client with fewer examples than a batch has one small one."""
    return max(1, examples // batch_size)
