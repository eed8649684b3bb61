"""DP-SGD: each example's gradient is its own, clipped, and hidden by noise that only its owner can repeat."""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import Any, ClassVar, Literal, cast

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedchain.learning.application import Application
from fedchain.learning.client import Client
from fedchain.learning.config import OWN, LearningConfig
from fedchain.learning.exceptions import ConfigurationError, OwnCodeFailed, ReleaseRefused
from fedchain.learning.families.prototypes import Known
from fedchain.learning.method import Phase
from fedchain.learning.methods.dfpl import Dfpl
from fedchain.learning.methods.fedavg import FedAvg
from fedchain.learning.methods.moon import Moon, Others
from fedchain.learning.models.base import Model
from fedchain.learning.models.registry import MODELS
from fedchain.learning.models.vectors import gradient_vector, read_vector
from fedchain.learning.privacy.dp_sgd import (
    clipped_sum,
    draw_poisson_batches,
    example_gradients,
    planned_release,
)
from fedchain.learning.privacy.ledger import Memory, PrivacyLedger
from fedchain.learning.privacy.noise import add_noise
from fedchain.learning.privacy.releases import Release, Sampling, total_epsilon
from fedchain.learning.registry import HyperparameterValue, name_method
from fedchain.learning.round import Round
from fedchain.learning.sums.secrets import ROOT_SIZE, Secrets
from fedchain.learning.task.custom import describe_task
from fedchain.learning.training.loop import Loss
from fedchain.learning.worker.learner import Learner
from fedchain.learning.worker.stores import Stores
from tests.support.learning.federation import CLIENTS, Federation, config, new_client, secrets_of

NOISE: dict[str, HyperparameterValue] = {"gradient_noise": 2.0, "gradient_clip": 0.5}

COVERED = ["blade-fl", "demlearn", "fedadam", "fedavg", "fednova", "fedprox", "moon", "mtfl", "scaffold", "swim"]


def losses() -> dict[str, tuple[Loss, list[Any] | None]]:
    """Losses of different shapes, and what each of twelve examples is given."""
    draw = torch.Generator().manual_seed(5)
    width = new_client().info.embedding_size
    known = Known(torch.randn(3, width, generator=draw), torch.tensor([True, False, True]))
    rows = torch.randn(2, 12, width, generator=draw)
    others = [Others(rows[0, place : place + 1], rows[1, place : place + 1], 5.0) for place in range(12)]
    return {
        "fedavg": (FedAvg().loss, None),
        "dfpl": (Dfpl().loss, [known] * 12),
        "dfpl, norm": (Dfpl(regularizer="norm").loss, [known] * 12),
        "moon": (Moon().loss, others),
    }


@pytest.mark.parametrize("name", ["fedavg", "dfpl", "dfpl, norm", "moon"])
def test_gradients_of_single_examples_are_those_of_a_plain_loop(name: str) -> None:
    loss, given = losses()[name]
    client = new_client()
    found, values = example_gradients(client.model, loss, client.train_images, client.train_labels, given)
    for place in range(12):
        part = slice(place, place + 1)
        images, labels = client.train_images[part], client.train_labels[part]
        value = loss(client.model, images, labels, None if given is None else given[place])
        assert torch.allclose(found[place], gradient_vector(value, client.model), rtol=1e-4, atol=1e-6)
        assert float(values[place]) == pytest.approx(float(value.detach()), rel=1e-5)


class Scaled(nn.Module):
    """Its logits are multiplied by a number that is trained, too."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.head = nn.Parameter(torch.tensor(2.0)), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x, self.scale * self.head(x)


def test_a_parameter_may_be_one_number() -> None:
    """Gradients of such have no second dimension, which was taken for the place of its elements."""
    model: Any = Scaled()
    inputs, labels = torch.randn(5, 4, generator=torch.Generator().manual_seed(3)), torch.arange(5) % 3
    found, _ = example_gradients(model, FedAvg().loss, inputs, labels, None)
    for place in range(5):
        part = slice(place, place + 1)
        value = F.cross_entropy(model(inputs[part])[1], labels[part])
        assert torch.allclose(found[place], gradient_vector(value, model), rtol=1e-4, atol=1e-6)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script", "ignore:The .grad attribute")
def test_a_model_without_gradients_of_single_examples_is_told_in_one_line() -> None:
    """Torch's way to them takes no module that it compiled, and printed a traceback."""

    def task() -> Any:
        torch.manual_seed(0)
        return torch.jit.script(Scaled()), (torch.ones(4, 4), torch.arange(4) % 3), (torch.ones(3, 4), torch.arange(3))

    chosen = describe_task(LearningConfig(method="fedavg", clients=2, dataset=OWN, hyperparameters=NOISE), task)
    learner = Learner(chosen, task, stores=Stores(secrets_of))
    with pytest.raises(OwnCodeFailed, match=r"^peer 0: its model gives no gradients of single examples, .*: Runtime"):
        learner.contribute(0, "update", 1, b"")


class Detached(Scaled):
    """Left in the state in which it was measured."""

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return super().forward(x)


class Unlearning(FedAvg):
    beyond_dp_sgd: ClassVar[str] = ""

    def loss(self, forward: Any, images: torch.Tensor, labels: torch.Tensor, given: Any) -> torch.Tensor:
        with torch.no_grad():
            return super().loss(forward, images, labels, given)


@pytest.mark.parametrize("what", ["model", "loss"])
def test_what_has_no_gradient_is_told_and_does_not_train_on_noise_alone(what: str) -> None:
    def task() -> Any:
        return Detached(), (torch.ones(4, 4), torch.arange(4) % 3), (torch.ones(3, 4), torch.arange(3))

    if what == "model":
        own = LearningConfig(method="fedavg", clients=2, dataset=OWN, hyperparameters=NOISE)
        learner = Learner(describe_task(own, task), task, stores=Stores(secrets_of))
    else:
        learner = Learner(config(name_method(Unlearning())[0], **NOISE), stores=Stores(secrets_of))
    with pytest.raises(OwnCodeFailed, match=f"^peer 0: its {what} has no gradient: .* depends on no parameter that is"):
        learner.contribute(0, "update", 1, b"")


def test_long_gradients_are_clipped_before_they_are_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    loss, _ = losses()["fedavg"]
    client = new_client()
    expected, norms = torch.zeros(client.info.parameter_count, dtype=torch.float64), []
    for image, label in zip(torch.split(client.train_images, 1), torch.split(client.train_labels, 1), strict=True):
        gradient = gradient_vector(F.cross_entropy(client.model(image)[1], label), client.model).double()
        norms.append(float(gradient.norm()))
        expected += gradient * min(1.0, 2.1 / norms[-1])
    assert min(norms) < 2.1 < max(norms)
    for at_once in (1 << 24, 3 * client.info.parameter_count):  # all, or four parts
        monkeypatch.setattr("fedchain.learning.privacy.dp_sgd._NUMBERS_MAX", at_once)
        total, value = clipped_sum(client.model, loss, client.train_images, client.train_labels, None, 2.1)
        assert torch.allclose(total, expected, rtol=1e-4, atol=1e-6)
        assert float(value) == pytest.approx(
            float(F.cross_entropy(client.model(client.train_images)[1].detach(), client.train_labels)), rel=1e-5
        )
    empty = torch.zeros(0, dtype=torch.int64)
    total, value = clipped_sum(client.model, loss, client.train_images[empty], client.train_labels[empty], None, 1.5)
    assert (float(total.abs().sum()), float(value)) == (0.0, 0.0)


def test_who_posts_does_not_show_whose_example_is_too_much_for_a_model() -> None:
    """Others may have chosen a model for that. The example counts nothing, and the rest is charged as always."""
    loss, _ = losses()["fedavg"]
    client, others = new_client(), torch.arange(12) != 5
    rest, _ = clipped_sum(client.model, loss, client.train_images[others], client.train_labels[others], None, 0.5)
    client.train_images[5] = 3e38
    total, value = clipped_sum(client.model, loss, client.train_images, client.train_labels, None, 0.5)
    assert torch.allclose(total, rest, rtol=1e-4, atol=1e-9)
    assert not math.isfinite(float(value))
    client.open_secrets = lambda: secrets_of(0)
    FedAvg(local_steps=3, gradient_noise=2.0).train(client, Round(1, None))
    assert bool(read_vector(client.model).isfinite().all())
    assert len(client.ledger.entries()) == 1


@pytest.mark.long
@pytest.mark.parametrize("method", [name for name in COVERED if name != "swim"])  # whose loss is no mean over examples
def test_without_clipping_and_with_next_to_no_noise_it_is_sgd(method: str) -> None:
    """Batch by batch: the mean of the examples' gradients is the gradient of the mean, also with correction terms."""
    plain = Federation(config(method))
    private = Federation(config(method, gradient_noise=1e-9, gradient_clip=100.0))
    for federation in (plain, private):
        federation.play(2)
    for name, value in plain.known().items():
        if value.dtype.kind == "f":
            assert np.allclose(private.known()[name], value, rtol=1e-3, atol=1e-5), name


@pytest.mark.parametrize("method", COVERED)
def test_a_round_repeats_for_its_owner_and_for_nobody_else(method: str) -> None:
    def payload(root: bytes) -> bytes:
        learner = Learner(config(method, **NOISE), stores=Stores(lambda index: Secrets(index, root)))
        phase = learner.method.phases[0].name
        return learner.contribute(0, phase, 1, b"").payload

    assert payload(bytes(ROOT_SIZE)) == payload(bytes(ROOT_SIZE)) != payload(b"\1" * ROOT_SIZE)


def test_the_noise_is_as_large_as_it_is_said_to_be() -> None:
    """One step of rate 1: the model moves by the clipped mean and N(0, (sigma C / B)^2)."""
    made = []
    for root in (b"\1" * ROOT_SIZE, b"\2" * ROOT_SIZE):
        hyper: dict[str, HyperparameterValue] = {"local_steps": 1, "learning_rate": 1.0, "batch_size": 8}
        learner = Learner(config("fedavg", **NOISE, **hyper), stores=Stores(partial(Secrets, root=root)))
        learner.contribute(0, "update", 1, b"")
        made.append(read_vector(learner.client(0).model).double())
    noise = (made[0] - made[1]) / np.sqrt(2)
    assert float(noise.std()) == pytest.approx(2.0 * 0.5 / 8, rel=0.05)
    assert abs(float(noise.mean())) < 0.01


def test_poisson_batches_are_drawn_in_private_and_as_often_as_they_should() -> None:
    client = new_client(examples=400)
    client.open_secrets = lambda: secrets_of(1)
    batches = draw_poisson_batches(client, 0.1, "update", 1)
    sizes = [len(next(batches)) for _ in range(200)]
    assert np.mean(sizes) == pytest.approx(40.0, rel=0.05)
    assert np.var(sizes) == pytest.approx(400 * 0.1 * 0.9, rel=0.4)
    client.open_secrets = lambda: secrets_of(2)
    assert next(draw_poisson_batches(client, 0.1, "update", 1)).tolist() != next(batches).tolist()


@pytest.mark.parametrize(("batch_size", "divisor"), [(6, 6), (32, 12)])
@pytest.mark.parametrize("drawn", [[2, 5, 7], [], list(range(12))])
def test_a_poisson_batch_s_sum_is_divided_by_the_expected_size_whatever_was_drawn(
    monkeypatch: pytest.MonkeyPatch, drawn: list[int], batch_size: int, divisor: int
) -> None:
    """The size that was drawn tells of examples, and no noise is on it. No more are expected than there are."""
    batches = repeat(torch.tensor(drawn, dtype=torch.int64))
    monkeypatch.setattr("fedchain.learning.privacy.dp_sgd.draw_poisson_batches", lambda *_: batches)
    client, before = new_client(), read_vector(new_client().model)
    client.open_secrets = lambda: secrets_of(0)
    settings: dict[str, Any] = {"gradient_noise": 1e-9, "gradient_clip": 100.0, "batch_sampling": "poisson"}
    FedAvg(local_steps=1, batch_size=batch_size, learning_rate=1.0, **settings).train(client, Round(1, None))
    loss, _ = losses()["fedavg"]
    one_by_one = new_client()
    gradients, _ = example_gradients(
        one_by_one.model, loss, one_by_one.train_images, one_by_one.train_labels, None
    )  # (12, P)
    expected = before - gradients[drawn].sum(dim=0) / divisor
    torch.testing.assert_close(read_vector(client.model), expected, rtol=1e-4, atol=1e-6)


def test_a_batch_larger_than_the_data_has_each_example_in_it() -> None:
    noise = FedAvg(gradient_noise=1.0, batch_sampling="poisson")._gradient_noise
    release = planned_release(FedAvg(batch_size=32, local_steps=5).schedule_in(1), 12, noise)
    assert release == Release("gradients", 1.0, 1.0, 5, Sampling.POISSON, 1.0)


class Dropping(nn.Module):
    """Drops half of what it is given, whatever the model is."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(64, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        embedding = F.dropout(x.flatten(1), 0.5, self.training)
        return embedding, self.head(embedding)


def dropping_client() -> Client:
    torch.manual_seed(0)
    return replace(new_client(examples=40), model=cast(Model, Dropping()))


def test_under_known_dropout_one_example_would_move_a_sum_by_more_than_the_clipping_norm() -> None:
    """That is why it is not known: without the first example, all others have the masks of their neighbours."""
    client = dropping_client()
    client.model.train()

    def total(begin: int) -> torch.Tensor:
        torch.manual_seed(3)
        return clipped_sum(
            client.model, FedAvg().loss, client.train_images[begin:], client.train_labels[begin:], None, 0.5
        )[0]

    assert float((total(0) - total(1)).norm()) > 4 * 0.5


@pytest.mark.parametrize("sampling", ["poisson", "shuffled"])
def test_dropout_and_augmentation_of_poisson_batches_are_drawn_in_private(
    monkeypatch: pytest.MonkeyPatch, sampling: Literal["poisson", "shuffled"]
) -> None:
    sums: list[list[list[float]]] = []

    def summing(*arguments: Any) -> tuple[torch.Tensor, torch.Tensor]:
        found = clipped_sum(*arguments)
        sums[-1].append(found[0].tolist())
        return found

    drawn: list[float] = []

    def augment(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        drawn.append(float(torch.rand(1, generator=generator)))
        return images

    monkeypatch.setattr("fedchain.learning.privacy.dp_sgd.clipped_sum", summing)
    method = FedAvg(gradient_noise=2.0, batch_sampling=sampling, batch_size=40, local_steps=1)  # all, in one batch
    for member in (1, 1, 2):
        client = dropping_client()
        client.open_secrets, client.augmentation = partial(secrets_of, member), augment
        sums.append([])
        torch.manual_seed(3)
        method.train(client, Round(1, None, clients=CLIENTS))
    assert sums[0] == sums[1], "the same for the same, as after a crash"
    assert drawn[0] == drawn[1]
    assert (sums[1] == sums[2]) == (drawn[1] == drawn[2]) == (sampling == "shuffled")


def test_a_model_that_was_lost_is_trained_on_other_poisson_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two trainings of one round are two releases, whose batches must be drawn apart to be counted as such."""
    seen: list[list[list[int]]] = []

    def drawing(client: Client, rate: float, *labels: str | int) -> Iterator[torch.Tensor]:
        seen.append([])
        for batch in draw_poisson_batches(client, rate, *labels):
            seen[-1].append(batch.tolist())
            yield batch

    monkeypatch.setattr("fedchain.learning.privacy.dp_sgd.draw_poisson_batches", drawing)
    method = FedAvg(gradient_noise=2.0, batch_sampling="poisson", batch_size=6, local_steps=3)
    for scale in (1.0, 1.0, 0.5):
        client = new_client(examples=40)
        client.open_secrets = lambda: secrets_of(1)
        with torch.no_grad():
            for value in client.model.parameters():
                value.mul_(scale)
        method.train(client, Round(1, None, clients=CLIENTS))
    assert seen[0] == seen[1] != seen[2], "the same for the same, as after a crash"


def test_steps_whose_sums_are_equal_have_noise_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sums of empty batches are equal; with one noise for all of them a post would show how many there were."""
    noised: list[bytes] = []

    def noising(value: np.ndarray[Any, Any], *arguments: Any) -> np.ndarray[Any, Any]:
        result = add_noise(value, *arguments)
        if not value.any():
            noised.append(result.tobytes())
        return result

    monkeypatch.setattr("fedchain.learning.privacy.dp_sgd.add_noise", noising)
    method = FedAvg(gradient_noise=2.0, batch_sampling="poisson", batch_size=1, local_steps=12)
    for _ in range(2):
        client = new_client(examples=10)
        client.open_secrets = lambda: secrets_of(1)
        method.train(client, Round(1, None, clients=CLIENTS))
    once = noised[: len(noised) // 2]
    assert len(set(once)) == len(once) > 2
    assert once == noised[len(once) :], "the same again, as after a crash"


def test_equal_sums_of_two_models_are_two_releases() -> None:
    """They have noise of their own each, so each costs: a member lost its model, and all batches were empty again."""
    ledger = PrivacyLedger(1, Memory())
    method = FedAvg(gradient_noise=2.0, batch_sampling="poisson", batch_size=1, local_steps=1)
    for scale in (1.0, 1.0, 0.5, 0.25, 0.125):
        client = new_client(examples=10)
        client.open_secrets = lambda: secrets_of(1)
        client.open_ledger = lambda: ledger
        with torch.no_grad():
            for value in client.model.parameters():
                value.mul_(scale)
        method.train(client, Round(1, None, clients=CLIENTS))
    assert len(ledger.entries()) == 4, "the same again costs nothing, as after a crash"


def test_what_was_spent_is_in_the_ledger_and_in_the_results() -> None:
    ledgers: dict[int, Memory] = {}

    def learner(**more: HyperparameterValue) -> Learner:
        disk = ledgers.setdefault(len(ledgers), Memory())
        return Learner(
            config("fedavg", **NOISE, **more), stores=Stores(secrets_of, lambda index: PrivacyLedger(index, disk))
        )

    shuffled = learner(batch_size=16)
    examples = int(shuffled.histogram()[0].sum())
    made = [shuffled.contribute(0, "update", number, b"") for number in (1, 2)]
    passes = -(-4 // (examples // 16))
    release = Release("gradients", 2.0, 2.0, passes, Sampling.SHUFFLED)
    assert [entry.release for entry in PrivacyLedger(0, ledgers[0]).entries()] == [release] * 2
    assert [one.epsilon for one in made] == [total_epsilon([release] * rounds, 1e-5) for rounds in (1, 2)]

    poisson = learner(batch_size=16, batch_sampling="poisson", privacy_delta=1e-6)
    one = poisson.contribute(0, "update", 1, b"")
    release = Release("gradients", 2.0, 1.0, 4, Sampling.POISSON, 16 / examples)
    assert [entry.release for entry in PrivacyLedger(0, ledgers[1]).entries()] == [release]
    assert one.epsilon == total_epsilon([release], 1e-6)
    assert Learner(config("fedavg")).contribute(0, "update", 1, b"").epsilon is None


def test_a_spent_budget_keeps_one_member_silent_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    federation = Federation(config("fedavg", **NOISE, batch_size=16, epsilon_budget=7.0))
    federation.play(2, [0])
    message = r"member 0, round 3: its total epsilon would be .+, the budget is 7 \(delta 1e-05\)"
    with pytest.raises(ReleaseRefused, match=message):
        federation.play(1, [0])
    before = federation.learner.checkpoint(0), federation.knowledge
    with monkeypatch.context() as patch:
        patch.setattr("fedchain.learning.privacy.dp_sgd.clipped_sum", None)  # it is known before the first step
        with pytest.raises(ReleaseRefused):
            federation.learner.contribute(0, "update", federation.round, federation.knowledge)
    assert federation.learner.checkpoint(0) == before[0]
    federation.play(1, range(1, CLIENTS))
    assert federation.knowledge != before[1]


class Updates(FedAvg):
    def update(self, client: Client, round: Any) -> Any:
        return self.post_model(client)


class Posts(FedAvg):
    def post_model(self, client: Client) -> Any:
        return super().post_model(client) | {"fc.bias": client.train_images.mean(0).numpy()}


class Corrects(FedAvg):
    def correction(self, client: Client) -> Any:
        return lambda gradient, parameters: gradient + client.train_images.mean()


class Renamed(FedAvg):
    pass


class Covered(Renamed):
    beyond_dp_sgd: ClassVar[str] = ""


@pytest.mark.parametrize("kind", [Updates, Posts, Corrects, Renamed])
def test_a_method_that_is_made_of_a_covered_one_is_covered_once_it_says_so_itself(kind: type[FedAvg]) -> None:
    with pytest.raises(
        ConfigurationError, match=f"DP-SGD does not cover all that {kind.__name__} posts: it does not say"
    ):
        kind(gradient_noise=1.0)
    assert kind().gradient_noise == 0
    assert Covered(gradient_noise=1.0).adds_noise


class Untrained(FedAvg):
    beyond_dp_sgd: ClassVar[str] = ""

    @property
    def phases(self) -> tuple[Phase, ...]:
        return (Phase("update"),)


def test_noise_is_counted_in_a_phase_that_trains() -> None:
    with pytest.raises(ConfigurationError, match=r"^DP-SGD needs a phase of Untrained that trains"):
        Untrained(gradient_noise=1.0)
    assert Untrained().phases


def test_clients_are_not_trained_together_where_that_would_leave_the_noise_out() -> None:
    assert not FedAvg().trained_alone
    assert FedAvg(gradient_noise=1.0).trained_alone


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        ("fedavg", {"epsilon_budget": 1.0}, "epsilon_budget bounds nothing"),
        ("fedavg", {"gradient_noise": -1.0}, "gradient_noise must lie in"),
        ("fedavg", {"gradient_clip": 0.0}, "gradient_clip must lie in"),
        ("fedavg", {"privacy_delta": 1.0}, "privacy_delta must lie in"),
        ("swim", {"gradient_noise": 1.0, "window_of": "batches"}, "DP-SGD needs window_of models"),
    ],
)
def test_settings_that_cannot_be_are_refused(
    method: str, settings: dict[str, HyperparameterValue], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        config(method, **settings).validate()


def test_batch_normalization_is_refused_when_the_federation_is_founded() -> None:
    assert "resnet18" in MODELS
    chosen = LearningConfig(method="fedavg", dataset="cifar10", model="resnet18", hyperparameters=NOISE)
    with pytest.raises(ConfigurationError, match=r"DP-SGD cannot train batch normalization \(.+\), which mixes"):
        Application(chosen)
