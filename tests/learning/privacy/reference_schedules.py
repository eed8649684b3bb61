"""Write what an accountant of somebody else's computes: `schedules.json`, epsilons and noises of random schedules, and
`poisson.json`, epsilons of Poisson batches by privacy loss distributions, which are tighter than Rényi's divergences.

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

POISSON_PATH = Path(__file__).with_name("poisson.json")
POISSON_DELTA = 1e-5
POISSON = (
    [(rate, z, 1000) for rate, z in ((0.01, 0.6), (0.01, 1.0))]
    + [(0.01, 1.0, 10_000), (0.01, 2.0, 1000), (0.05, 0.8, 200), (0.05, 1.0, 200), (0.05, 1.0, 2000), (0.05, 2.0, 200)]
    + [(0.05, 4.0, 2000), (0.2, 1.0, 100), (0.2, 2.0, 100), (0.2, 4.0, 1000), (0.5, 2.0, 100), (0.002, 0.7, 5000)]
)
"""Rate, noise multiplier and steps of usual trainings."""

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
    _write(PATH, answers)
    _write(POISSON_PATH, [[*training, _by_loss_distribution(*training)] for training in POISSON])


def _by_loss_distribution(rate: float, multiplier: float, steps: int) -> float:
    import dp_accounting
    from dp_accounting import pld

    accountant = pld.PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE, 1e-3)
    step = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(multiplier))
    return float(f"{accountant.compose(step, steps).get_epsilon(POISSON_DELTA):.6g}")


def _write(path: Path, rows: list[list[Any]]) -> None:
    path.write_text(json.dumps(rows, separators=(",", ":")).replace("],", "],\n") + "\n")


if __name__ == "__main__":
    main()
