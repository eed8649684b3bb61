"""Write `schedules.json`: epsilons and noises that an accountant of somebody else's computes for random schedules.

It is Google's dp-accounting, which needs an environment of its own (`pip install dp-accounting`; it wants another
version of a package that we use). Run there: `python tests/learning/privacy/reference_schedules.py`.
"""

import json
import math
import random
from pathlib import Path
from typing import Any

SCHEDULES = 1000
PATH = Path(__file__).with_name("schedules.json")

Gaussian = tuple[list[tuple[float, float, int]], float]
"""(sensitivity, sigma, count) of each kind of release, and delta."""

Sampled = tuple[list[tuple[float, float, int]], float]
"""(rate, noise multiplier, steps) of each kind of step, and delta."""


ORDERS = [*range(2, 65), 80, 96, 128, 192, 256, 512, 1024]
"""Orders of Rényi curves. Between whole ones that accountant bounds them from above: it adds what alternates."""


def random_schedules() -> list[tuple[Gaussian, float, Sampled | None]]:
    """Each is a Gaussian schedule, an epsilon to calibrate for at its delta, and, of every fifth, a sampled one."""
    draw = random.Random(20_260_101)
    schedules: list[tuple[Gaussian, float, Sampled | None]] = []
    for number in range(SCHEDULES):
        delta = 10 ** draw.uniform(-10, -2)
        releases = [
            (10 ** draw.uniform(-3, 2), 10 ** draw.uniform(-3, 2), draw.choice([1, 2, 5, 10, 100]))
            for _ in range(draw.randint(1, 6))
        ]
        target = 10 ** draw.uniform(-2, 1)
        wanted = math.sqrt(math.fsum(count * (size / sigma) ** 2 for size, sigma, count in releases))
        scale = wanted / 10 ** draw.uniform(-2, 1)  # so that the whole schedule's mu is between 0.01 and 10
        gaussian = [(size, sigma * scale, count) for size, sigma, count in releases], delta
        sampled: Sampled | None = None
        if number % 5 == 0:
            steps = [
                (10 ** draw.uniform(-3, -0.1), 10 ** draw.uniform(-0.3, 1), draw.choice([1, 20, 400]))
                for _ in range(draw.randint(1, 3))
            ]
            sampled = steps, delta
        schedules.append((gaussian, target, sampled))
    return schedules


def main() -> None:
    """Write the file."""
    import dp_accounting
    from dp_accounting import rdp

    answers: list[list[Any]] = []
    for (releases, delta), target, sampled in random_schedules():
        mu = math.sqrt(math.fsum(count * (size / sigma) ** 2 for size, sigma, count in releases))
        epsilon = dp_accounting.get_epsilon_gaussian(1 / mu, delta, tol=1e-13)
        answer = [epsilon, dp_accounting.get_sigma_gaussian(target, delta, tol=1e-13)]
        if sampled is not None:
            accountant = rdp.RdpAccountant(ORDERS)
            for rate, multiplier, steps in sampled[0]:
                step = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(multiplier))
                accountant.compose(step, steps)
            answer.append(accountant.get_epsilon(sampled[1]))
        answers.append([float(f"{value:.12g}") for value in answer])
    PATH.write_text(json.dumps(answers, separators=(",", ":")).replace("],", "],\n") + "\n")


if __name__ == "__main__":
    main()
