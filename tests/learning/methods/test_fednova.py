"""FedNova against its formulas."""

from typing import Any

import numpy as np
import pytest

from fedchain.learning.exceptions import ConfigurationError, InvalidPayload
from fedchain.learning.methods.fedavg import FedAvg
from fedchain.learning.methods.fednova import FedNova
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.models.vectors import read_vector
from fedchain.learning.payload.codec import decode, encode
from fedchain.learning.registry import build_method
from fedchain.learning.round import Round
from tests.support.learning.federation import Federation, aggregate, common_model, config, examples, model_of, vector_of

FIRST = Round(1, None, clients=3)


def nova_post(values: Any, count: int, steps: int, norm: float) -> dict[str, Any]:
    extra = {"steps": np.array([steps]), "normalizer": np.array([norm], np.float32)}
    return model_of(values) | examples(count) | extra


def test_fednova_normalises_each_clients_change() -> None:
    before = model_of([1.0, 2.0])
    payloads = [nova_post([3.0, 2.0], 1, 2, 2.0), nova_post([1.0, -6.0], 3, 8, 8.0)]
    found = aggregate(FedNova(), payloads, before)["model.w"]
    effective = 0.25 * 2 + 0.75 * 8  # tau_eff = 6.5
    expected = np.array([1.0, 2.0]) - effective * (0.25 * np.array([-2.0, 0.0]) / 2 + 0.75 * np.array([0.0, 8.0]) / 8)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_fednova_with_a_proximal_term_counts_steps() -> None:
    payloads = [nova_post([3.0], 1, 2, 1.9), nova_post([1.0], 1, 4, 3.4)]
    found = aggregate(FedNova(proximal_weight=1.0), payloads, model_of([1.0]))["model.w"]
    np.testing.assert_allclose(found, [1.0 - 3.0 * 0.5 * (-2.0 / 1.9)], rtol=1e-6)


def test_fednova_averages_buffers() -> None:
    """A normalised step would leave running variances below zero."""
    payloads = [
        nova_post([1.0], count, steps, steps) | {"buffer.mean": np.array([value], np.float32)}
        for value, count, steps in ((2.0, 1, 2), (6.0, 3, 8))
    ]
    found = aggregate(FedNova(), payloads, model_of([1.0]) | {"buffer.mean": np.array([0.0], np.float32)})
    assert found["buffer.mean"].tolist() == [5.0]


def test_fednova_knows_no_norm_for_momentum_and_a_proximal_term_together() -> None:
    with pytest.raises(ConfigurationError, match="for both together"):
        FedNova(proximal_weight=0.1, momentum=0.9)


@pytest.mark.parametrize("norm", [1.0, 20.0, 147.25])
def test_fednova_with_equal_norms_is_fedavg_to_the_bit(norm: float) -> None:
    rng = np.random.default_rng(0)
    models, counts = rng.normal(size=(7, 50)).astype(np.float32), rng.integers(1, 1 << 24, size=7)
    payloads = [nova_post(values, int(count), 20, norm) for values, count in zip(models, counts, strict=True)]
    found = aggregate(FedNova(), payloads, model_of(rng.normal(size=50)))
    assert found["model.w"].tobytes() == aggregate(FedAvg(), payloads)["model.w"].tobytes()


def test_fednova_plays_as_fedavg_where_all_clients_take_as_many_steps() -> None:
    nova, fedavg = Federation(config("fednova")), Federation(config("fedavg"))
    nova.play(3)
    fedavg.play(3)
    assert common_model(nova.known()) == common_model(fedavg.known())


@pytest.mark.parametrize(("momentum", "steps"), [(0.0, 7), (0.9, 1), (0.9, 12), (0.5, 40)])
def test_fednovas_norm_with_momentum_is_the_closed_form(momentum: float, steps: int) -> None:
    expected = (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
    assert FedNova(momentum=momentum).normalizer(steps) == pytest.approx(expected, rel=1e-12)


def test_fednovas_norm_with_a_proximal_term_decays_the_older_steps() -> None:
    method = FedNova(learning_rate=0.1, proximal_weight=2.0)
    assert method.normalizer(3) == pytest.approx(1 + 0.8 + 0.8**2)


def test_fednova_without_an_initial_model_begins_as_fedavg() -> None:
    payloads = [nova_post([3.0], 1, 2, 2.0), nova_post([1.0], 3, 8, 8.0)]
    assert aggregate(FedNova(), payloads)["model.w"].tolist() == [1.5]


def test_the_setup_puts_the_initial_model_on_the_chain() -> None:
    federation = Federation(config("fednova"))
    expected = Federation(config("fedavg")).learner.client(0).model
    assert np.array_equal(vector_of(federation.known()), read_vector(expected).numpy())


def test_a_proximal_term_that_overshoots_the_common_model_is_refused() -> None:
    """Beyond 1 / eta, a gradient's factor in ||a_k||_1 would change its sign from step to step."""
    build_method("fednova", {"learning_rate": 0.1, "proximal_weight": 10.0})
    with pytest.raises(ConfigurationError, match="proximal_weight must lie in"):
        build_method("fednova", {"learning_rate": 0.1, "proximal_weight": 10.1})


@pytest.mark.parametrize("norm", [0.0, 0.5, -1.0])
def test_a_norm_below_that_of_one_step_is_refused(norm: float) -> None:
    """Knowledge divides by it: a liar's 0 would make that infinite for all, and a negative one turn all around."""
    method = FedNova()
    info = ModelInfo((("w", (1,)),), 1, 2, trainable=frozenset({"w"}), normalization=frozenset())
    specs = method.payload_spec(method.phases[-1], info)
    decode(encode(nova_post([1.0], 3, 1, 1.0)), specs)
    with pytest.raises(InvalidPayload, match="normalizer"):
        decode(encode(nova_post([1.0], 3, 1, norm)), specs)
