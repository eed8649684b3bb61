"""FedICT, FedGKT and FedDKC against their equations, and against what FedICT's published code calculates."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedchain.learning.exceptions import ConfigurationError, InvalidPayload
from fedchain.learning.families.distillation import Given
from fedchain.learning.families.distillation_parts import LABELS as LABELS_PHASE
from fedchain.learning.methods.feddkc import FedDkc
from fedchain.learning.methods.fedgkt import FedGkt
from fedchain.learning.methods.fedict import FedIct, Stated
from fedchain.learning.models.registry import describe_model
from fedchain.learning.payload.bulk import EVERYBODY, PartRef, manifest
from fedchain.learning.payload.codec import decode, encode
from fedchain.learning.registry import HyperparameterValue
from fedchain.learning.round import ReadPost, Round
from tests.support.learning.divergence import LOGITS, THEIRS, softmax, weighted_kl
from tests.support.learning.federation import CLIENTS, Federation, config, new_client

LABELS = np.array([0, 1, 2, 3, 3, 1])
OWN, COMMON = np.array([0.6, 0.2, 0.1, 0.1]), np.array([0.1, 0.4, 0.3, 0.2])
GIVEN = Given(torch.from_numpy(THEIRS), torch.from_numpy(OWN), torch.from_numpy(COMMON))
CROSS_ENTROPY = float(-np.log(softmax(LOGITS))[range(6), LABELS].mean())


def client(method: FedGkt) -> float:
    return float(method.client_objective(torch.from_numpy(LOGITS), torch.from_numpy(LABELS), GIVEN))


def server(method: FedGkt) -> float:
    return float(method.server_objective(torch.from_numpy(LOGITS), torch.from_numpy(LABELS), GIVEN))


def test_a_clients_distribution_is_how_many_of_its_examples_each_class_has() -> None:
    """In the small task every class has as many: which classes there are would say the same."""
    own = new_client(examples=4)
    own.train_labels = torch.tensor([2, 0, 2, 2])
    given = FedIct().given_to_client(own, Round(1, None), torch.zeros(4, 10))(torch.tensor([0]))
    assert given.own is not None
    assert given.own.tolist() == [0.25, 0, 0.75, 0, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_fedict_s_clients_learn_more_of_frequent_classes(scale: float) -> None:
    method = FedIct(temperature=1.0, prior_weight=0.9, prior_temperature=0.5, weight_scale=scale)
    w = np.exp(OWN / 0.5) / np.exp(OWN / 0.5).sum()  # Eq. 11
    expected = CROSS_ENTROPY + 1.5 * weighted_kl(1.0, 1.0) + 0.9 * weighted_kl(scale * w, 1.0)  # Eqs. 8 and 10
    assert client(method) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_fedict_s_aggregator_balances_classes(scale: float) -> None:
    method = FedIct(temperature=3.0, adjustment_weight=0.8, residual_temperature=0.5, weight_scale=scale)
    v = np.exp((COMMON - OWN) / 0.5) / np.exp((COMMON - OWN) / 0.5).sum()  # Eq. 14
    expected = CROSS_ENTROPY + 1.5 * weighted_kl(1.0, 3.0) + 0.8 * weighted_kl(scale * v, 3.0)  # Eqs. 9 and 13
    assert server(method) == pytest.approx(expected, rel=1e-12)


def test_fedict_s_aggregator_listens_to_clients_like_all() -> None:
    method = FedIct(temperature=3.0, adjustment="sim", adjustment_weight=0.8)
    cosine = (COMMON @ OWN) / np.sqrt((COMMON @ COMMON) * (OWN @ OWN))
    expected = CROSS_ENTROPY + 1.5 * weighted_kl(1.0, 3.0) + 0.8 * cosine * weighted_kl(1.0, 3.0)  # Eqs. 9 and 12
    assert server(method) == pytest.approx(expected, rel=1e-12)


def test_without_its_terms_fedict_is_fedgkt() -> None:
    method = FedIct(prior_weight=0.0, adjustment="none")
    assert client(method) == pytest.approx(client(FedGkt()), rel=1e-12)
    assert server(method) == pytest.approx(server(FedGkt()), rel=1e-12)
    ours = Federation(config("fedict", prior_weight=0.0, adjustment="none", initial_logits="none"))
    base = Federation(config("fedgkt"))
    ours.play(2)
    base.play(2)
    for place in range(CLIENTS):
        left, right = (federation.client(place).model.state_dict() for federation in (ours, base))
        assert all(torch.allclose(left[name], right[name], rtol=1e-4, atol=1e-6) for name in left)


def released(weights: Any) -> float:
    """As its utils have it: a weighted divergence of what is softened, and a plain one of what is softened twice."""
    teacher, student = softmax(THEIRS / 3) + 1e-7, np.log(softmax(LOGITS / 3))
    twice, again = softmax(teacher / 3) + 1e-7, np.log(softmax(student / 3))
    weighted = 9 * (weights * teacher * (np.log(teacher) - student)).sum() / 6
    return float(weighted + 9 * (twice * (np.log(twice) - again)).sum() / 6)


def test_the_released_code_has_linear_weights_and_exchanges_the_aggregator_s() -> None:
    balance, sim = (FedIct(compat="released-code", adjustment=kind) for kind in ("balance", "sim"))
    assert client(balance) == pytest.approx(CROSS_ENTROPY + 1.5 * released(OWN / 3), rel=1e-12)
    assert server(balance) == pytest.approx(released((COMMON - OWN) / 7) + 1.5 * CROSS_ENTROPY, rel=1e-12)
    cosine = (COMMON @ OWN) / np.sqrt((COMMON @ COMMON) * (OWN @ OWN))
    assert server(sim) == pytest.approx(released(cosine) + 1.5 * CROSS_ENTROPY, rel=1e-12)


@pytest.mark.parametrize(
    ("method", "message"),
    [(FedDkc(peak=0.12), "peak must be above 1/5, not 0.12"), (FedDkc(refinement="skr"), "entropy_bits must be below")],
)
def test_what_so_many_classes_cannot_have_is_refused(method: FedDkc, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        method.validate_model(describe_model("split-mlp-1", classes=5))
    method.validate_model(describe_model("split-mlp-1", classes=10))


def test_distributions_are_stated_once_and_averaged_by_examples() -> None:
    federation = Federation(config("fedict"))
    left = federation.learner._contributing.round(federation.client(0), 1, federation.knowledge).beside["labels"]
    histogram = federation.learner.histogram()  # (K, C)
    assert left["clients"].tolist() == [0, 1, 2]
    np.testing.assert_allclose(left["distributions"], histogram / histogram.sum(axis=1, keepdims=True), rtol=1e-6)
    assert left["examples"].tolist() == histogram.sum(axis=1).tolist()
    method = federation.learner.method
    assert isinstance(method, FedIct)
    round = federation.learner._contributing.round(federation.client(0), 1, federation.knowledge)
    labels = federation.client(1).train_labels
    unheard = replace(round, beside={"labels": {name: left[name][[0, 2]] for name in left}})
    for beside in (round, unheard):  # for a client not heard, both are counted from its labels
        given = method.given_to_server(1, labels, beside)
        assert given.own is not None
        assert given.common is not None
        np.testing.assert_allclose(given.common.numpy(), histogram.sum(axis=0) / histogram.sum(), rtol=1e-5)
        np.testing.assert_allclose(given.own.numpy(), histogram[1] / histogram[1].sum(), rtol=1e-5)
    stated = {**left, "examples": np.array([10, 20, 70])}
    common = method.given_to_server(1, labels, replace(round, beside={"labels": stated})).common
    assert common is not None
    weighted = np.array([0.1, 0.2, 0.7]) @ left["distributions"].astype(np.float64)  # Algorithm 2, line 8
    np.testing.assert_allclose(common.numpy(), weighted, rtol=1e-6)
    alone = method.given_to_server(1, labels, replace(round, beside={}))
    assert alone.own is not None
    assert alone.common is not None
    np.testing.assert_allclose(alone.common.numpy(), alone.own.numpy(), rtol=1e-6)


@pytest.mark.parametrize("kind", ["uniform", "normal", "exponential"])
def test_random_distributions_sum_to_one_and_stay(kind: Any) -> None:
    method, own = FedIct(distribution=kind), new_client(40, "split-mlp-1", classes=4)
    first = method._distribution_of(own)
    assert float(first.sum()) == pytest.approx(1.0)
    assert (first > 0).all()
    assert torch.equal(method._distribution_of(own), first)
    assert own.state(Stated).distribution is first
    counted = FedIct()._distribution_of(new_client(40, "split-mlp-1", classes=4))
    assert counted.tolist() == [0.25] * 4 + [0.0] * 6
    assert not torch.allclose(first, counted)


@pytest.mark.parametrize(("kind", "deviation"), [("uniform", 3 / 12**0.5), ("normal", 3.0), ("exponential", 3.0)])
def test_random_distributions_are_softened_numbers_of_table_viii_s_spread(kind: Any, deviation: float) -> None:
    own, drawn = new_client(40, "split-mlp-1", classes=4), list[torch.Tensor]()
    for seed in range(400):
        own.generator.manual_seed(seed)
        own.state(Stated).distribution = None
        drawn.append(FedIct(distribution=kind)._distribution_of(own).double().log())
    assert float(torch.stack(drawn).std(dim=1).square().mean().sqrt()) == pytest.approx(deviation, rel=0.1)


def test_a_distribution_is_that_of_the_member_s_place_where_another_missed_the_setup() -> None:
    method = FedIct()
    members = (b"a", b"b", b"c")
    stated = dict(manifest((PartRef(bytes(32), 1, "labels", EVERYBODY),), {"labels": ()}))
    posted = [
        ReadPost(sender, stated | {"distribution": np.full(4, share, np.float32), "examples": np.array([count])})
        for sender, share, count in ((b"a", 0.1, 5), (b"c", 0.3, 7))
    ]
    found = method.aggregate(LABELS_PHASE, Round(0, None, tuple(posted), members=members))
    assert (found["clients"].tolist(), found["examples"].tolist()) == ([0, 2], [5, 7])


def test_a_share_of_a_class_is_no_negative_number() -> None:
    """d^S is a mean of what members state: one that took away what others have would steer all."""
    method, info = FedIct(), describe_model("split-mlp-1", classes=4)
    specs = method.payload_spec(LABELS_PHASE, info)
    for share, is_taken in ((0.25, True), (-0.25, False), (1.5, False)):
        post = encode({"distribution": np.full(4, share, np.float32), "examples": np.array([5])})
        if is_taken:
            decode(post, specs)
            continue
        with pytest.raises(InvalidPayload, match="distribution"):
            decode(post, specs)


def test_zeros_teach_until_the_aggregator_has_answered() -> None:
    """A uniform teacher keeps the first round's logits small; the published code has none."""
    sizes = []
    settings: list[dict[str, HyperparameterValue]] = [{}, {"initial_logits": "none"}, {"compat": "released-code"}]
    for changes in settings:
        federation = Federation(config("fedict", learning_rate=0.05, **changes))
        federation.play()
        own = federation.client(0)
        with torch.no_grad():
            sizes.append(float(own.model.eval()(own.train_images)[1].std()))
    assert sizes[0] < sizes[1]
    assert sizes[2] == pytest.approx(sizes[1], rel=1e-5)


def test_the_released_code_answers_before_it_learns_and_matches_by_position() -> None:
    method = FedIct(compat="released-code")
    assert method.answers_while_training
    own, logits = new_client(10, "split-mlp-1"), torch.arange(20.0).reshape(10, 2)
    choose = method.given_to_client(own, None, logits)  # type: ignore[arg-type]
    rows = [choose(torch.tensor(batch)).logits[:, 0].tolist() for batch in ([9, 3, 5, 0], [1, 2, 4, 6], [7, 0, 1, 2])]
    assert rows == [[0, 2, 4, 6], [8, 10, 12, 14], [0, 2, 4, 6]], "whatever the batch is; a new pass begins anew"
    choose = method.given_to_client(own, None, logits[:8])  # type: ignore[arg-type]
    rows = [choose(torch.arange(4)).logits[:, 0].tolist() for _ in range(3)]
    assert rows == [[0, 2, 4, 6], [8, 10, 12, 14], [0, 2, 4, 6]], "a pass may end with its last row"
    right = FedIct().given_to_client(own, None, logits)  # type: ignore[arg-type]
    assert right(torch.tensor([9, 3])).logits[:, 0].tolist() == [18, 6]
    ours, theirs = Federation(config("fedict")), Federation(config("fedict", compat="released-code"))
    ours.play(3)
    theirs.play(3)
    assert ours.knowledge != theirs.knowledge
