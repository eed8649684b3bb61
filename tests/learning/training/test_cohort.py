"""Cohorts: every built-in model learns in a batch of models what it learns by itself, but for rounding."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedchain.learning.client import Client, Forward
from fedchain.learning.device import as_training
from fedchain.learning.exceptions import OwnCodeFailed
from fedchain.learning.models.base import Model
from fedchain.learning.models.registry import MODELS, build_model
from fedchain.learning.models.vectors import read_state
from fedchain.learning.training import cohort as cohort_module
from fedchain.learning.training.cohort import SMALL, pays, train_cohort
from fedchain.learning.training.loop import Correction, Training, train
from tests.support.learning.cohorts import dropout_of, new_clients, shape_of, training_of
from tests.support.learning.devices import CPU, DEVICES
from tests.support.learning.linear_client import schedule

TOLERANCE = 1e-5
"""Largest difference of a parameter or running mean after two steps, on a card as well."""

NORMALIZED = 1e-3
"""The same where batch normalization divides by the spread of a batch of four, which makes more of a last bit."""

LARGE, LARGER = {"fixup-resnet9", "covid-cnn"}, {"resnet18", "resnet18-200", "resnet18-plain", "vit-tiny"}
"""Three that are larger have narrower ones of the same layers: "resnet8-56", "resnet12-56" and "resnet18-plain-16"."""

UNSTEADY = {"resnet18", "resnet18-200"}
"""Their last stage normalizes over the four examples alone, at 32 pixels: in two steps it makes 0.2 of a last bit of
32, so they are compared in 64. So are large models on a card, whose sums in 32 bits differ by 1e-4."""

LAZY = [
    pytest.param(name, marks=pytest.mark.slow if name in LARGER else pytest.mark.long if name in LARGE else ())
    for name in MODELS
]


def at_once(clients: Sequence[Client], device: torch.device = CPU, **changes: Any) -> torch.Tensor:
    """The losses of each client in each step, (K, steps)."""
    trainings = [training_of(client, **changes) for client in clients]
    with as_training(device):
        found = train_cohort(trainings, [*map(dropout_of, clients)], device)
    return torch.stack([losses for losses in found if isinstance(losses, torch.Tensor)])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", LAZY)
def test_a_model_learns_in_a_cohort_what_it_learns_alone(
    name: str, device: torch.device, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    alone, cohort = new_clients(name, 2), new_clients(name, 2)
    if name in UNSTEADY or (device.type != "cpu" and name in LARGE | LARGER):
        for client in (*alone, *cohort):
            client.model, client.train_images = client.model.double(), client.train_images.double()
    with torch.random.fork_rng(devices=[]):
        for client in alone:
            torch.default_generator.set_state(dropout_of(client).get_state())
            train(training_of(client))
    before = read_state(cohort[0].model)
    losses = at_once(cohort, device)
    assert losses.shape == (2, 2)
    assert losses.isfinite().all()
    assert not caplog.messages, "it was computed in one batch"
    for one, other in zip(alone, cohort, strict=True):
        found, expected = read_state(other.model), read_state(one.model)
        assert (found - expected).abs().max() <= (NORMALIZED if one.info.normalization else TOLERANCE)
        assert (expected - before).abs().max() > 1e-3, "it has learned"
        assert torch.equal(other.generator.get_state(), one.generator.get_state())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["logistic", "digits-mlp", "digits-mlp-bn", "frozen-2", "split-mlp-2", "cnn-narrow"])
def test_who_else_is_in_a_cohort_changes_rounding_alone(name: str, device: torch.device) -> None:
    found = dict[int, list[torch.Tensor]]()
    for size in (1, 2, 3, 7, 7):
        clients = new_clients(name, size)
        at_once(clients, device)
        states = [read_state(client.model) for client in clients]
        assert all(map(torch.equal, states, found.get(size, states))), "the same cohort, the same bits"
        found[size] = states
    for states in found.values():
        for state, expected in zip(states, found[7], strict=False):
            tolerance = NORMALIZED if name == "digits-mlp-bn" else TOLERANCE
            torch.testing.assert_close(state, expected, rtol=0, atol=tolerance)


def test_examples_that_are_moved_as_to_a_card_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of a client whose own code changes them, or fails."""
    states = list[list[torch.Tensor]]()
    for is_moved in (False, True):
        monkeypatch.setattr(cohort_module, "are_moved", lambda clients, device, found=is_moved: found)
        clients = new_clients("digits-mlp", 4)
        clients[0].train_images, clients[0].train_labels = clients[0].train_images[:6], clients[0].train_labels[:6]

        def given(batch: torch.Tensor, client: Client) -> None:
            if client.index == 2:
                raise ZeroDivisionError
            client.train_images *= 0.5 if client.index == 3 else 1.0

        asked = [training_of(client, given=partial(given, client=client)) for client in clients]
        found = train_cohort(asked, [*map(dropout_of, clients)], CPU)
        assert [isinstance(one, Exception) for one in found] == [False, False, True, False]
        states.append([read_state(clients[place].model) for place in (0, 1, 3)])
    for one, other in zip(*states, strict=True):
        assert torch.equal(one, other)


class Dropping(Model):
    """Drops some of what a convolution gives, in its own order, by channel, with channels last, and in a row."""

    embedding_size, classes = 16, 3

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.Linear(16, 3)
        self.body = nn.Conv2d(4, 4, 3, stride=2, padding=1)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        value = F.dropout2d(F.dropout(self.conv(images), 0.3, self.training), 0.3, self.training)
        last = F.dropout(value.permute(0, 2, 3, 1), 0.3, self.training)  # (B, H, W, C)
        value = self.body(last.permute(0, 3, 1, 2))
        embedding = F.dropout(value.flatten(1), 0.3, self.training)
        return embedding, self.fc(embedding)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_dropout_draws_what_it_draws_alone_whatever_the_order_in_memory(
    layout: torch.memory_format, device: torch.device
) -> None:
    alone, cohort = new_clients("digits-mlp", 3), new_clients("digits-mlp", 3)
    for client in (*alone, *cohort):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(client.index)
            client.model = Dropping().to(memory_format=layout)  # type: ignore[call-overload]
    with torch.random.fork_rng(devices=[]):
        for client in alone:
            torch.default_generator.set_state(dropout_of(client).get_state())
            train(training_of(client))
    at_once(cohort, device)
    for one, other in zip(alone, cohort, strict=True):
        torch.testing.assert_close(read_state(other.model), read_state(one.model), rtol=0, atol=TOLERANCE)


def test_all_models_of_a_cohort_are_left_in_training_mode() -> None:
    clients = new_clients("digits-mlp", 3)
    for client in clients:
        client.model.eval()
    at_once(clients)
    assert all(client.model.training for client in clients)


class Weighted(NamedTuple):
    """Rows of the client's, and two numbers, for the loss."""

    rows: torch.Tensor
    weight: float
    width: int


def weighted(forward: Forward, images: torch.Tensor, labels: torch.Tensor, given: Weighted) -> torch.Tensor:
    embedding, logits = forward(images)
    pull = (embedding[:, : given.width] - given.rows).square().mean()
    return F.cross_entropy(logits, labels) + given.weight * pull


@pytest.mark.parametrize("device", DEVICES)
def test_each_client_is_given_its_own(device: torch.device) -> None:
    alone, cohort = new_clients("digits-mlp", 3), new_clients("digits-mlp", 3)

    def asked(client: Client) -> Training:
        weight = float(client.index)
        given = lambda batch: Weighted(client.train_images[batch].flatten(1)[:, :5], weight, 5)  # noqa: E731
        return Training(client, weighted, schedule(steps=3), 1, given=given)

    for client in alone:
        train(asked(client))
    train_cohort([asked(client) for client in cohort], [*map(dropout_of, cohort)], device)
    for one, other in zip(alone, cohort, strict=True):
        torch.testing.assert_close(read_state(other.model), read_state(one.model), rtol=0, atol=TOLERANCE)


class Linear(Model):
    """A model that does something which torch cannot do in a batch of models."""

    embedding_size = classes = 3
    mean: torch.Tensor
    largest: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(64, 3)
        self.calls = 0
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("largest", torch.zeros(()))

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.no_grad():
            self.mean += images.mean()
        logits = F.dropout(self.own(self.fc(images.flatten(1))), 0.3, self.training)
        return logits, logits

    def own(self, logits: torch.Tensor) -> torch.Tensor:
        return logits


class Noisy(Linear):
    """Draws numbers that nobody can tell apart by client."""

    def own(self, logits: torch.Tensor) -> torch.Tensor:
        return logits + torch.rand(3)


class Deciding(Linear):
    """Takes its way by what it sees."""

    def own(self, logits: torch.Tensor) -> torch.Tensor:
        return logits * 2 if F.dropout(logits).mean() > 0 else logits


class Unbatched(Linear):
    """Uses an operation that has no rule for batches."""

    def own(self, logits: torch.Tensor) -> torch.Tensor:
        order = np.argsort(logits.detach().cpu().numpy(), axis=1)
        return logits.gather(1, torch.as_tensor(order, device=logits.device))


class Counting(Linear):
    """Changes with each call, by an attribute."""

    def own(self, logits: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return logits / self.calls


class Replacing(Linear):
    """Puts another tensor in a buffer's place."""

    def own(self, logits: torch.Tensor) -> torch.Tensor:
        self.largest = torch.maximum(self.largest, logits.detach().max())
        return logits + self.largest


@pytest.mark.parametrize("kind", [Noisy, Deciding, Unbatched, Counting, Replacing])
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("device", DEVICES)
def test_a_model_that_cannot_be_in_a_batch_learns_as_it_would_by_itself(
    kind: type[Linear], size: int, device: torch.device, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    if device.type != "cpu" and kind is Noisy:
        pytest.skip("what a model draws itself, the card draws")
    alone, cohort = new_clients("digits-mlp", size), new_clients("digits-mlp", size)
    for client in (*alone, *cohort):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(client.index)
            client.model = kind()
    change = Correction(lambda gradient, parameters, own: gradient + 0.1 * parameters - own, (torch.ones(195) * 0.01,))
    found, expected = list[torch.Tensor](), list[torch.Tensor]()
    with torch.random.fork_rng(devices=[]):
        for client in alone:
            torch.default_generator.set_state(dropout_of(client).get_state())
            train(training_of(client, correct=change, seen=expected.append))
    at_once(cohort, device, correct=change, seen=found.append)
    assert ["a cohort of 3 is computed one by one" in text for text in caplog.messages] == [True] * (size == 3)
    for one, other in zip(alone, cohort, strict=True):
        torch.testing.assert_close(read_state(other.model), read_state(one.model), rtol=0, atol=TOLERANCE)
        for name, buffer in one.model.named_buffers():
            torch.testing.assert_close(dict(other.model.named_buffers())[name], buffer, rtol=0, atol=TOLERANCE)
        assert vars(other.model)["calls"] == vars(one.model)["calls"]
    in_steps = [*expected[0::2], *expected[1::2]]
    torch.testing.assert_close(found, in_steps, rtol=0, atol=TOLERANCE)


class Sharing(Model):
    """Has a module by two names, and a parameter and a buffer of a module in another one, too."""

    embedding_size = classes = 8

    def __init__(self) -> None:
        super().__init__()
        inner, norm = nn.Linear(8, 8), nn.BatchNorm1d(8)
        self.first, self.last = nn.Linear(64, 8), nn.Sequential(inner, norm)
        self.again, self.tied, self.mean = self.last, nn.Linear(8, 8), nn.BatchNorm1d(8)
        self.tied.weight, self.mean.running_mean = inner.weight, norm.running_mean

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        embedding = self.again(self.last(self.first(images.flatten(1))))
        return embedding, self.mean(self.tied(embedding))


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("device", DEVICES)
def test_what_has_two_names_in_a_model_learns_as_one(size: int, device: torch.device) -> None:
    alone, cohort = new_clients("digits-mlp", size), new_clients("digits-mlp", size)
    for client in (*alone, *cohort):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(client.index)
            client.model = Sharing()
    with torch.random.fork_rng(devices=[]):
        for client in alone:
            train(training_of(client))
    before = [read_state(client.model) for client in cohort]
    at_once(cohort, device)
    for one, other, begun in zip(alone, cohort, before, strict=True):
        assert all(isinstance(value, nn.Parameter) for value in other.model.parameters())
        torch.testing.assert_close(read_state(other.model), read_state(one.model), rtol=0, atol=TOLERANCE)
        assert not torch.equal(read_state(other.model), begun)


Code = Callable[[Client], Callable[[torch.Tensor], torch.Tensor]]
"""code(client) -> a function of a step's batch, or its embedding."""


def read_by_itself(client: Client) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda _: client.model.fc.weight[:, :4].mean(1)  # type: ignore[union-attr, index]


def read_as_it_was_named(client: Client) -> Callable[[torch.Tensor], torch.Tensor]:
    state = client.model.state_dict()
    return lambda _: torch.stack([state["fc.bias"], state["fc.bias"]]).sum(0)


def ask_the_model(client: Client) -> Callable[[torch.Tensor], torch.Tensor]:
    model = client.model
    return lambda _: model(client.train_images[:3])[1].mean(1)


def draw(client: Client) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda _: torch.rand(3)


def move(client: Client) -> Callable[[torch.Tensor], torch.Tensor]:
    def moved(_: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            client.model.fc.bias.mul_(0.5)  # type: ignore[union-attr, operator]
        return torch.zeros(3)

    return moved


@pytest.mark.parametrize("code", [read_by_itself, read_as_it_was_named, ask_the_model, draw, move])
@pytest.mark.parametrize("where", ["given", "seen"])
@pytest.mark.parametrize("device", DEVICES)
def test_own_code_between_the_steps_finds_its_own_numbers_and_its_model_as_it_is(
    code: Code, where: str, device: torch.device
) -> None:
    def asked(client: Client) -> Training:
        does, said = code(client), [torch.zeros(3)]

        def given(batch: torch.Tensor) -> Weighted:
            if where == "given":
                said.append(does(batch).detach())
            return Weighted(said[-1].expand(4, 3), 0.5, 3)

        def seen(embedding: torch.Tensor) -> None:
            if where == "seen":
                said.append(does(embedding).detach())

        return Training(client, weighted, schedule(steps=3), 1, given=given, seen=seen)

    alone, cohort = new_clients("digits-mlp", 3), new_clients("digits-mlp", 3)
    for client in (*alone, *cohort):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(client.index)
            client.model = Linear()
    generators = [dropout_of(client) for client in cohort]
    with torch.random.fork_rng(devices=[]):
        ends = []
        for client in alone:
            torch.default_generator.set_state(dropout_of(client).get_state())
            train(asked(client))
            ends.append(torch.get_rng_state())
        state = torch.get_rng_state()
        train_cohort([asked(client) for client in cohort], generators, device)
        assert torch.equal(torch.get_rng_state(), state), "nobody else's numbers are drawn"
    for one, other, end, generator in zip(alone, cohort, ends, generators, strict=True):
        torch.testing.assert_close(read_state(other.model), read_state(one.model), rtol=0, atol=TOLERANCE)
        assert torch.equal(generator.get_state(), end)


def failing(client: Client, what: str, when: int) -> Training:
    """A training whose own code raises an error in a step, counted from 0; a negative one never comes."""
    given_steps, seen_steps = count(), count()

    def given(batch: torch.Tensor) -> Weighted:
        is_now = next(given_steps) == when
        if is_now and what == "end":
            raise SystemExit("no more")
        if is_now and what == "given":
            raise ZeroDivisionError
        return Weighted(torch.zeros(4, 5 if is_now and what == "loss" else 3), 0.1, 3)

    def seen(embedding: torch.Tensor) -> None:
        if next(seen_steps) == when and what == "seen":
            raise ZeroDivisionError

    return Training(client, weighted, schedule(steps=3), 1, given=given, seen=seen)


@pytest.mark.parametrize("kind", [Linear, Noisy])
@pytest.mark.parametrize("what", ["given", "seen", "loss", "end"])
@pytest.mark.parametrize("when", [0, 1])
@pytest.mark.parametrize("device", DEVICES)
def test_an_error_is_that_of_the_client_whose_code_raised_it(
    kind: type[Linear], what: str, when: int, device: torch.device
) -> None:
    """The others learn what they learn without it."""
    models = list[torch.Tensor]()
    for is_failing in (True, False):
        clients = new_clients("digits-mlp", 3)
        for client in clients:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(client.index)
                client.model = kind()
        trainings = [failing(client, what, when if is_failing and client.index == 1 else -1) for client in clients]
        found = train_cohort(trainings, [*map(dropout_of, clients)], device)
        assert [isinstance(one, Exception) for one in found] == [False, is_failing, False]
        models += [read_state(clients[place].model) for place in (0, 2)]
    for one, other in zip(models[:2], models[2:], strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=TOLERANCE)


def test_a_cohort_whose_clients_all_fail_ends() -> None:
    clients = new_clients("digits-mlp", 2)
    found = train_cohort([failing(one, "given", 0) for one in clients], [*map(dropout_of, clients)], CPU)
    assert [type(one) for one in found] == [ZeroDivisionError] * 2


class Ending(Linear):
    """Would end the process of all in training, until it is told to go on."""

    is_over: ClassVar[bool] = False

    def forward(self, images: torch.Tensor) -> Any:
        if self.is_over:
            raise SystemExit("no more")
        return super().forward(images)


def test_a_model_that_would_end_the_process_is_told_by_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    clients = new_clients("digits-mlp", 2)
    for client in clients:
        client.model = Ending()
    trainings = [failing(client, "nothing", -1) for client in clients]
    monkeypatch.setattr(Ending, "is_over", True)
    found = train_cohort(trainings, [*map(dropout_of, clients)], CPU)
    for client, error in zip(clients, found, strict=True):
        assert isinstance(error, OwnCodeFailed)
        assert str(error).startswith(f"peer {client.index}: SystemExit: no more (")


def test_a_processor_takes_small_models_without_convolutions_and_a_card_all() -> None:
    paying = {name for name in MODELS if pays(build_model(name, 0, **shape_of(name)), CPU)}
    expected = {"digits-mlp", "digits-mlp-bn", "frozen-2", "logistic", "mlp-linear"}
    assert paying == expected | {"split-mlp-1", "split-mlp-2", "split-mlp-3"}
    assert pays(nn.Conv2d(1, 1, 3), torch.device("cuda"))
    assert not pays(nn.Linear(SMALL, 1), CPU), "one bias too many"
