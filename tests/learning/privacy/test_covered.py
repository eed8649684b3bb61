"""Methods say themselves what DP-SGD covers of their posts: here that is observed, while they train and post."""

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch

from fedchain.learning.client import Client
from fedchain.learning.exceptions import ConfigurationError, OwnCodeFailed
from fedchain.learning.families.local_sgd import UNSTATED, LocalSgdMethod
from fedchain.learning.methods.fedavg import FedAvg
from fedchain.learning.models.vectors import read_vector, write_vector
from fedchain.learning.privacy import dp_sgd
from fedchain.learning.privacy.ledger import Entry
from fedchain.learning.privacy.noise import add_noise
from fedchain.learning.registry import METHODS, HyperparameterValue, load_method
from fedchain.learning.round import Round, Tensors
from fedchain.learning.training.loop import Training, train
from fedchain.learning.training.optimizers import open_optimizer
from tests.support.learning.federation import CLIENTS, Federation, config

NOISE: dict[str, HyperparameterValue] = {"gradient_noise": 2.0, "gradient_clip": 0.5}

ON_PROTOTYPES: dict[str, dict[str, HyperparameterValue]] = {
    "dfpl": {"prototype_noise": 1.0},
    "fedproto": {"prototype_noise": 1.0, "prototype_source": "recompute"},
    "fedph": {"noise": "local"},
}
"""Methods whose posts also hold means of the examples, with noise of their own."""


def reason_of(name: str) -> str:
    kind = load_method(name)
    assert issubclass(kind, LocalSgdMethod)
    return kind.beyond_dp_sgd


COVERED = [name for name in METHODS if not reason_of(name)]
REFUSING = [name for name in METHODS if reason_of(name)]


class Steps:
    """DP-SGD's steps, as they are taken."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clipped = self.noised = self.taken = 0
        self.left: torch.Tensor | None = None  # the parameters after the last step
        self._clip, self._noise = dp_sgd.clipped_sum, add_noise
        monkeypatch.setattr(dp_sgd, "clipped_sum", self._clipping)
        monkeypatch.setattr(dp_sgd, "add_noise", self._noising)
        monkeypatch.setattr(dp_sgd, "open_optimizer", self._opening)

    def _clipping(self, *arguments: Any) -> Any:
        self.clipped += 1
        return self._clip(*arguments)

    def _noising(self, *arguments: Any) -> Any:
        self.noised += 1
        return self._noise(*arguments)

    def _opening(self, client: Any, parameters: Any, schedule: Any) -> Any:
        take_step = open_optimizer(client, parameters, schedule)

        def step(gradients: Any) -> None:
            noised = self.noised == self.clipped == self.taken + 1
            assert noised, "each step has a gradient of its own, clipped and noised"
            assert self.left is None or torch.equal(vector(parameters), self.left), "nothing else moves the model"
            take_step(gradients)
            self.taken += 1
            self.left = vector(parameters)

        return step


def vector(parameters: Any) -> torch.Tensor:
    return torch.cat([value.detach().flatten() for value in parameters])


def watch_a_round(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one client contribute, and hold its steps against those that it says it took."""
    learner = Federation(config(method, **NOISE, **ON_PROTOTYPES.get(method, {}))).learner
    steps = Steps(monkeypatch)
    made = learner.contribute(0, "update", 1, b"")
    assert made.steps == steps.taken > 0
    assert steps.left is not None
    assert torch.equal(read_vector(learner.client(0).model), steps.left), "nothing moves the model after the last step"


@pytest.mark.parametrize("method", COVERED)
def test_every_step_of_a_covered_method_is_clipped_and_noised(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    watch_a_round(method, monkeypatch)


def posts_of(method: str, sign: int) -> list[bytes]:
    """Two rounds of client 0, whose images are multiplied by a sign; the model that training leaves is always one."""
    federation = Federation(config(method, **NOISE))
    client = federation.client(0)
    client.train_images = sign * client.train_images
    return [federation.play(1, range(CLIENTS))[0].payload for _ in range(2)]


@pytest.fixture
def trained_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(client: Client, loss: Any, schedule: Any, round_number: int, noise: Any, **changes: Any) -> None:
        release = dp_sgd.planned_release(schedule, len(client.train_labels), noise)
        client.ledger.charge(Entry(round_number, noise.phase, f"{round_number}", release), noise.budget)
        write_vector(client.model, torch.linspace(-1, 1, client.info.parameter_count))
        client.steps += 1

    monkeypatch.setattr(dp_sgd, "train_privately", leave)


@pytest.mark.usefixtures("trained_to_the_same")
@pytest.mark.parametrize("method", [name for name in COVERED if name not in ON_PROTOTYPES])
def test_posts_of_a_covered_method_follow_from_the_model_that_training_leaves(method: str) -> None:
    assert posts_of(method, 1) == posts_of(method, -1)


@dataclass(frozen=True, kw_only=True)
class Shows(FedAvg):
    """It says that it is covered, and shows the mean image."""

    beyond_dp_sgd: ClassVar[str] = ""

    def post_model(self, client: Client) -> Any:
        posted = super().post_model(client)
        return posted | {"model.fc1.bias": posted["model.fc1.bias"] + client.train_images.mean().numpy()}


@dataclass(frozen=True, kw_only=True)
class Sneaks(FedAvg):
    """It says that it is covered, and takes plain steps behind the others."""

    beyond_dp_sgd: ClassVar[str] = ""

    def update(self, client: Client, round: Round) -> Tensors:
        self.train(client, round)
        train(Training(client, self.loss, self.schedule_in(round.number), round.number))
        return self.post_model(client)


@dataclass(frozen=True, kw_only=True)
class Plain(FedAvg):
    """It says that it is covered, and takes plain steps alone."""

    beyond_dp_sgd: ClassVar[str] = ""

    def update(self, client: Client, round: Round) -> Tensors:
        train(Training(client, self.loss, self.schedule_in(round.number), round.number))
        return self.post_model(client)


def test_a_method_that_says_it_is_covered_and_trains_without_noise_states_no_epsilon() -> None:
    """An epsilon of 0 was stated of its posts."""
    learner = Federation(config(f"{__name__}:Plain", **NOISE)).learner
    with pytest.raises(OwnCodeFailed, match=r"^peer 0: Plain says that DP-SGD covers .* phase update trained without"):
        learner.contribute(0, "update", 1, b"")
    assert Federation(config(f"{__name__}:Plain")).learner.contribute(0, "update", 1, b"").steps > 0


@pytest.mark.usefixtures("trained_to_the_same")
def test_a_post_that_shows_more_would_be_noticed() -> None:
    assert posts_of(f"{__name__}:Shows", 1) != posts_of(f"{__name__}:Shows", -1)


def test_a_step_beside_dp_sgd_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError):
        watch_a_round(f"{__name__}:Sneaks", monkeypatch)


@pytest.mark.parametrize("method", REFUSING)
def test_methods_that_post_more_than_it_covers_refuse_it(method: str) -> None:
    reason = reason_of(method)
    assert reason != UNSTATED, "a built-in method gives its own"
    with pytest.raises(ConfigurationError) as caught:
        config(method, **NOISE).validate()
    name = load_method(method).__name__
    assert str(caught.value) == f"DP-SGD does not cover all that {name} posts: {reason}; use no gradient_noise"
