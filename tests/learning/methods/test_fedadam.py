"""FedAdam against its formulas."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedchain.learning.aggregation.robust import RobustRule, RuleName
from fedchain.learning.methods.fedadam import FedAdam
from fedchain.learning.methods.fedavg import INITIAL_MODEL
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.payload.codec import settle
from fedchain.learning.payload.lazy import LazyTensors
from fedchain.learning.round import Round, Tensors
from tests.support.learning.federation import aggregate, examples, model_of, posts

FIRST = Round(1, None, clients=3)


def test_fedadam_takes_adams_step_against_the_mean_change() -> None:
    method = FedAdam(server_learning_rate=0.1, beta1=0.9, beta2=0.99, tau=0.001)
    known: Tensors = model_of([1.0, -2.0])
    w, m, v = np.array([1.0, -2.0]), np.zeros(2), np.zeros(2)
    for number in (1, 2, 3):
        payloads = [model_of(w + 0.5) | examples(1), model_of(w - [0.1, 0.2]) | examples(3)]
        known = aggregate(method, payloads, known, number)
        delta = w - (0.25 * (w + 0.5) + 0.75 * (w - [0.1, 0.2]))
        m, v = 0.9 * m + 0.1 * delta, 0.99 * v + 0.01 * delta**2
        w = w - 0.1 * m / (np.sqrt(v) + 0.001)
        np.testing.assert_allclose(known["model.w"], w, rtol=1e-5)
        np.testing.assert_allclose(known["first_moment.w"], m, rtol=1e-4, atol=1e-7)
        np.testing.assert_allclose(known["second_moment.w"], v, rtol=1e-4, atol=1e-7)


def test_fedadam_averages_buffers() -> None:
    payloads = [model_of([1.0]) | examples(1) | {"buffer.mean": np.array([v], np.float32)} for v in (2.0, 4.0)]
    found = aggregate(FedAdam(), payloads, model_of([1.0]) | {"buffer.mean": np.array([0.0], np.float32)})
    assert found["buffer.mean"].tolist() == [3.0]
    assert "first_moment.mean" not in found


def test_fedadam_keeps_the_model_on_which_all_agree() -> None:
    same = model_of(np.random.default_rng(0).normal(size=9))
    found = aggregate(FedAdam(), [same | examples(3)] * 4, same)
    assert found["model.w"].tobytes() == same["model.w"].tobytes()


def test_fedadams_moments_start_at_zero_after_the_setup() -> None:
    initial = FedAdam().aggregate(INITIAL_MODEL, Round(0, None, posts([model_of([1.0]), model_of([1.0])])))
    assert initial.keys() == {"model.w"}
    found = aggregate(FedAdam(), [model_of([2.0]) | examples(1)], initial)
    assert found["first_moment.w"][0] == pytest.approx(0.1 * (1 - 2))


def test_a_robust_rule_makes_the_first_common_model_too() -> None:
    """Else one liar would place it, and all steps begin there."""
    posted = posts([model_of([value]) for value in (1.0, 1.0, 1e6)])
    found = FedAdam(aggregation_rule="median").aggregate(INITIAL_MODEL, Round(0, None, posted))
    assert found["model.w"].tolist() == [1.0]


@pytest.mark.parametrize("rule", ["median", "clipping"])
def test_a_robust_rule_combines_each_tensor_once(rule: RuleName, monkeypatch: pytest.MonkeyPatch) -> None:
    combined, combine = list[str](), RobustRule.combine

    def counted(self: RobustRule, posted: Sequence[Tensors], before: Tensors | None = None) -> LazyTensors:
        found = combine(self, posted, before)

        def compute(name: str) -> NDArray[Any]:
            combined.append(name)
            return found[name]

        return LazyTensors({name: partial(compute, name) for name in found})

    monkeypatch.setattr(RobustRule, "combine", counted)
    method, known = FedAdam(aggregation_rule=rule), model_of([1.0, -2.0]) | {"model.b": np.ones(3, np.float32)}
    payloads = [{name: value + np.float32(number) for name, value in known.items()} for number in range(3)]
    found = aggregate(method, [payload | examples(1) for payload in payloads], known, 2)
    assert sorted(found) == [f"{kind}.{name}" for kind in ("first_moment", "model", "second_moment") for name in "bw"]
    for name in (*found, *found):
        assert found[name].shape == known[f"model.{name[-1]}"].shape
    assert combined == ["model.w", "model.b"]


def test_without_a_first_model_the_mean_is_the_model_and_both_moments_are_zero() -> None:
    found = aggregate(FedAdam(), [model_of([2.0]) | examples(1), model_of([6.0]) | examples(3)])
    assert found["model.w"].tolist() == [5.0]
    assert (found["first_moment.w"].tolist(), found["second_moment.w"].tolist()) == ([0.0], [0.0])


def test_the_largest_change_of_a_round_has_room_in_both_moments() -> None:
    method = FedAdam(beta1=0.0, beta2=0.0)
    info = ModelInfo((("w", (1,)),), 1, 2, trainable=frozenset({"w"}), normalization=frozenset())
    found = aggregate(method, [model_of([-1e6]) | examples(1)], model_of([1e6]), 2)
    settled = settle(found, method.knowledge_spec(method.phases[-1], info))
    assert settled["first_moment.w"].tolist() == [2e6]
    assert settled["second_moment.w"].tolist() == [np.float32(4e12)]
