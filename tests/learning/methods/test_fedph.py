"""FedPH against its formulas, written out once more and independently."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedchain.learning.client import Client
from fedchain.learning.exceptions import ConfigurationError, NothingToPost, ReleaseRefused, SecretMissing
from fedchain.learning.families.prototypes import Known
from fedchain.learning.methods.fedph import FedPh
from fedchain.learning.models.prototypes import forward_all
from fedchain.learning.privacy.releases import Release, Sampling
from fedchain.learning.registry import HyperparameterValue, build_method
from fedchain.learning.round import Round
from fedchain.learning.sums.secrets import ROOT_SIZE, Secrets
from fedchain.learning.worker.learner import Learner
from tests.learning.methods.toy import CROSS_ENTROPY, EMBEDDING, GENERATOR, LABELS, LOGITS, B, C, D, loss_of
from tests.support.learning.federation import Federation, config, new_client

PROTOTYPES = torch.randn(C, D, generator=GENERATOR, dtype=torch.float64)


def printed_loss(known: list[int], weight: float, temperature: float) -> float:
    """Eqs. 10 and 11, example by example, over the classes that have a prototype."""
    contrast = 0.0
    for b in range(B):
        z = EMBEDDING[b] / EMBEDDING[b].norm()
        share = {j: math.exp(float(z @ PROTOTYPES[j] / PROTOTYPES[j].norm()) / temperature) for j in known}
        own = int(LABELS[b])
        contrast -= math.log(share[own] / sum(share.values())) / B if own in known else 0.0
    return CROSS_ENTROPY + weight * contrast


@pytest.mark.parametrize("known", [[0, 1, 2, 3], [0, 2], [3], []])
@pytest.mark.parametrize(("weight", "temperature"), [(1.0, 1.0), (0.3, 0.5)])
def test_the_loss_is_eq_11_over_the_classes_that_are_known(known: list[int], weight: float, temperature: float) -> None:
    given = Known(PROTOTYPES, torch.tensor([label in known for label in range(C)]))
    found = loss_of(FedPh(contrast_weight=weight, temperature=temperature), given)
    assert found == pytest.approx(printed_loss(known, weight, temperature), rel=1e-9)


def test_the_gradient_is_finite_where_nothing_is_known() -> None:
    embedding = EMBEDDING.clone().requires_grad_()
    given = Known(torch.zeros(C, D).double(), torch.zeros(C, dtype=torch.bool))
    loss = FedPh().loss(lambda _: (embedding, LOGITS), torch.zeros(B, 1), LABELS, given)
    assert torch.isfinite(torch.autograd.grad(loss, embedding)[0]).all()


def test_posted_are_the_class_means_of_unit_embeddings_after_training() -> None:
    federation = Federation(config("fedph"))
    client = federation.client(1)
    posted = federation.learner.method.work(federation.learner.method.phases[0])(client, a_round())
    embeddings = forward_all(client.model, client.train_images)[0].numpy().astype(np.float64)  # after training
    units = embeddings / np.maximum(np.linalg.norm(embeddings, axis=1, keepdims=True), 1e-12)
    labels = client.train_labels.numpy()
    assert posted["labels"].tolist() == sorted(set(labels.tolist()))
    for label, count, prototype in zip(posted["labels"], posted["counts"], posted["prototypes"], strict=True):
        assert count == (labels == label).sum()
        np.testing.assert_allclose(prototype, units[labels == label].mean(axis=0), atol=1e-6)


@pytest.mark.parametrize(("aggregation", "expected"), [("holders", 3.0), ("samples", 2.0)])
def test_global_prototypes_are_the_plain_mean_over_holders_or_weighted_by_examples(
    aggregation: str, expected: float
) -> None:
    from tests.support.learning.federation import aggregate

    payloads = [
        {"labels": np.array([2]), "counts": np.array([count]), "prototypes": np.array([[value]], np.float32)}
        for value, count in ((1.0, 3), (5.0, 1))
    ]
    found = aggregate(build_method("fedph", {"aggregation": aggregation}), payloads)
    assert (found["labels"].tolist(), found["holders"].tolist()) == ([2], [2])
    assert found["prototypes"].tolist() == [[expected]]


def test_the_defaults_are_the_papers_and_where_it_is_silent_its_code_s() -> None:
    method = FedPh()
    assert (method.learning_rate, method.momentum, method.weight_decay, method.batch_size) == (0.001, 0.5, 1e-4, 32)
    assert (method.contrast_weight, method.temperature, method.local_epochs) == (1.0, 1.0, 1)
    assert (method.aggregation, method.noise) == ("holders", "none")


def a_round(number: int = 1) -> Round:
    return Round(number, None, clients=3)


def client_with(root: bytes) -> Client:
    client = new_client()
    client.open_secrets = lambda: Secrets(0, root)
    return client


def posted_by(method: FedPh, client: Client, number: int = 1) -> np.ndarray:
    client.generator.manual_seed(7)
    return np.array(method.update(client, a_round(number))["prototypes"], dtype=np.float64)


QUIET = {"local_steps": 1, "local_epochs": 0, "learning_rate": 1e-30}


def test_local_noise_is_in_units_of_one_example_and_comes_from_private_randomness() -> None:
    plain, noised = FedPh(**QUIET), FedPh(**QUIET, noise="local", noise_multiplier=2.0)  # type: ignore[arg-type]
    clean = posted_by(plain, client_with(b""))
    noise = posted_by(noised, client_with(bytes(ROOT_SIZE))) - clean
    again = posted_by(noised, client_with(bytes(ROOT_SIZE))) - clean
    other = posted_by(noised, client_with(b"\1" * ROOT_SIZE)) - clean
    next_round = posted_by(noised, client_with(bytes(ROOT_SIZE)), 2) - clean
    assert (noise == again).all()
    for different in (other, next_round):
        assert abs(np.corrcoef(noise.ravel(), different.ravel())[0, 1]) < 0.5
    std = noised.noise_std(4)  # 12 examples of 3 classes
    assert std == pytest.approx(2 / 4 * 2.0)
    assert 0.7 * std < noise.std() < 1.3 * std
    with pytest.raises(SecretMissing, match="member 0 has no root of private randomness"):
        posted_by(noised, client_with(b""))


def test_noise_is_written_down_and_called_an_epsilon_with_dp_sgd_alone() -> None:
    noised = FedPh(**QUIET, noise="local", noise_multiplier=2.0)  # type: ignore[arg-type]
    client = client_with(bytes(ROOT_SIZE))
    posted_by(noised, client)
    assert [entry.release for entry in client.ledger.entries()] == [Release("prototypes, local", 4.0, 2.0)]
    assert (noised.adds_noise, noised.states_epsilon) == (True, False)
    private = replace(noised, gradient_noise=3.0)
    assert (private.adds_noise, private.states_epsilon) == (True, True)
    client = client_with(bytes(ROOT_SIZE))
    posted_by(private, client)
    both = [Release("gradients", 3.0, 2.0, 1, Sampling.SHUFFLED), Release("prototypes, local", 4.0, 2.0)]
    assert [entry.release for entry in client.ledger.entries()] == both
    assert not FedPh().adds_noise


def test_an_embedding_that_is_too_large_under_a_model_keeps_nobody_from_posting() -> None:
    client = new_client()
    client.train_images[5] = 3e38
    client.open_secrets = lambda: Secrets(0, bytes(ROOT_SIZE))
    method = FedPh(noise="local", gradient_noise=1.0, local_epochs=0, local_steps=1)
    assert np.isfinite(method.update(client, Round(1, None))["prototypes"]).all()
    assert len(client.ledger.entries()) == 2


def test_a_budget_that_is_spent_is_known_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = {"noise": "local", "noise_multiplier": 4.0, "gradient_noise": 8.0, "epsilon_budget": 1.8}
    noised = FedPh(**QUIET, **noise)  # type: ignore[arg-type]
    client = client_with(bytes(ROOT_SIZE))
    first = posted_by(noised, client)
    assert (posted_by(noised, client) == first).all(), "the same post of the same phase is paid for"
    monkeypatch.setattr(FedPh, "train", lambda *_, **__: pytest.fail("it trains for nothing"))
    with pytest.raises(
        ReleaseRefused, match=r"member 0, round 2: its total epsilon would be 1\.9\d+, the budget is 1\.8 "
    ):
        posted_by(noised, client, 2)
    assert len(client.ledger.entries()) == 2, "gradients and prototypes of round 1"


def test_split_noise_is_the_whole_over_the_root_of_one_less_than_the_honest() -> None:
    settings: dict[str, HyperparameterValue] = {
        "noise": "split",
        "encryption": "threshold",
        "decryption_threshold": 3,
        "class_examples_min": 8,
    }
    split = build_method("fedph", {**settings, "contributors_min": 5})
    assert isinstance(split, FedPh)
    assert split.sums.honest_min == 3, "as the paper has it: 5 members, of whom 3 open a sum"
    whole = replace(split, noise="local")
    assert split.noise_std(8) == pytest.approx(whole.noise_std(8) / math.sqrt(2))
    assert split.noise_std(80) == split.noise_std(8), "as of the smallest class: it hides a client that has no more"
    assert whole.noise_std(80) == pytest.approx(whole.noise_std(8) / 10), "a post has no noise but its own"
    assert FedPh().noise_std(8) == 0.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"noise": "split"}, "noise split needs encryption threshold"),
        ({"noise": "local", "noise_multiplier": 0.0}, "noise_multiplier must lie in"),
        ({"noise": "local", "epsilon_budget": 2.0}, "epsilon_budget bounds nothing: noise on prototypes alone has no"),
        ({"gradient_noise": 1.0}, "gradient_noise alone hides nothing here"),
        (
            {"noise": "local", "encryption": "threshold", "noise_multiplier": 30.0},
            "magnitude_max is 16.0, noise for classes of 1",
        ),
        ({"temperature": 0.0}, "temperature must lie in"),
        ({"class_examples_min": 0}, "class_examples_min must lie in"),
    ],
)
def test_settings_that_protect_nothing_are_refused(settings: dict[str, float | str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        build_method("fedph", settings)


def test_small_classes_are_not_posted_and_who_has_no_other_posts_nothing() -> None:
    method = FedPh(**QUIET, class_examples_min=5)  # type: ignore[arg-type]
    client = new_client()
    client.train_labels = torch.tensor([0] * 5 + [1] * 4 + [2] * 3)
    assert method.update(client, a_round())["labels"].tolist() == [0]
    client.train_labels = torch.tensor([0] * 4 + [1] * 4 + [2] * 4)
    with pytest.raises(NothingToPost, match="member 0, round 1: no class has 5 examples, the largest has 4"):
        method.update(client, a_round())


def test_heads_of_two_and_three_layers_learn_together() -> None:
    mixed = replace(config("fedph", learning_rate=0.1), model="frozen-2+frozen-3")
    federation = Federation(mixed, Learner(mixed))
    made = federation.play(3)
    assert {len(federation.client(client).info.parameters) for client in range(3)} == {4, 6}
    assert all(one.trained.local_accuracy > 0.5 for one in made)


def test_the_term_beside_cross_entropy_is_the_contrast_with_its_weight() -> None:
    known = {"labels": np.array([0, 1]), "prototypes": np.eye(2, 32, dtype=np.float32)}
    method = FedPh(contrast_weight=0.25, temperature=0.5)
    weight, value = method.auxiliary(new_client(), Round(2, known))(torch.eye(2, 32), torch.tensor([0, 1]))
    assert weight == 0.25
    assert float(value) == pytest.approx(math.log(1 + math.exp(-2)), rel=1e-6)


def test_an_encrypted_number_has_room_for_a_unit_vector_and_its_noise() -> None:
    """Nine deviations of 2 are 18; a number of a unit vector may be 1 away from 0."""
    settings: dict[str, HyperparameterValue] = {"noise": "local", "noise_multiplier": 1.0, "encryption": "threshold"}
    build_method("fedph", {**settings, "magnitude_max": 19.0})
    with pytest.raises(ConfigurationError, match=r"magnitude_max is 18\.5, .* needs 19\.0"):
        build_method("fedph", {**settings, "magnitude_max": 18.5})
