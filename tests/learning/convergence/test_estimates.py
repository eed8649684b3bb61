"""The estimators find the constants of a quadratic loss, for which they are known; and they disturb nothing."""

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import nn

from fedchain.learning.client import Client, Forward
from fedchain.learning.config import LearningConfig
from fedchain.learning.convergence.estimates import Checkpoint, constants_of, estimate_constants, observe_round
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.families.prototypes import Known
from fedchain.learning.methods.dfpl import Dfpl
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.round import Round
from fedchain.learning.worker.checkpoint import save_state
from fedchain.learning.worker.learner import Learner

CURVATURE = 3.0
TARGETS = (1.0, 2.0, 4.0)
MEAN, VARIANCE = 7 / 3, 14 / 9  # of the targets


class Line(nn.Module):
    """embedding = r·x, and a head h that the embedding does not depend on."""

    def __init__(self) -> None:
        super().__init__()
        self.r = nn.Parameter(torch.tensor(5.0, dtype=torch.float64))
        self.h = nn.Parameter(torch.tensor(-2.0, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.r * x, self.h.expand(len(x), 1)


@dataclass(frozen=True, kw_only=True)
class Quadratic(Dfpl):
    """a/2 · mean (r − x)² + a/2 · h²: its Hessian is a times the identity wherever one looks."""

    def loss(self, forward: Forward, images: torch.Tensor, labels: torch.Tensor, given: Known) -> torch.Tensor:
        embedding, logits = forward(images)
        r, h = embedding / images, logits.mean()
        return CURVATURE / 2 * ((r - images).square().mean() + h.square())


def quadratic_client() -> Client:
    examples = torch.tensor(TARGETS, dtype=torch.float64).unsqueeze(1)
    labels = torch.zeros(len(TARGETS), dtype=torch.int64)
    return Client(
        index=0,
        model=Line(),  # type: ignore[arg-type]
        info=ModelInfo((), 1, 1, trainable=frozenset(), normalization=frozenset()),
        train_images=examples,
        train_labels=labels,
        test_images=examples,
        test_labels=labels,
        classes=(0,),
        generator=torch.Generator().manual_seed(0),
    )


def test_the_constants_of_a_quadratic() -> None:
    method = Quadratic(batch_size=1, local_steps=7, learning_rate=0.1)
    _, path = observe_round(method, quadratic_client(), Round(1, None), checkpoints=4)
    assert len(path) == 4
    assert path[0].parameters.tolist() == [5.0, -2.0]
    norms, squares = [], []
    for point in path:
        r, h = point.parameters.tolist()
        assert point.gradient.tolist() == pytest.approx([CURVATURE * (r - MEAN), CURVATURE * h], rel=1e-12)
        norms.append(sum(CURVATURE * math.hypot(r - t, h) for t in TARGETS) / 3)
        squares.append(CURVATURE**2 * ((r - MEAN) ** 2 + h**2))
    constants = constants_of([path])
    assert constants.smoothness == pytest.approx(CURVATURE, rel=1e-9)
    assert constants.lipschitz == pytest.approx(max(TARGETS), rel=1e-9)
    assert constants.variance == pytest.approx(CURVATURE**2 * VARIANCE, rel=1e-9)
    assert constants.gradient_norm == pytest.approx(max(norms), rel=1e-9)
    assert constants.gradient_square == pytest.approx(sum(squares) / 4, rel=1e-9)
    assert constants.first_gradient_square == pytest.approx(squares[0], rel=1e-9)
    start = CURVATURE / 2 * (((5 - MEAN) ** 2 + VARIANCE) + 4)
    assert constants.gap == pytest.approx(start, rel=1e-12)


def test_of_several_paths_the_worst_counts() -> None:
    method = Quadratic(batch_size=1, local_steps=4, learning_rate=0.1)
    client = quadratic_client()
    first, second = (observe_round(method, client, Round(number, None), checkpoints=3)[1] for number in (1, 2))
    both, alone = constants_of([first, second]), [constants_of([path]) for path in (first, second)]
    assert both.gap == max(one.gap for one in alone)
    assert both.gradient_norm == max(one.gradient_norm for one in alone)
    assert both.gradient_square == min(one.gradient_square for one in alone)


def test_slopes_are_between_any_two_checkpoints_of_a_path() -> None:
    """The steepest may be between two that are no neighbours."""

    def at(place: float, gradient: float) -> Checkpoint:
        where, slope = torch.tensor([place]).double(), torch.tensor([gradient]).double()
        return Checkpoint(where, slope, 1.0, 1.0, 0.0, where, slope.unsqueeze(1))

    path = [at(0.0, 0.0), at(1.0, 1.0), at(0.1, 1.0)]
    constants = constants_of([path])
    assert constants.smoothness == pytest.approx(10.0)
    assert constants.lipschitz == pytest.approx(10.0)


def test_batches_are_measured_with_dropout_and_all_data_without() -> None:
    training = []

    @dataclass(frozen=True, kw_only=True)
    class Noted(Quadratic):
        def loss(self, forward: Forward, images: torch.Tensor, labels: torch.Tensor, given: Known) -> torch.Tensor:
            training.append((len(images), client.model.training))
            return super().loss(forward, images, labels, given)

    client = quadratic_client()
    observe_round(Noted(batch_size=1, local_steps=2, learning_rate=0.1), client, Round(1, None), checkpoints=2)
    assert set(training) == {(1, True), (len(TARGETS), False)}


def test_observing_leaves_the_client_as_its_training_does() -> None:
    method = Quadratic(batch_size=1, local_steps=5, learning_rate=0.1)
    observed, plain = quadratic_client(), quadratic_client()
    posted, _ = observe_round(method, observed, Round(1, None), checkpoints=3)
    method.receive(plain, Round(1, None))
    expected = method.update(plain, Round(1, None))
    assert save_state(observed) == save_state(plain)
    assert {name: value.tolist() for name, value in posted.items()} == {
        name: value.tolist() for name, value in expected.items()
    }


def test_one_checkpoint_has_no_slope() -> None:
    _, path = observe_round(Quadratic(batch_size=1, local_steps=1), quadratic_client(), Round(1, None), checkpoints=4)
    assert len(path) == 1
    assert constants_of([path]).smoothness == 0.0


def _config(method: str) -> LearningConfig:
    settings = {"local_steps": 4} if method == "dfpl" else {}
    return LearningConfig(method=method, clients=3, hyperparameters=settings)


def test_the_constants_of_digits_are_finite_and_repeat() -> None:
    constants = [estimate_constants(Learner(_config("dfpl")), 3, checkpoints=2) for _ in range(2)]
    assert constants[0] == constants[1]
    for name in ("smoothness", "lipschitz", "gradient_norm", "variance", "gap", "gradient_square"):
        assert 0 < getattr(constants[0], name) < 1e4


def test_other_methods_have_no_constants() -> None:
    with pytest.raises(ConfigurationError, match="about dfpl's loss, not FedAvg's"):
        estimate_constants(Learner(_config("fedavg")), 3)


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({"optimizer": "adam"}, "adam, schedule constant and 0 rounds"),
        ({"schedule": "cosine", "schedule_rounds": 5}, "sgd, schedule cosine"),
        ({"warmup_rounds": 3}, "sgd, schedule constant and 3 rounds of warm-up"),
    ],
)
def test_they_are_of_sgd_with_one_learning_rate(settings: dict[str, Any], found: str) -> None:
    config = replace(_config("dfpl"), hyperparameters=settings)
    with pytest.raises(ConfigurationError, match=f"of sgd with one learning rate, not {found}"):
        estimate_constants(Learner(config), 3)


def test_a_single_step_has_no_slopes() -> None:
    config = replace(_config("dfpl"), hyperparameters={"local_steps": 1})
    with pytest.raises(ConfigurationError, match="between the steps of a round"):
        estimate_constants(Learner(config), 3)


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({"prototype_noise": 1.0}, "noise"),
        ({"prototype_noise": 1.0, "gradient_noise": 1.0}, "noise"),
        ({"encryption": "threshold"}, "encryption"),
    ],
)
def test_they_are_of_prototypes_without_noise_and_in_clear(settings: dict[str, Any], found: str) -> None:
    config = replace(_config("dfpl"), hyperparameters=settings)
    with pytest.raises(ConfigurationError, match=f"of prototypes without noise and in clear, not with {found}"):
        estimate_constants(Learner(config), 3)
