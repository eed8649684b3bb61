"""FedEDS against its formulas, and what its clients show each other."""

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch

from fedchain.learning.application import Application
from fedchain.learning.client import Client
from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import ConfigurationError, TrainingDiverged
from fedchain.learning.families.distillation_terms import divergence
from fedchain.learning.methods.fedavg import FedAvg
from fedchain.learning.methods.fededs import (
    ENCRYPT,
    FedEds,
    Shared,
    annealed_epochs,
    loss_weights,
)
from fedchain.learning.methods.fednova import FedNova
from fedchain.learning.methods.fedprox import FedProx
from fedchain.learning.models.plain import PlainCnn, PooledModel
from fedchain.learning.models.stochastic import stochastic_layer
from fedchain.learning.models.vectors import read_state
from fedchain.learning.payload.bulk import EVERYBODY
from fedchain.learning.payload.pixels import pack_images, unpack_images
from fedchain.learning.registry import HyperparameterValue, build_method
from fedchain.learning.round import Round, Tensors
from fedchain.learning.worker.learner import Learner
from tests.support.learning.federation import Federation, aggregate, config, examples, model_of, new_client
from tests.support.learning.shown import Parts, shown

EXAMPLES = 12
FEW: Mapping[str, HyperparameterValue] = {"extractor_epochs": 2, "encryptor_epochs": 3, "encryptor_width": 2}

SGD = ("learning_rate", "batch_size", "momentum", "weight_decay")
"""Fields of local SGD whose defaults are FedEDS's own."""


def client_of(examples_count: int = EXAMPLES, *, double: bool = False) -> Client:
    client = new_client(examples_count, "plain-cnn")
    if double:
        client.model.double()
        client.train_images = client.train_images.double()
    return client


def round_of(number: int, parts: Parts | None = None) -> Round:
    return Round(number, None, clients=3, bulk=parts)


@pytest.mark.parametrize(
    ("number", "epochs", "local", "shared"),
    [(1, 5, 0.5, 0.5), (2, 3, 0.95257, 0.04743), (3, 1, 1.0, 0.0), (4, 1, 1.0, 0.0), (400, 1, 1.0, 0.0)],
)
def test_the_schedule_is_the_papers(number: int, epochs: int, local: float, shared: float) -> None:
    method = FedEds()
    assert method.epochs_in(number) == epochs
    assert method.weights_in(number) == pytest.approx((local, shared), abs=5e-6)
    assert sum(method.weights_in(number)) == pytest.approx(1.0, abs=1e-15)
    if number > 2:
        assert method.weights_in(number) == (1.0, 0.0), "exactly"


@pytest.mark.parametrize(("most", "least", "start", "end"), [(5, 1, 1, 3), (10, 2, 3, 10), (4, 4, 0, 1), (7, 1, 2, 9)])
def test_passes_are_annealed_piece_by_piece(most: int, least: int, start: int, end: int) -> None:
    """Eq. 5."""
    found = [annealed_epochs(number, most, least, start, end) for number in range(1, end + 4)]
    for number, epochs in enumerate(found, 1):
        if number <= start:
            assert epochs == most
        elif number > end:
            assert epochs == least
        else:
            assert epochs == most - math.floor((most - least) * (number - start) / (end - start))
    assert sorted(found, reverse=True) == found


@pytest.mark.parametrize("slope", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("floor", [0.0, 0.01, 0.3, 0.5])
def test_weights_are_a_sigmoid_that_ends_at_the_floor(slope: float, floor: float) -> None:
    """Eqs. 9 and 10."""
    for number in range(1, 12):
        sigmoid = 1 / (1 + math.exp(-slope * (number - 1)))
        local, rest = loss_weights(number, slope, floor)
        if math.exp(-slope * (number - 1)) / (1 + math.exp(-slope * (number - 1))) < floor:
            assert (local, rest) == (1.0, 0.0)
        else:
            assert (local, rest) == pytest.approx((sigmoid, 1 - sigmoid), abs=1e-15)


def test_the_divergence_is_the_teachers_from_the_student() -> None:
    """Eq. 6, with its gradient; a probability of 0 counts nothing."""
    teacher = torch.tensor([[0.7, 0.3, 0.0], [0.2, 0.2, 0.6]], dtype=torch.float64)
    logits = torch.tensor([[1.0, -2.0, 0.5], [0.1, 0.2, 3.0]], dtype=torch.float64, requires_grad=True)
    expected = 0.0
    for row, outputs in zip(teacher.tolist(), logits.tolist(), strict=True):
        total = sum(math.exp(value) for value in outputs)
        student = [math.exp(value) / total for value in outputs]
        expected += sum(p * math.log(p / q) for p, q in zip(row, student, strict=True) if p > 0) / 2
    value = divergence(teacher, logits)
    assert value.item() == pytest.approx(expected, rel=1e-12)
    (gradient,) = torch.autograd.grad(value, logits)
    torch.testing.assert_close(gradient, (torch.softmax(logits, dim=1) - teacher) / 2, atol=1e-12, rtol=1e-10)
    assert divergence(teacher[1:], teacher[1:].log()).item() == pytest.approx(0.0, abs=1e-15)


def logits_by_hand(model: PlainCnn, images: torch.Tensor, matrix: torch.Tensor | None) -> torch.Tensor:
    """c(g(x)), or c(l(g(x))) for a stochastic matrix behind the mean, layer by layer."""
    conv = torch.nn.functional.conv2d
    first, second, third = model.convs
    hidden = conv(images, first.weight, first.bias, padding=1).clamp(min=0)  # type: ignore[arg-type]
    hidden = conv(hidden.unfold(2, 2, 2).unfold(3, 2, 2).amax((4, 5)), second.weight, second.bias, padding=1)  # type: ignore[arg-type]
    hidden = hidden.clamp(min=0).unfold(2, 2, 2).unfold(3, 2, 2).amax((4, 5))
    pooled = conv(hidden, third.weight, third.bias, padding=1).clamp(min=0).mean((2, 3))  # type: ignore[arg-type]
    return (pooled if matrix is None else pooled @ matrix.T) @ model.fc.weight.T + model.fc.bias


def test_a_step_weighs_the_own_and_a_peers_data() -> None:
    """Eq. 8 with Eqs. 2 and 6, in float64."""
    client, draw = client_of(double=True), torch.Generator().manual_seed(5)
    model = client.model
    assert isinstance(model, PlainCnn)
    layer = stochastic_layer(1, 64, "linear").double()
    images = torch.randn(4, 1, 8, 8, generator=draw, dtype=torch.float64)
    teacher = torch.softmax(torch.randn(4, 10, generator=draw, dtype=torch.float64), dim=1)
    given = Shared(images, teacher, layer, 0.3, 0.7)
    found = FedEds().loss(model, client.train_images, client.train_labels, given)
    own = torch.log_softmax(logits_by_hand(model, client.train_images, None), dim=1)
    local = -own[torch.arange(EXAMPLES), client.train_labels].mean()
    student = torch.log_softmax(logits_by_hand(model, images, layer.weight), dim=1)
    shared = (teacher * (teacher.log() - student)).sum() / 4
    assert found.item() == pytest.approx((0.3 * local + 0.7 * shared).item(), rel=1e-12)
    assert FedEds().loss(model, client.train_images, client.train_labels, None).item() == pytest.approx(local.item())


BASES = {"fedavg": FedAvg, "fedprox": FedProx, "fednova": FedNova}


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("number", [3, 50])
def test_where_nothing_is_shared_a_round_is_the_bases_to_the_bit(base: str, number: int) -> None:
    method = build_method("fededs", {"base": base})
    assert isinstance(method, FedEds)
    own = {item.name: getattr(method, item.name) for item in fields(FedAvg)}
    own |= {"proximal_weight": method.proximal_weight} if base == "fedprox" else {}
    ours, theirs, parts = client_of(200), client_of(200), Parts()
    parts.show(1, shown(9, 0))
    posted = method.update(ours, round_of(number, parts))
    expected = BASES[base](**own).update(theirs, round_of(number))
    assert posted.keys() == expected.keys()
    assert all(posted[name].tobytes() == expected[name].tobytes() for name in expected)
    assert parts.read_from == []


def test_a_federation_without_both_strategies_is_fedavg_to_the_bit() -> None:
    plain = config("fededs", sharing=False, annealing=False)
    ours = Federation(plain)
    settings = {name: getattr(ours.rules.method, name) for name in SGD}
    few = {"local_steps": 4, "local_epochs": 0}
    theirs = Federation(replace(plain, method="fedavg", hyperparameters=settings | few))
    ours.play(3)
    theirs.play(3)
    assert ours.knowledge == theirs.knowledge


def test_annealing_alone_takes_more_steps_of_the_base() -> None:
    """S1."""
    method = FedEds(sharing=False, batch_size=5)
    assert method.setup == ()
    client = client_of()
    for number, passes in ((1, 5), (2, 3), (3, 1)):
        client.steps = 0
        method.update(client, round_of(number))
        assert client.steps == 2 * passes == method.planned_steps(method.phases[0], EXAMPLES, number)


def test_where_a_round_is_so_many_steps_these_are_annealed() -> None:
    method, client = FedEds(sharing=False, local_epochs=0, local_steps=2, batch_size=4), client_of()
    method.update(client, round_of(1))
    assert client.steps == method.planned_steps(method.phases[0], EXAMPLES, 1) == 5 * 2


def test_sharing_alone_takes_as_many_steps_as_the_base() -> None:
    """S2."""
    method = FedEds(annealing=False, batch_size=5)
    client, parts = client_of(), Parts()
    parts.show(1, shown(9, 0))
    method.update(client, round_of(1, parts))
    assert client.steps == 2
    assert parts.read_from == [1]


def test_another_peer_is_drawn_in_every_pass_and_never_oneself() -> None:
    method, parts = FedEds(epochs_max=20, batch_size=5), Parts()
    for sender in range(4):
        parts.show(sender, shown(7, sender), shown(2, sender))
    method.update(client_of(), round_of(1, parts))
    drawn = parts.read_from[::2]
    assert parts.read_from[1::2] == drawn, "both parts of the one that was drawn"
    assert len(drawn) == 20
    assert {sender: drawn.count(sender) > 2 for sender in drawn} == {1: True, 2: True, 3: True}
    again = Parts()
    again.held = parts.held
    method.update(client_of(), round_of(1, again))
    assert again.read_from == parts.read_from, "a client's round can be repeated"


def test_encrypted_batches_go_round_the_peers_images() -> None:
    method, parts = FedEds(batch_size=4), Parts()
    parts.show(2, shown(5, 0), shown(3, 1))
    given = method._others(client_of(), round_of(1, parts), [])
    assert given is not None
    steps = [given(torch.arange(4)) for _ in range(3)]
    held = list(parts.held.values())
    everything = np.concatenate([unpack_images(part, (1, 8, 8)) for part in held])
    teachers = np.concatenate([part["teacher"] for part in held])
    teacher_of = {image.tobytes(): row for image, row in zip(everything, teachers, strict=True)}
    assert {image.tobytes() for step in steps[:2] for image in step.images.numpy()} == teacher_of.keys()
    for step in steps:
        assert (step.local_weight, step.shared_weight) == (0.5, 0.5)
        assert torch.equal(step.layer.weight, stochastic_layer(2, 64).weight)
        for image, row in zip(step.images.numpy(), step.teacher.numpy(), strict=True):
            assert np.array_equal(teacher_of[image.tobytes()], row)


WRONG: dict[str, Tensors] = {
    "not here": {},
    "images of another size": shown(7, 0) | {"pixels": np.zeros(7 * 49, np.uint8)},
    "a teacher too few": shown(7, 0) | {"teacher": shown(6, 0)["teacher"]},
    "no probabilities": shown(7, 0) | {"teacher": np.full((7, 10), 0.2, np.float32)},
}


@pytest.mark.parametrize("case", WRONG)
def test_a_peer_whose_data_are_of_no_use_is_not_drawn(case: str) -> None:
    method, parts = FedEds(epochs_max=20), Parts()
    parts.show(1, WRONG[case])
    parts.show(2, shown(7, 1))
    client = client_of()
    given = method._others(client, round_of(1, parts), [])
    assert given is not None
    assert all(torch.equal(given(torch.arange(4)).layer.weight, stochastic_layer(2, 64).weight) for _ in range(20))
    assert parts.read_from.count(1) == 1, "asked for once"
    assert {*client.skipped} == {1}
    assert ("not here" if case == "not here" else "of no use") in client.skipped[1]


def test_without_any_others_data_steps_are_those_of_the_base() -> None:
    method, alone = FedEds(annealing=False), FedEds(annealing=False, sharing=False)
    parts = Parts()
    parts.show(1, {})
    ours, theirs = client_of(), client_of()
    method.update(ours, round_of(1, parts))
    alone.update(theirs, round_of(1))
    assert torch.equal(read_state(ours.model), read_state(theirs.model))


def test_who_diverges_with_others_data_takes_its_steps_without() -> None:
    method = FedEds(batch_size=2, learning_rate=0.3)
    alone = replace(method, sharing=False)
    parts, draw = Parts(), np.random.default_rng(1)
    glaring = draw.choice([-1000.0, 1000.0], (40, 1, 8, 8)).astype(np.float32)
    parts.show(1, pack_images(glaring, "uint8") | {"teacher": np.eye(10, dtype=np.float32)[draw.integers(0, 10, 40)]})
    ours, theirs = client_of(), client_of()
    method.update(ours, round_of(1, parts))
    alone.update(theirs, round_of(1))
    assert 1 in parts.read_from
    assert torch.equal(read_state(ours.model), read_state(theirs.model))
    assert ours.steps == theirs.steps
    assert (ours.skipped, theirs.skipped) == ({1: "the steps diverge with its encrypted data; all go without any"}, {})
    with pytest.raises(TrainingDiverged):
        replace(alone, learning_rate=900.0).update(client_of(), round_of(1))


def test_who_is_drawn_after_the_steps_diverged_is_not_named() -> None:
    """Losses are looked at when all steps are taken, and others' data were learned from until then."""
    method, draw = FedEds(batch_size=2, learning_rate=0.3, epochs_max=4), np.random.default_rng(1)
    glaring = draw.choice([-1000.0, 1000.0], (40, 1, 8, 8)).astype(np.float32)
    parts, client = Parts(), client_of()
    parts.show(1, pack_images(glaring, "uint8") | {"teacher": np.eye(10, dtype=np.float32)[draw.integers(0, 10, 40)]})
    parts.show(2, shown(7, 1))
    method.update(client, round_of(1, parts))
    assert (parts.read_from[0], parts.read_from[-1]) == (1, 2)
    assert {*client.skipped} == {1}


@pytest.mark.parametrize("pixel_type", ["uint8", "float16"])
def test_the_setup_shows_encrypted_images_with_what_the_model_says_of_them(pixel_type: str) -> None:
    method = build_method("fededs", {**FEW, "pixel_type": pixel_type, "batch_size": 4})
    assert isinstance(method, FedEds)
    client, parts = client_of(40), Parts()
    client.index = 2
    before = read_state(client.model)
    posted = method.encrypt(client, round_of(0, parts))
    assert torch.equal(read_state(client.model), before), "the model is the common one again"
    assert posted["parts.reader"].tolist() == [EVERYBODY]
    (part,) = parts.held.values()
    assert part["pixels"].dtype == pixel_type
    images = torch.from_numpy(unpack_images(part, (1, 8, 8)))
    assert images.shape == client.train_images.shape
    assert not torch.allclose(images, client.train_images, atol=0.5)
    assert client.steps == method.planned_steps(ENCRYPT, 40, 0) == 10 * (2 + 3)
    # the teacher is the model after its own training: repeat that alone
    again = client_of(40)
    own = {name: getattr(method, name) for name in SGD}
    FedAvg(**own, local_epochs=2).update(again, round_of(1))
    assert isinstance(again.model, PooledModel)
    with torch.no_grad():
        said = torch.softmax(again.model.forward_through(stochastic_layer(2, 64), images), dim=1)
    torch.testing.assert_close(torch.from_numpy(part["teacher"]), said)


def test_the_encryptor_learns_by_its_own_rate() -> None:
    """At one of next to nothing it stays what it began as, whatever the model's is, and however often it is trained."""
    shown = []
    for rate, passes in ((1e-30, 1), (1e-30, 3), (0.1, 3)):
        method, parts = FedEds(**{**FEW, "encryptor_rate": rate, "encryptor_epochs": passes}), Parts()  # type: ignore[arg-type]
        method.encrypt(client_of(40), round_of(0, parts))
        (part,) = parts.held.values()
        shown.append(unpack_images(part, (1, 8, 8)))
    assert np.array_equal(shown[0], shown[1])
    assert not np.allclose(shown[1], shown[2], atol=0.01)


def nova_post(values: Any, norm: float) -> dict[str, Any]:
    extra = {"steps": np.array([1]), "normalizer": np.array([norm], np.float32)}
    return model_of(values) | examples(3) | extra


def test_the_printed_step_of_fednova_climbs() -> None:
    """Algorithm 4, lines 17 to 22, with Eq. 12 in passes; the rule itself averages."""
    printed, correct = (FedEds(base="fednova", nova_step=step) for step in ("printed", "correct"))
    before, models, norms = 1.0, [3.0, 2.5], [4.0, 2.0]
    payloads = [nova_post([model], norm) for model, norm in zip(models, norms, strict=True)]
    changes = [(model - before) / (0.01 * norm) for model, norm in zip(models, norms, strict=True)]
    expected = before - (sum(norms) / 2) * (sum(changes) / 2)
    found = aggregate(printed, payloads, model_of([before]))["model.w"]
    np.testing.assert_allclose(found, [expected], rtol=1e-6)
    assert found[0] < before < aggregate(correct, payloads, model_of([before]))["model.w"][0]


def test_fednovas_norm_counts_steps_and_as_printed_passes() -> None:
    """Eq. 12."""

    def by_hand(times: int) -> float:
        rho = 0.9
        return (times - rho * (1 - rho**times) / (1 - rho)) / (1 - rho)

    for step, times in (("correct", 3 * 3), ("printed", 3)):
        method = build_method("fededs", {"base": "fednova", "nova_step": step, "batch_size": 4})
        assert isinstance(method, FedEds)
        posted = method.update(client_of(), round_of(2))
        assert posted["normalizer"][0] == pytest.approx(by_hand(times), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("base", BASES)
def test_encrypted_data_stay_on_the_chain_beside_the_model(base: str) -> None:
    federation = Federation(config("fededs", base=base))
    names = [name for name, _, _ in federation.rules.setup_phases]
    assert names == (["initial_model", "encrypt"] if base == "fednova" else ["encrypt"])
    federation.play()
    listed = federation.rules.parts_known(federation.knowledge)
    assert [(number, part[2], sender) for number, part, sender in listed] == [(0, EVERYBODY, k) for k in range(3)]
    assert set(federation.known()) == {f"model.{name}" for name, _ in federation.rules.info.parameters}


def test_what_peers_show_changes_what_a_client_learns() -> None:
    federation = Federation(config("fededs"))
    with_others = federation.learner.contribute(0, "update", 1, federation.knowledge)
    alone = Learner(federation.config, members=federation.members).contribute(0, "update", 1, federation.knowledge)
    assert with_others.payload != alone.payload, "another process without their parts"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"nova_step": "printed"}, "of the base fednova, not of fedavg"),
        (
            {"base": "fednova", "nova_step": "printed", "schedule": "cosine", "schedule_rounds": 3},
            "divides by the learning rate, which a cosine schedule rounds",
        ),
        ({"base": "fednova", "aggregation_rule": "median"}, "takes no robust rules"),
        ({"epochs_min": 6}, "epochs_max"),
        ({"annealing_start": 3}, "annealing_end"),
        ({"gradient_noise": 1.0}, "DP-SGD does not cover"),
    ],
)
def test_settings_that_make_no_sense_are_refused(values: dict[str, HyperparameterValue], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        build_method("fededs", values)


def test_a_model_without_pooling_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="ends with a pooling: plain-cnn or"):
        Application(LearningConfig(method="fededs", model="digits-mlp"))
    assert LearningConfig(method="fededs").model_names == ("plain-cnn",)
    Application(LearningConfig(method="fededs"))
