"""How many steps a round has, and how long they are."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fedchain.learning.client import Forward
from fedchain.learning.training.loop import Training, train
from fedchain.learning.training.schedule import RATE_FACTOR_MIN, RateCurve, count_steps, rate_factor
from tests.support.learning.linear_client import new_client, schedule


def cross_entropy(forward: Forward, images: torch.Tensor, labels: torch.Tensor, given: Any) -> torch.Tensor:
    return F.cross_entropy(forward(images)[1], labels)


@pytest.mark.parametrize(("epochs", "examples", "steps"), [(0, 10, 6), (1, 10, 2), (3, 10, 6), (3, 12, 9), (2, 3, 2)])
def test_epochs_replace_steps(epochs: int, examples: int, steps: int) -> None:
    assert count_steps(schedule(epochs=epochs), examples) == steps
    client = new_client(examples)
    train(Training(client, cross_entropy, schedule(epochs=epochs), 1))
    assert client.steps == steps


def rates(curve: RateCurve, count: int, rounds: int, warmup: int = 0, decay: float = 0.1) -> list[float]:
    return [rate_factor(curve, number, rounds=rounds, warmup=warmup, decay=decay) for number in range(1, count + 1)]


def torchs(kind: type[torch.optim.lr_scheduler.LRScheduler], count: int, **settings: Any) -> list[float]:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler, found = kind(optimizer, **settings), list[float]()
    for _ in range(count):
        found.append(float(scheduler.get_last_lr()[0]))
        optimizer.step()
        scheduler.step()
    return found


def test_rates_fall_as_torchs_do() -> None:
    schedulers = torch.optim.lr_scheduler
    assert rates("constant", 4, 0) == [1.0] * 4
    assert rates("cosine", 8, 8) == pytest.approx(torchs(schedulers.CosineAnnealingLR, 8, T_max=8))
    assert rates("linear", 8, 8) == pytest.approx(
        torchs(schedulers.LinearLR, 8, start_factor=1.0, end_factor=0.0, total_iters=8), abs=1e-12
    )
    assert rates("step", 8, 3, decay=0.5) == pytest.approx(torchs(schedulers.StepLR, 8, step_size=3, gamma=0.5))


@pytest.mark.parametrize("curve", ["constant", "cosine", "linear", "step"])
def test_a_warm_up_comes_before_the_curve_and_the_last_rate_stays(curve: RateCurve) -> None:
    assert rates(curve, 3, 4, warmup=3) == [0.25, 0.5, 0.75]
    assert rates(curve, 7, 4, warmup=3)[3:] == rates(curve, 4, 4)
    assert rates(curve, 2000, 4)[-1] == (RATE_FACTOR_MIN if curve == "step" else rates(curve, 4, 4)[-1]) > 0
    assert [rate_factor(curve, 0, rounds=4, warmup=warmup, decay=0.1) for warmup in (0, 3)] == [1.0, 1.0]
