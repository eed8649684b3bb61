"""Hyper-parameters that change while a federation runs: those that the method names, and to values that it can have."""

import pytest

from fedchain.learning.amended import amended_config
from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.registry import METHODS, load_method


def test_a_step_size_changes_and_all_else_stays() -> None:
    config = LearningConfig(method="fedavg", hyperparameters={"local_steps": 7, "learning_rate": 0.1})
    found = amended_config(config, [("learning_rate", "0.05")])
    assert dict(found.hyperparameters) == {"local_steps": 7, "learning_rate": 0.05}
    assert amended_config(config, []) == config


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("local_steps", "3", "local_steps of fedavg cannot be amended, of its hyper-parameters: learning_rate"),
        ("learning_rate", "0", "learning_rate must lie in"),
        ("learning_rate", "NaN", "learning_rate"),
        ("learning_rate", '"fast"', "learning_rate"),
        ("learning_rate", "[" * 10_000, "is no value|which is no value"),
    ],
)
def test_nothing_else_is_taken(name: str, text: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        amended_config(LearningConfig(method="fedavg"), [(name, text)])


def test_every_method_names_hyper_parameters_that_it_has() -> None:
    for name in METHODS:
        method = load_method(name)
        assert method.amendable <= set(method.__dataclass_fields__)
    assert load_method("fededs").amendable == frozenset(), "its aggregate may read the step size"
