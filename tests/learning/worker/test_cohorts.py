"""Clients side by side: every method that allows it learns in cohorts what its clients learn one by one."""

import signal
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedchain.learning.application import Application
from fedchain.learning.client import Client, Forward
from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import ConfigurationError, InvalidPayload, TrainingDiverged
from fedchain.learning.models.vectors import read_state
from fedchain.learning.payload.codec import decode
from fedchain.learning.registry import METHODS, HyperparameterValue, build_method
from fedchain.learning.round import OffChain
from fedchain.learning.training import cohort
from fedchain.learning.training.loop import Training, train
from fedchain.learning.worker import learner as learner_module
from fedchain.learning.worker.cohorts import work_side_by_side
from fedchain.learning.worker.contribution import Contribution
from fedchain.learning.worker.learner import Learner
from tests.support.campaigns import some
from tests.support.learning.devices import CARD, CPU, DEVICES, needs_card
from tests.support.learning.federation import VARIED

ALONE = {"fededs", "fedreg", "pfedme"}
DISTILLED = {"feddkc", "fedgkt", "fedict"}
TOGETHER = sorted(set(METHODS) - ALONE - DISTILLED)
CLIENTS = range(3)

TOLERANCE = 1e-5
"""Largest difference of a number in a post of the second round, of three steps each."""


def config(method: str = "fedavg", **hyperparameters: HyperparameterValue) -> LearningConfig:
    model = {"fedph": "frozen-2"}.get(method, "split-mlp-2" if method in DISTILLED else "digits-mlp")
    chosen = {"batch_size": 8, "local_steps": 3, "local_epochs": 0} if method != "sgd" else {}
    own = chosen | hyperparameters
    return LearningConfig(
        method=method, hyperparameters=own, model=model, clients=3, partition="iid", train_examples=72
    )


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the cohorts that are trained from now on."""
    found, real = list[int](), cohort.train_cohort

    def counting(trainings: Any, *arguments: Any) -> list[torch.Tensor | Exception]:
        found.append(len(trainings))
        return real(trainings, *arguments)

    monkeypatch.setattr(cohort, "train_cohort", counting)
    return found


def two_rounds(chosen: LearningConfig, *, together: bool, device: torch.device = CPU) -> list[dict[str, NDArray[Any]]]:
    """The posts of the clients in the second round of a federation."""
    rules, learner = Application(chosen), Learner(chosen)
    learner.train_on(str(device), vectorize_clients=together)
    method, knowledge, made = rules.method, b"", list[Contribution]()
    phase = next(phase for phase in method.phases if phase.trains)
    for number, name in (*((0, setup.name) for setup in method.setup), (1, phase.name), (2, phase.name)):
        found = learner.contribute_together(CLIENTS, name, number, knowledge)
        made = [one for one in found if isinstance(one, Contribution)]
        assert len(made) == len(found), found
        posts = [(bytes([client]), one.payload) for client, one in enumerate(made)]
        knowledge = rules.aggregate(OffChain(name, number), knowledge, posts)
    return [dict(decode(one.payload, method.payload_spec(phase, rules.info))) for one in made]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("method", some(TOGETHER, chosen=VARIED | {"fedph"}))
def test_a_method_learns_in_cohorts_what_it_learns_one_by_one(
    method: str, device: torch.device, sizes: list[int]
) -> None:
    expected = two_rounds(config(method), together=False)
    assert sizes == []
    found = two_rounds(config(method), together=True, device=device)
    assert sizes == [3, 3]
    for one, other in zip(expected, found, strict=True):
        assert one.keys() == other.keys()
        for name, tensor in one.items():
            np.testing.assert_allclose(other[name], tensor, rtol=0, atol=TOLERANCE)


@needs_card
@pytest.mark.parametrize("method", TOGETHER)
def test_a_card_repeats_what_it_did_to_the_bit(method: str) -> None:
    for together in (False, True):
        first, again = (two_rounds(config(method), together=together, device=CARD) for _ in range(2))
        for one, other in zip(first, again, strict=True):
            assert all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("method", some(sorted(DISTILLED), chosen=VARIED))
def test_clients_of_distillation_learn_in_cohorts_what_they_learn_one_by_one(
    method: str, device: torch.device, sizes: list[int]
) -> None:
    chosen, models = config(method), list[list[torch.Tensor]]()
    members = [bytes([client]) for client in range(4)]  # the last one aggregates
    for together in (False, True):
        rules, learner = Application(chosen, members), Learner(chosen, members=members)
        learner.train_on(str(device if together else CPU), vectorize_clients=together)
        labels = [learner.contribute(client, "labels", 0, b"") for client in CLIENTS]
        posts = [(bytes([client]), one.payload) for client, one in enumerate(labels)]
        knowledge = rules.aggregate(OffChain("labels", 0, members=members), b"", posts)
        found = learner.contribute_together(CLIENTS, "update", 1, knowledge)
        assert [one.steps for one in found if isinstance(one, Contribution)] == [3, 3, 3], found
        models.append([read_state(learner.client(client).model) for client in CLIENTS])
    assert sizes == [3]
    for one, other in zip(*models, strict=True):
        torch.testing.assert_close(other, one, rtol=0, atol=TOLERANCE)


def test_methods_that_take_other_steps_say_so_and_go_one_by_one(sizes: list[int]) -> None:
    built = {name: build_method(name, {}) for name in METHODS}
    assert {name for name, method in built.items() if method.trained_alone} == ALONE
    expected, found = (two_rounds(config("pfedme"), together=together) for together in (False, True))
    for one, other in zip(expected, found, strict=True):
        assert all(np.array_equal(one[name], other[name]) for name in one)
    assert sizes == []


def test_another_model_than_gains_by_it_is_trained_alone_to_the_same_bits(sizes: list[int]) -> None:
    chosen = replace(config(), model="frozen-3")
    for one, other in zip(two_rounds(chosen, together=False), two_rounds(chosen, together=True), strict=True):
        assert all(np.array_equal(one[name], other[name]) for name in one)
    assert sizes == []


def test_a_client_that_diverges_or_fails_fails_alone() -> None:
    expected, learner = Learner(config()), Learner(config())
    for one in (expected, learner):
        one.train_on("cpu", vectorize_clients=True)
    learner.client(1).train_images[:] = 1e30
    before = learner.checkpoint(1)
    found = learner.contribute_together(CLIENTS, "update", 1, b"")
    assert isinstance(found[1], TrainingDiverged)
    assert learner.checkpoint(1) == before
    as_if_well = expected.contribute_together(CLIENTS, "update", 1, b"")
    assert [found[0], found[2]] == [as_if_well[0], as_if_well[2]]
    assert all(isinstance(one, InvalidPayload) for one in learner.contribute_together(CLIENTS, "update", 2, b"damaged"))


@pytest.mark.parametrize("at_once", [256, 2])
def test_a_client_that_cannot_be_built_leaves_the_others_what_they_made(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learner_module, "COHORT_MAX", at_once)
    learner = Learner(config())
    learner.train_on("cpu", vectorize_clients=True)
    found = learner.contribute_together((0, 1, 9, 2), "update", 1, b"")
    assert isinstance(found[2], ConfigurationError)
    assert str(found[2]) == "client must be between 0 and 2, not 9"
    assert [isinstance(one, Contribution) for one in found] == [True, True, False, True]


def mean_of_logits(forward: Forward, images: torch.Tensor, labels: torch.Tensor, given: Any) -> torch.Tensor:
    return forward(images)[1].mean()


def test_work_draws_beside_others_the_numbers_that_it_would_draw_alone() -> None:
    learner, drawn = Learner(config()), dict[int, list[float]]()
    schedule = learner.method.schedule_in(1)
    assert schedule is not None

    def work(client: Client) -> str:
        torch.default_generator.manual_seed(client.index)
        drawn[client.index] = [float(torch.rand(()))]
        train(Training(client, mean_of_logits, schedule, 1))
        drawn[client.index].append(float(torch.rand(())))
        return f"client {client.index}"

    with torch.random.fork_rng(devices=[]):
        found = work_side_by_side([learner.client(index) for index in CLIENTS], work, torch.device("cpu"))
    assert found == ["client 0", "client 1", "client 2"]
    for index in CLIENTS:
        generator = torch.Generator().manual_seed(index)
        assert drawn[index] == [float(torch.rand((), generator=generator)) for _ in range(2)]


def test_an_end_from_outside_ends_all_work_and_puts_clients_back(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = Learner(config())
    learner.train_on("cpu", vectorize_clients=True)
    before, threads = [learner.checkpoint(index) for index in CLIENTS], threading.active_count()

    def interrupted(*arguments: Any) -> torch.Tensor:
        raise KeyboardInterrupt

    monkeypatch.setattr(cohort, "train_cohort", interrupted)
    with pytest.raises(KeyboardInterrupt):
        learner.contribute_together(CLIENTS, "update", 1, b"")
    assert [learner.checkpoint(index) for index in CLIENTS] == before
    assert threading.active_count() == threads


def test_an_end_from_outside_interrupts_a_clients_own_code() -> None:
    """Ctrl-C comes while the second client's code goes on for ever, and the first waits for its training."""
    learner, ended, threads = Learner(config()), list[int](), threading.active_count()
    main = threading.main_thread().ident
    assert main is not None

    def work(client: Client) -> None:
        try:
            if client.index == 1:
                while True:
                    signal.pthread_kill(main, signal.SIGINT)
                    for _ in range(1_000_000):  # one that comes just before the main thread waits does not wake it
                        torch.rand(3)
            train(Training(client, mean_of_logits, learner.method.schedule_in(1), 1))  # type: ignore[arg-type]
        finally:
            ended.append(client.index)

    clients = [learner.client(index) for index in CLIENTS]
    with torch.random.fork_rng(devices=[]), pytest.raises(KeyboardInterrupt):
        work_side_by_side(clients, work, torch.device("cpu"))
    assert sorted(ended) == [0, 1], "the third had not begun"
    assert threading.active_count() == threads
    assert [client.trainer for client in clients] == [None] * 3


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt])
def test_an_exit_in_a_clients_own_code_ends_all_work(end: type[BaseException], when: str) -> None:
    learner, ended, threads = Learner(config()), list[int](), threading.active_count()

    def work(client: Client) -> None:
        try:
            if client.index == 1 and when == "before":
                raise end("enough")
            train(Training(client, mean_of_logits, learner.method.schedule_in(1), 1))  # type: ignore[arg-type]
            if client.index == 1:
                raise end("enough")
        finally:
            ended.append(client.index)

    clients = [learner.client(index) for index in CLIENTS]
    with torch.random.fork_rng(devices=[]), pytest.raises(end, match=r"^enough$"):
        work_side_by_side(clients, work, torch.device("cpu"))
    assert sorted(ended) == ([0, 1] if when == "before" else [0, 1, 2])
    assert threading.active_count() == threads


def test_a_device_that_is_not_here_and_a_method_that_no_card_trains_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"^device is cuda:9, but torch .* graphics card"):
        Learner(config()).train_on("cuda:9", vectorize_clients=False)
