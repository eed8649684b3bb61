"""A setting that would have no effect is refused in one line where it is stated; documents that have it are read."""

from collections.abc import Mapping
from typing import Any

import pytest

from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.registry import METHODS
from fedchain.node.founding.consensus import Consensus
from fedchain.node.founding.effects import validate_effects
from fedchain.node.founding.task import learning_from_genesis, learning_to_genesis
from tests.support.chain.builders import genesis


@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_method_s_defaults_are_nobody_s_statement(method: str) -> None:
    validate_effects(LearningConfig(method=method), Consensus())


@pytest.mark.parametrize(
    ("method", "stated", "reason"),
    [
        ("fedavg", {"gradient_clip": 2.0}, "it needs gradient_noise, which is 0.0"),
        ("fedavg", {"batch_sampling": "poisson"}, "it needs gradient_noise, which is 0.0"),
        ("fedavg", {"privacy_delta": 0.01}, "no epsilon is stated or bounded"),
        ("dfpl", {"privacy_delta": 0.01, "prototype_noise": 1.0}, "no epsilon is stated or bounded"),
        ("dfpl", {"prototype_clip": 2.0}, "it needs prototype_noise, which is 0.0"),
        ("dfpl", {"magnitude_max": 2.0}, "nothing is encrypted"),
        ("fedph", {"local_steps": 5}, "it is of local_epochs 0, not of 1"),
        ("fedph", {"noise_multiplier": 2.0}, "it needs noise, which is none"),
        ("sgd", {"momentum": 0.5}, "a round is one step, from an empty buffer unless optimizer is momentum"),
        ("fedavg", {"adam_beta1": 0.5}, "it is of optimizer adam or adamw, not of sgd"),
        ("fedavg", {"schedule": "cosine", "schedule_rounds": 5, "schedule_decay": 0.5}, "it is of schedule step"),
        ("fedavg", {"byzantine": 1, "aggregation_rule": "median"}, "no rule that is set reckons with it"),
        ("fedavg", {"weighting": "clients", "aggregation_rule": "median"}, "what is set makes no weighted mean"),
        ("fedavg", {"clipping_norm": 1.0}, "it is of aggregation_rule clipping, not of mean"),
        ("fedavg", {"error_decay": 0.5, "compression": "int8"}, "it is of compression topk or sparse, not of int8"),
        ("fedavg", {"late_weighting": "constant"}, "it needs late_rounds, which is 0"),
        ("fededs", {"proximal_weight": 1.0}, "it is of base fedprox, not of fedavg"),
        ("fededs", {"sharing": False, "encryptor_epochs": 1}, "it needs sharing, which is False"),
        ("feddkc", {"peak": 0.5, "refinement": "skr"}, "it is of refinement kkr, not of skr"),
        ("fedict", {"prior_weight": 1.0, "compat": "released-code"}, "it is of compat none, not of released-code"),
    ],
)
def test_a_hyper_parameter_without_effect_is_refused(method: str, stated: Mapping[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=f" is .*, which has no effect: {reason}"):
        validate_effects(LearningConfig(method=method, hyperparameters=dict(stated)), Consensus())


@pytest.mark.parametrize(
    ("stated", "reason"),
    [
        ({"shots": 50, "partition": "iid"}, "it is of partition n-way or n-way-exact, not of iid"),
        ({"dirichlet_alpha": 0.1}, "it is of partition dirichlet or dirichlet-hsu, not of n-way"),
        ({"dataset": "own", "partition": "iid"}, "the members' own data are not divided"),
    ],
)
def test_a_setting_of_data_without_effect_is_refused(stated: Mapping[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=f", which has no effect: {reason}"):
        validate_effects(LearningConfig(**stated), Consensus())


def test_late_posts_make_their_weight_of_use() -> None:
    config = LearningConfig(method="fedavg", hyperparameters={"late_exponent": 1.0})
    validate_effects(config, Consensus(late_rounds=2))


def test_a_document_that_was_founded_with_such_a_setting_is_read() -> None:
    config = LearningConfig(clients=4, hyperparameters={"gradient_clip": 2.0})
    document = genesis(4, learning=learning_to_genesis(config))
    assert dict(learning_from_genesis(document).hyperparameters)["gradient_clip"] == 2.0
