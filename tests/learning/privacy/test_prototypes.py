"""Prototypes with noise: clipped before they are averaged, of enough examples, charged before they are posted."""

from functools import partial

import numpy as np
import pytest
import torch

from fedchain.learning.client import Client
from fedchain.learning.exceptions import ConfigurationError, ReleaseRefused
from fedchain.learning.methods.dfpl import Dfpl
from fedchain.learning.privacy.ledger import Budget, Memory, PrivacyLedger
from fedchain.learning.privacy.prototypes import PrototypeNoise, noised_class_means
from fedchain.learning.privacy.releases import Release, rounds_within, total_epsilon
from fedchain.learning.registry import HyperparameterValue
from fedchain.learning.sums.secrets import Secrets
from fedchain.learning.worker.learner import Learner
from fedchain.learning.worker.stores import Stores
from tests.support.learning.federation import Federation, config, new_client, read_payload, secrets_of

NOISE = PrototypeNoise(multiplier=3.0, clip=2.0, examples_min=1, budget=Budget(0.0, 1e-5), phase="update")


def client_with(root: bytes = b"\1" * 32, member: int = 0) -> Client:
    client = new_client()
    client.open_secrets = lambda: Secrets(member, root)
    client.open_ledger = partial(PrivacyLedger, member, Memory())
    return client


def test_means_are_of_clipped_embeddings_and_their_noise_is_in_units_of_one_example() -> None:
    draw = torch.Generator().manual_seed(0)
    embeddings, labels = 5 * torch.randn(200, 400, generator=draw), torch.arange(200) % 2 * 2
    labels[:80] = 2  # so that the classes differ in size
    client = client_with()
    made = noised_class_means(client, 1, embeddings, labels, NOISE)
    clipped = embeddings.double() * (2.0 / torch.linalg.vector_norm(embeddings.double(), dim=1, keepdim=True))
    assert made.labels.tolist() == [0, 2]
    for label, count, prototype in zip(made.labels, made.counts, made.prototypes, strict=True):
        assert int(count) == int((labels == label).sum())
        noise = prototype.double() - clipped[labels == label].mean(dim=0)
        assert float(noise.std()) == pytest.approx(3.0 * 2 * 2.0 / int(count), rel=0.15)
    assert [entry.release for entry in client.ledger.entries()] == [Release("prototypes", 12.0, 4.0)]


def test_one_example_cannot_move_a_mean_further_than_is_charged_for() -> None:
    quiet = PrototypeNoise(multiplier=1e-9, clip=2.0, examples_min=1, budget=NOISE.budget, phase="update")
    embeddings, labels = torch.zeros(10, 3), torch.zeros(10, dtype=torch.int64)
    embeddings[:, 0] = 1e3
    moved = embeddings.clone()
    moved[0, 0] = -1e3
    means = [noised_class_means(client_with(), 1, rows, labels, quiet).prototypes for rows in (embeddings, moved)]
    assert float((means[0] - means[1]).norm()) == pytest.approx(2 * 2.0 / 10, rel=1e-5)


def test_small_classes_are_left_out_and_a_member_with_nothing_else_is_named() -> None:
    embeddings, labels = torch.ones(12, 4), torch.tensor([0] * 7 + [1] * 3 + [2] * 2)
    few = PrototypeNoise(multiplier=3.0, clip=2.0, examples_min=3, budget=NOISE.budget, phase="update")
    assert noised_class_means(client_with(), 1, embeddings, labels, few).labels.tolist() == [0, 1]
    many = PrototypeNoise(multiplier=3.0, clip=2.0, examples_min=8, budget=NOISE.budget, phase="update")
    client = client_with()
    message = "member 0, round 5: its largest class has 7 examples, prototypes are posted of 8 or more"
    with pytest.raises(ReleaseRefused, match=message):
        noised_class_means(client, 5, embeddings, labels, many)
    assert client.ledger.entries() == ()


def test_a_ledger_says_of_equal_values_of_two_members_nothing_that_is_equal() -> None:
    """A reader could otherwise try out values."""
    embeddings, labels, said = torch.ones(12, 4), torch.arange(12) % 3, set[str]()
    for root in (b"\1" * 32, b"\2" * 32):
        client = client_with(root)
        noised_class_means(client, 1, embeddings, labels, NOISE)
        said |= {entry.identity for entry in client.ledger.entries()}
    assert len(said) == 2


def test_the_same_prototypes_again_are_the_same_bytes_and_cost_nothing() -> None:
    client = client_with()
    embeddings, labels = torch.ones(12, 4), torch.arange(12) % 3
    made = [noised_class_means(client, 1, embeddings, labels, NOISE).prototypes for _ in range(2)]
    assert torch.equal(*made)
    assert len(client.ledger.entries()) == 1
    other = noised_class_means(client, 1, embeddings * 0.99, labels, NOISE).prototypes  # other values, other noise
    assert float((other - made[0]).norm()) > 1.0
    assert len(client.ledger.entries()) == 2


@pytest.mark.parametrize("gradient_noise", [0.0, 8.0])
@pytest.mark.parametrize("method", ["dfpl", "fedproto"])
def test_a_federation_learns_from_noised_prototypes_and_states_an_epsilon_of_the_whole_alone(
    method: str, gradient_noise: float
) -> None:
    noise: dict[str, HyperparameterValue] = {
        "gradient_noise": gradient_noise,
        "prototype_noise": 4.0,
        "prototype_source": "recompute",
        "prototype_clip": 5.0,
    }
    noised, plain = Federation(config(method, **noise)), Federation(config(method, prototype_source="recompute"))
    made, before = noised.play(2), plain.play(2)
    passes = Release("gradients", gradient_noise, 2.0, 2) if gradient_noise else None  # one, or a part of one, a round
    spent = None if passes is None else total_epsilon([Release("prototypes", 4.0, 1.0, 2), passes], 1e-5)
    assert [one.epsilon for one in made[-3:]] == [spent if spent is None else pytest.approx(spent)] * 3
    assert before[0].epsilon is None
    posted = [read_payload(federation.rules, one[0].payload) for federation, one in ((noised, made), (plain, before))]
    assert posted[0]["labels"].tolist() == posted[1]["labels"].tolist()
    assert not np.isclose(posted[0]["prototypes"], posted[1]["prototypes"]).any()
    again = Federation(config(method, **noise))
    again.play(2)
    assert again.knowledge == noised.knowledge


@pytest.mark.parametrize("method", ["dfpl", "fedproto"])
def test_a_budget_that_is_spent_is_known_before_training(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    noise: dict[str, HyperparameterValue] = {"prototype_noise": 4.0, "gradient_noise": 8.0}
    both = [Release("gradients", 8.0, 2.0), Release("prototypes", 8.0, 2.0)]
    budget = total_epsilon([*both, both[0]], 1e-5)  # the second round's gradients would still fit
    learner = Learner(
        config(method, epsilon_budget=budget, prototype_source="recompute", **noise), stores=Stores(secrets_of)
    )
    learner.contribute(0, "update", 1, b"")
    monkeypatch.setattr(Dfpl, "train", lambda *_, **__: pytest.fail("it trains for nothing"))
    with pytest.raises(ReleaseRefused, match=r"member 0, round 2: its total epsilon would be .*, the budget is "):
        learner.contribute(0, "update", 2, b"")


def test_how_long_a_budget_lasts_is_reckoned_with_prototypes_too() -> None:
    noise = Dfpl(gradient_noise=8.0, prototype_noise=4.0, local_epochs=1, epsilon_budget=2.0)
    passes, prototypes = noise.round_releases()
    assert (passes.mechanism, prototypes) == ("gradients", noise.prototype_release())
    lasting = rounds_within([passes, prototypes], 2.0, noise.privacy_delta, 1000)
    assert lasting < rounds_within([passes], 2.0, noise.privacy_delta, 1000)
    (caution,) = noise.cautions(1000)
    assert f"lasts for {lasting} of 1000 rounds" in caution


def test_together_with_dp_sgd_both_are_charged() -> None:
    both: dict[str, HyperparameterValue] = {"prototype_noise": 4.0, "gradient_noise": 8.0}
    disk = Memory()
    learner = Learner(config("dfpl", **both), stores=Stores(secrets_of, lambda index: PrivacyLedger(index, disk)))
    learner.contribute(0, "update", 1, b"")
    assert [entry.release.mechanism for entry in PrivacyLedger(0, disk).entries()] == ["gradients", "prototypes"]


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        ("fedproto", {"prototype_noise": 1.0}, "prototype_noise needs prototype_source recompute"),
        ("dfpl", {"gradient_noise": 1.0}, "gradient_noise alone hides nothing here"),
        ("dfpl", {"gradient_noise": 1.0, "epsilon_budget": 2.0}, "gradient_noise alone hides nothing here"),
        (
            "dfpl",
            {"gradient_noise": 1.0, "prototype_noise": 1.0, "batch_sampling": "poisson"},
            "batch_sampling poisson counts other neighbours",
        ),
        ("dfpl", {"prototype_clip": 0.0}, "prototype_clip must lie in"),
        ("dfpl", {"examples_min": 0}, "examples_min must lie in"),
        ("dfpl", {"epsilon_budget": 2.0}, "epsilon_budget bounds nothing: the method adds no noise"),
        ("dfpl", {"epsilon_budget": 2.0, "prototype_noise": 1.0}, "epsilon_budget bounds nothing: noise on prototypes"),
    ],
)
def test_settings_that_cannot_be_are_refused(
    method: str, settings: dict[str, HyperparameterValue], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        config(method, **settings).validate()
