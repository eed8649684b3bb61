"""Methods with a robust rule: which take one, what becomes of prototypes, and what genesis documents say of it."""

import json
import typing
from typing import Any, ClassVar, get_args

import numpy as np
import pytest

from fedchain.learning.aggregation.robust import RobustRule, RuleName
from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.families.robust import UNSTATED
from fedchain.learning.methods.dfpl import Dfpl
from fedchain.learning.methods.fedavg import FedAvg
from fedchain.learning.registry import METHODS, HyperparameterValue, build_method
from fedchain.node.founding.task import LATER_HYPERPARAMETERS, learning_to_genesis
from tests.support.learning.federation import Federation, aggregate, common_model, config, examples, model_of
from tests.support.learning.played import played

WITHOUT = {"demlearn", "feddkc", "fedgkt", "fedict", "fednova", "solo"}
TAKING = sorted(METHODS.keys() - WITHOUT)
ALL_RULES = {"dfpl", "fedavg", "fedproc", "scaffold"}
"""Models, prototypes, both of them and a model's control variate: the rule itself is the same for all methods."""

SETTINGS: dict[str, dict[str, HyperparameterValue]] = {
    "median": {"aggregation_rule": "median"},
    "mixed trimmed mean": {"aggregation_rule": "trimmed_mean", "byzantine": 1, "neighbour_mixing": True},
    "clipping": {"aggregation_rule": "clipping", "clipping_norm": 0.01},
    "multi-krum": {"aggregation_rule": "multi_krum", "byzantine": 1},
}


@pytest.mark.long
@pytest.mark.parametrize(
    ("method", "case"),
    [
        pytest.param(method, case, marks=() if method in ALL_RULES else pytest.mark.slow)
        for method in TAKING
        for case in SETTINGS
        if case == "median" or method in ALL_RULES
    ],
)
def test_every_method_that_averages_takes_a_rule(method: str, case: str) -> None:
    robust = Federation(config(method, **SETTINGS[case]))
    robust.play(2)
    with played(method) as plain:
        assert robust.knowledge != plain.federation.knowledge
        assert robust.known().keys() == plain.federation.known().keys()


@pytest.mark.parametrize(("method", "name"), [("demlearn", "DemLearn"), ("fednova", "FedNova")])
@pytest.mark.parametrize("setting", [{"aggregation_rule": "median"}, {"neighbour_mixing": True, "byzantine": 1}])
def test_methods_whose_aggregate_is_no_mean_refuse(method: str, name: str, setting: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} takes no robust rules: its "):
        build_method(method, setting)


def test_a_class_that_is_made_of_one_that_takes_rules_says_so_anew() -> None:
    """Its aggregate may be another, on which a rule would have no effect."""

    class Mine(FedAvg):
        pass

    class Said(FedAvg):
        beyond_rules: ClassVar[str] = ""

    with pytest.raises(ConfigurationError, match="Mine takes no robust rules") as found:
        Mine(aggregation_rule="median")
    assert UNSTATED in str(found.value)
    assert Said(aggregation_rule="median").robust_rule is not None


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"aggregation_rule": "trimmed_mean"}, "trimmed_mean needs byzantine"),
        ({"neighbour_mixing": True}, "neighbour_mixing needs byzantine"),
        ({"byzantine": -1}, "byzantine must lie in"),
        ({"aggregation_rule": "medain"}, "median"),
    ],
)
def test_settings_that_protect_nobody_are_refused(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        build_method("fedavg", setting)


def test_rules_have_the_same_names_everywhere() -> None:
    assert get_args(typing.get_type_hints(FedAvg)["aggregation_rule"]) == get_args(RuleName)


def test_examples_that_a_client_says_it_has_count_in_the_plain_mean_alone() -> None:
    posted = [model_of([value]) | examples(count) for value, count in ((1, 10), (2, 10), (30, 1 << 24))]
    stated = aggregate(FedAvg(), posted)
    equal = aggregate(FedAvg(weighting="clients"), posted)
    median = aggregate(FedAvg(aggregation_rule="median"), posted)
    assert [float(found["model.w"][0]) for found in (stated, equal, median)] == [pytest.approx(30, abs=0.01), 11, 2]


def test_buffers_are_judged_by_themselves() -> None:
    """A lie about the parameters is not hidden by honest running statistics that are a million times as large."""
    rng = np.random.default_rng(0)
    posted = [
        model_of(rng.normal(size=4)) | {"buffer.v": (1e6 * rng.normal(size=4)).astype(np.float32)} for _ in range(6)
    ]
    posted[5] = model_of([100, 100, 100, 100]) | {"buffer.v": np.zeros(4, np.float32)}
    found = aggregate(FedAvg(aggregation_rule="krum", byzantine=1), [post | examples(1) for post in posted])
    assert common_model(found)["model.w"] in {post["model.w"].tobytes() for post in posted[:5]}


def posted_prototypes(rows: dict[int, Any]) -> dict[str, Any]:
    return {
        "labels": np.array(sorted(rows), dtype=np.int64),
        "counts": np.ones(len(rows), dtype=np.int64),
        "prototypes": np.array([rows[label] for label in sorted(rows)], dtype=np.float32),
    }


def test_each_class_is_combined_over_its_holders() -> None:
    posted = [
        posted_prototypes({0: [1, 1], 1: [5, 5]}),
        posted_prototypes({0: [2, 2]}),
        posted_prototypes({0: [3, 3]}),
        posted_prototypes({0: [900, -900], 2: [7, 8]}),
    ]
    found = aggregate(Dfpl(aggregation_rule="trimmed_mean", byzantine=1), posted)
    assert found["labels"].tolist() == [0, 1, 2]
    assert found["holders"].tolist() == [4, 1, 1]
    assert found["prototypes"].tolist() == [[2.5, 1.5], [5, 5], [7, 8]], "a class of one holder is what it says"


def test_prototypes_are_clipped_about_the_last_ones() -> None:
    posted = [posted_prototypes({4: [0, 10]}), posted_prototypes({4: [0, 1], 7: [1, 1]})]
    known = {
        "labels": np.array([4]),
        "holders": np.array([2]),
        "prototypes": np.zeros((1, 2), dtype=np.float32),
    }
    found = aggregate(Dfpl(aggregation_rule="clipping", clipping_norm=2.0), posted, known, 2)
    assert found["prototypes"].tolist() == [[0, 1.5], [1, 1]]


@pytest.mark.parametrize("aggregation", ["all", "samples"])
def test_dfpls_other_readings_of_the_mean_have_no_robust_rule(aggregation: str) -> None:
    with pytest.raises(ConfigurationError, match=f"aggregation {aggregation} is of the plain mean"):
        build_method("dfpl", {"aggregation": aggregation, "aggregation_rule": "median"})


def test_fedproc_counts_prototypes_by_client_when_it_counts_models_so() -> None:
    def post(value: float, count: int) -> dict[str, Any]:
        prototypes = posted_prototypes({0: [value]}) | {"counts": np.array([count])}
        return model_of([value]) | examples(count) | prototypes

    posted = [post(1, 1), post(3, 99)]
    found = [
        float(aggregate(build_method("fedproc", {"weighting": weighting}), posted)["prototypes"][0, 0])
        for weighting in ("examples", "clients")
    ]
    assert found == [pytest.approx(2.98), 2]


def test_genesis_says_what_differs_from_the_plain_mean_and_nothing_else() -> None:
    """Tasks that were founded before there were rules keep their documents to the letter."""

    def said(**settings: HyperparameterValue) -> dict[str, Any]:
        pairs = dict(learning_to_genesis(LearningConfig(method="fedavg", hyperparameters=settings)))
        return dict(json.loads(pairs["hyperparameters"]))

    assert not LATER_HYPERPARAMETERS & said().keys()
    assert said()["weighting"] == "examples"
    settings: dict[str, HyperparameterValue] = {"aggregation_rule": "krum", "byzantine": 2}
    assert {name: said(**settings)[name] for name in settings} == settings


def test_a_rule_is_what_the_fields_say() -> None:
    method = Dfpl(aggregation_rule="clipping", clipping_norm=3.0, byzantine=2, neighbour_mixing=True)
    expected = RobustRule(name="clipping", clipping_norm=3.0, byzantine=2, neighbour_mixing=True)
    assert method.robust_rule == expected
    assert Dfpl(byzantine=2).robust_rule is None
