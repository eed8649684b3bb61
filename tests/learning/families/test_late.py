"""Late posts in aggregates: their weights, a plain loop beside the means, and the methods that refuse them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from fedchain.chain.knowledge import LatePost as ChainLatePost
from fedchain.learning.application import Application
from fedchain.learning.client import Client
from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.families.late import UNSTATED
from fedchain.learning.method import Lifetime, Method, Phase
from fedchain.learning.methods.blade_fl import BladeFl
from fedchain.learning.methods.dfpl import Dfpl
from fedchain.learning.methods.fedavg import FedAvg
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.payload.codec import encode
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.registry import METHODS, HyperparameterValue, build_method
from fedchain.learning.round import LatePost, OffChain, ReadPost, Round, Tensors
from fedchain.learning.sums.plain import Counted
from fedchain.node.founding.task import found_federation, learning_to_genesis
from tests.support.chain.builders import EASY_BITS, keys
from tests.support.learning.federation import Federation, config, examples, last_phase, model_of, posts

TAKING = {"blade-fl", "dfpl", "fedavg", "fedprox", "fedproto", "mtfl", "sgd"}

KNOWN = model_of([1.5, -2.0, 0.25])
OLD, OLDER = model_of([1.0, -1.0, 3.0]), model_of([0.5, 7.0, 2.0])
IN_TIME = [model_of([2.0, -1.5, 0.5]) | examples(10), model_of([1.0, -3.0, 0.75]) | examples(4)]
LATE = [(0, model_of([0.0, 0.5, 1.0]) | examples(7), 1, OLD), (2, model_of([5.0, 6.0, 9.0]) | examples(3), 2, OLDER)]


def late_posts(method: Method, *, of: Sequence[tuple[int, Tensors, int, Tensors]]) -> tuple[LatePost, ...]:
    """Late posts by (sender, payload, age, base), as an application reads them."""
    found = []
    for sender, payload, age, base in of:
        weight = method.late(age)
        assert weight is not None
        found.append(LatePost(post=ReadPost(bytes([sender]), payload), age=age, weight=weight, base=base))
    return tuple(found)


# --- weights


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 1.5, 3.0])
def test_the_weight_falls_with_a_power_of_the_age(exponent: float) -> None:
    method = FedAvg(late_exponent=exponent)
    for age in range(1, 17):
        assert method.late(age) == pytest.approx((1 + age) ** -exponent)


def test_a_constant_weight_is_that_of_a_post_in_time() -> None:
    assert [FedAvg(late_weighting="constant").late(age) for age in (1, 5)] == [1.0, 1.0]


@pytest.mark.parametrize(
    ("exponent", "message"),
    [(0.3, "late_exponent must be a multiple of 0.5, not 0.3"), (8.5, "late_exponent must lie in"), (-0.5, "lie in")],
)
def test_exponents_whose_powers_differ_between_machines_are_refused(exponent: float, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        FedAvg(late_exponent=exponent)


def test_documents_of_federations_that_do_not_choose_say_nothing_of_it() -> None:
    usual = learning_to_genesis(config("fedavg"))
    assert "late_" not in str(usual)
    assert "late_exponent" in str(learning_to_genesis(config("fedavg", late_exponent=1.0)))


# --- models


@pytest.mark.parametrize(
    "method",
    [FedAvg(), FedAvg(late_weighting="constant"), FedAvg(weighting="clients", late_exponent=2.0), BladeFl()],
    ids=["examples", "constant", "clients", "blade-fl"],
)
def test_a_late_model_counts_by_what_it_changed(method: FedAvg | BladeFl) -> None:
    late = late_posts(method, of=LATE)
    found = method.aggregate(last_phase(method), Round(5, KNOWN, posts(IN_TIME), late=late))
    total, weights = [0.0, 0.0, 0.0], 0.0
    for payload, age, base in [*((item, 0, KNOWN) for item in IN_TIME), *((item, age, b) for _, item, age, b in LATE)]:
        by_examples = isinstance(method, FedAvg) and method.weighting == "examples"
        weight = float(payload["examples"][0]) if by_examples else 1.0
        weight *= 1.0 if not age or method.late_weighting == "constant" else (1 + age) ** -method.late_exponent
        weights += weight
        for place in range(3):
            total[place] += weight * (float(payload["model.w"][place]) - float(base["model.w"][place]))
    expected = [float(KNOWN["model.w"][place]) + total[place] / weights for place in range(3)]
    np.testing.assert_allclose(found["model.w"], expected, rtol=1e-6)


def test_without_late_posts_the_mean_is_what_it_was_to_the_bit() -> None:
    numbers = np.random.default_rng(1)
    payloads = [model_of(numbers.normal(size=1000)) | examples(int(numbers.integers(1, 99))) for _ in range(7)]
    found = FedAvg().aggregate(last_phase(FedAvg()), Round(5, model_of(numbers.normal(size=1000)), posts(payloads)))
    total = np.zeros(1000)
    for payload in payloads:
        total += payload["model.w"].astype(np.float64) * float(payload["examples"][0])
    expected = (total / float(sum(int(payload["examples"][0]) for payload in payloads))).astype(np.float32)
    assert found["model.w"].tobytes() == expected.tobytes()


def test_a_late_model_that_changed_nothing_pulls_nobody_back() -> None:
    alone = FedAvg().aggregate(last_phase(FedAvg()), Round(5, KNOWN, posts([KNOWN | examples(5)])))
    late = late_posts(FedAvg(), of=[(1, OLDER | examples(5), 2, OLDER)])
    found = FedAvg().aggregate(last_phase(FedAvg()), Round(5, KNOWN, posts([KNOWN | examples(5)]), late=late))
    assert found["model.w"].tolist() == alone["model.w"].tolist() == KNOWN["model.w"].tolist()


def test_models_longer_than_a_block_and_scalars_are_moved_as_a_whole() -> None:
    numbers = np.random.default_rng(2)
    shape = (3, (1 << 14) // 2 + 5)
    v, b, w, late = (numbers.normal(size=shape).astype(np.float32) for _ in range(4))
    known, base = (
        dict[str, Any](**{"model.w": value, "buffer.n": np.float32(n).reshape(())}) for value, n in ((v, 3), (b, 1))
    )
    payloads = [
        {"model.w": value, "buffer.n": np.float32(n).reshape(())} | examples(count)
        for value, n, count in ((w, 4, 2), (late, 5, 6))
    ]
    method = FedAvg(late_exponent=1.0)
    found = method.aggregate(
        last_phase(method),
        Round(3, known, posts(payloads[:1]), late=late_posts(method, of=[(1, payloads[1], 1, base)])),
    )
    weight = 6 / 2
    expected = v + (2.0 * (w.astype(float) - v) + weight * (late.astype(float) - b)) / (2 + weight)
    np.testing.assert_allclose(found["model.w"], expected, rtol=1e-5, atol=1e-6)
    assert found["buffer.n"] == pytest.approx(3 + (2 * 1 + weight * 4) / (2 + weight))


# --- prototypes


def prototypes(labels: list[int], counts: list[int], rows: list[list[float]]) -> Tensors:
    return {
        "labels": np.array(labels, np.int64),
        "counts": np.array(counts, np.int64),
        "prototypes": np.array(rows, np.float32).reshape(-1, 2),
    }


@pytest.mark.parametrize("counted", ["holders", "samples", "all"])
def test_a_late_prototype_counts_with_its_weight(counted: Counted) -> None:
    method = Dfpl(aggregation=counted)
    in_time = [prototypes([0, 2], [4, 1], [[1, 2], [3, 4]]), prototypes([0], [6], [[5, 7]])]
    late: list[tuple[int, Tensors, int, Tensors]] = [
        (0, prototypes([0, 1], [2, 3], [[9, 1], [8, 8]]), 3, {}),
        (4, prototypes([1], [5], [[1, 1]]), 1, {}),
    ]
    round = Round(6, {"labels": np.array([0]), "prototypes": np.zeros((1, 2), np.float32)}, posts(in_time))
    found = method.aggregate(last_phase(method), replace(round, late=late_posts(method, of=late)))
    everybody = [(item, 1.0) for item in in_time] + [(item, (1 + age) ** -0.5) for _, item, age, _ in late]
    for place, label in enumerate(found["labels"].tolist()):
        total, weights = np.zeros(2), 0.0
        for payload, weight in everybody:
            at = [row for row, other in enumerate(payload["labels"].tolist()) if other == label]
            n = weight * (float(payload["counts"][at[0]]) if counted == "samples" and at else 1.0)
            if at:
                total += n * payload["prototypes"][at[0]]
            weights += n if at or counted == "all" else 0.0
        np.testing.assert_allclose(found["prototypes"][place], total / weights, rtol=1e-6)
    assert found["labels"].tolist() == [0, 1, 2]
    assert found["holders"].tolist() == [2, 2, 1], "a client that is counted for two rounds holds a class once"


# --- applications


def test_peers_that_recompute_get_the_same_bytes_and_an_age_has_its_weight() -> None:
    played = Federation(config("fedavg"))
    played.play(1)
    older, task = played.knowledge, config("fedavg")
    played.play(1)
    newer = played.knowledge
    post = played.learner.contribute(0, "update", 2, older).payload
    fresh = [(bytes([place]), played.learner.contribute(place, "update", 4, newer).payload) for place in (1, 2)]
    late = ChainLatePost(bytes([0]), post, 2, older)
    occasion = OffChain("update", 4, late=(late,))
    found = [Application(task).aggregate(occasion, newer, fresh) for _ in range(2)]
    assert found[0] == found[1] != Application(task).aggregate(OffChain("update", 4), newer, fresh)
    rules = Application(task)
    read = {name: rules.read_knowledge(data) for name, data in (("old", older), ("new", newer), ("found", found[0]))}
    assert all(read.values())
    payloads = [rules._read(OffChain("update", 4), who, data).payload for who, data in (*fresh, (bytes([0]), post))]
    weights = [float(payload["examples"][0]) for payload in payloads]
    weights[2] /= math.sqrt(3)
    for name, expected in (read["new"] or {}).items():
        moved = sum(
            weight * (payload[name].astype(float) - (read[base] or {})[name])
            for weight, payload, base in zip(weights, payloads, ("new", "new", "old"), strict=True)
        )
        np.testing.assert_allclose((read["found"] or {})[name], expected + moved / sum(weights), rtol=1e-6, atol=1e-6)


def test_a_method_without_weights_never_sees_a_late_post() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Deaf(FedAvg):
        """Says nothing of late posts."""

    assert (Deaf().late(1), Deaf().refuses_late) == (None, UNSTATED)
    rules = Application(config("fedavg"))
    rules.method = Deaf()
    payload = encode({"model.w": np.ones(3, np.float32)})
    late = ChainLatePost(b"a", payload, 1, b"")
    assert rules._read_late(OffChain("update", 2, late=(late,)), Round(2, None)) == ()


# --- methods that refuse


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_method_uses_late_posts_or_says_why_not(name: str) -> None:
    method = build_method(name, {})
    assert (method.refuses_late == "") == (name in TAKING) == (method.late(1) is not None)


@pytest.mark.parametrize(
    ("method", "settings", "reason"),
    [
        ("scaffold", {}, "its control variates are of the round's model"),
        ("fedadam", {}, "its server takes one round's mean for a gradient"),
        ("moon", {}, "its clients remember the model that they posted"),
        ("fedict", {}, r"it gives them no weight \(`late`\)"),
        ("dfpl", {"encryption": "threshold"}, "its encrypted sums are opened for one round's posts"),
        ("fedavg", {"aggregation_rule": "median"}, "rules other than the mean compare posts"),
    ],
)
def test_a_federation_is_not_founded_with_a_method_that_has_no_use_for_them(
    method: str, settings: dict[str, HyperparameterValue], reason: str
) -> None:
    task = config(method, **settings)
    members = [key.public_key for key in keys(3)]
    rules = Application(task)
    founded: dict[str, Any] = {"name": "late", "created_ms": 0, "initial_bits": EASY_BITS, "version": 3}
    with pytest.raises(ConfigurationError, match=f"late_rounds is 2, but {method} uses no late posts: {reason}"):
        found_federation(task, rules, members, late_rounds=2, **founded)


def test_a_class_says_for_itself_that_it_counts_late_posts() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Stated(FedAvg):
        """FedAvg under another name."""

        beyond_late: ClassVar[str] = ""

    assert Stated().late(1) is not None


@dataclass(frozen=True, kw_only=True)
class Announced(FedAvg):
    """A method of one's own, whose members say a number in the setup, which stays beside the knowledge."""

    beyond_late: ClassVar[str] = ""

    @property
    def setup(self) -> tuple[Phase, ...]:
        return (Phase("announce", lifetime=Lifetime.FEDERATION),)

    def announce(self, client: Client, round: Round) -> Tensors:
        return {"number": np.ones(1, np.float32)}

    def aggregate(self, phase: Phase, round: Round) -> Tensors:
        return round.posts[0].payload if phase in self.setup else super().aggregate(phase, round)

    def payload_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        return (TensorSpec("number", (1,)),) if phase in self.setup else super().payload_spec(phase, info)

    def knowledge_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        return self.payload_spec(phase, info) if phase in self.setup else super().knowledge_spec(phase, info)


def test_a_late_post_that_was_made_before_there_was_knowledge_counts_nothing() -> None:
    """The setup left something beside it, so the chain owes such a post."""
    federation = Federation(LearningConfig(method=f"{__name__}:Announced", clients=3))
    rules, begun = federation.rules, federation.knowledge
    known = rules.read_knowledge(begun)
    assert (known, begun == b"") == (None, False)
    first = [federation.learner.contribute(client, "update", 1, begun).payload for client in range(3)]
    knowledge = rules.aggregate(OffChain("update", 1), begun, [(bytes([0]), first[0]), (bytes([1]), first[1])])
    second = [(bytes([0]), federation.learner.contribute(0, "update", 2, knowledge).payload)]
    late = ChainLatePost(bytes([2]), first[2], 1, begun)
    left = rules.aggregate(OffChain("update", 2, late=(late,)), knowledge, second)
    assert left == rules.aggregate(OffChain("update", 2), knowledge, second)
