import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from fedchain.learning.config import LearningConfig
from fedchain.learning.datasets.catalogue import DATASETS
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.families.local_sgd import LocalSgdMethod
from fedchain.learning.registry import build_method


def test_the_defaults_are_valid() -> None:
    LearningConfig().validate()


@pytest.mark.parametrize("name", sorted(DATASETS))
def test_every_data_set_can_be_chosen(name: str) -> None:
    LearningConfig(dataset=name, partition="iid").validate()
    assert LearningConfig(dataset=name).model_names == DATASETS[name].models[:1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clients": 0}, "clients must be between 1 and 100000, not 0"),
        ({"clients": 2.0}, "clients must be int, not float"),
        ({"clients": True}, "clients must be int, not bool"),
        ({"classes_avg": 11}, "classes_avg must be between 1 and 10, not 11"),
        ({"classes_std": -1}, "classes_std must be between 0 and 10, not -1"),
        ({"shots": 0}, "shots must be"),
        ({"test_shots": 0}, "test_shots must be"),
        ({"train_examples": 1443}, "train_examples must be between 0 and 1442, not 1443"),
        ({"seed": -1}, "seed must be"),
        ({"dirichlet_alpha": 0.0}, "dirichlet_alpha must be a positive number, not 0.0"),
        ({"dirichlet_alpha": float("inf")}, "dirichlet_alpha must be a positive number, not inf"),
        ({"dataset": "fashion_mnist"}, "unknown data set 'fashion_mnist'; did you mean 'fashion-mnist'?"),
        ({"partition": "n-ways"}, "did you mean 'n-way'?"),
        ({"model": "resnet"}, "unknown model 'resnet'"),
        ({"model": "cnn"}, "model 'cnn' does not fit digits; use digits-mlp"),
        ({"partition": "by-class", "classes_per_client": 11}, "classes_per_client must be between 1 and 10, not 11"),
        ({"partition": "by-source"}, "partition is by-source, but digits does not say where its"),
        ({"dataset": "covid-ct", "classes_avg": 4}, "classes_avg must be between 1 and 3, not 4"),
        ({"dataset": "covid-ct", "classes_std": 3}, "classes_std must be between 0 and 2, not 3"),
        ({"augmentation": "crop"}, "unknown augmentation 'crop'; did you mean 'crop-flip'?"),
        ({"scaling": "pixels"}, "unknown scaling 'pixels'; did you mean 'pixel'?"),
        ({"scaling": "pixel", "augmentation": "crop-flip"}, "moves pixels, which scaling pixel cannot follow"),
        ({"dataset": "tmd", "augmentation": "crop-flip"}, "is for images, which tmd has not"),
        ({"feature_shift": "wether"}, "unknown feature shift 'wether'; did you mean 'weather'?"),
        ({"dataset": "tmd", "feature_shift": "weather"}, "feature_shift weather is for images, which tmd has not"),
        ({"scaling": "pixel", "feature_shift": "weather"}, "always black: not with scaling pixel"),
        ({"classes": 11}, "classes must be 0 or between 2 and 10, not 11"),
        ({"classes": 1}, "classes must be 0 or between 2 and 10, not 1"),
        ({"classes": 6, "classes_avg": 7}, "classes_avg must be between 1 and 6, not 7"),
        ({"method": "dfp"}, "unknown method 'dfp'; did you mean 'dfpl'?"),
        ({"method": "no.such.module:Method"}, "no.such.module:Method"),
        ({"method": "fedchain.learning.methods.dfpl:Dfpll"}, "did you mean 'Dfpl'?"),
        ({"method": "fedchain.learning.seeding:derive"}, "unknown method class"),
        ({"hyperparameters": {"learnin_rate": 0.1}}, "did you mean 'learning_rate'?"),
        ({"hyperparameters": {"learning_rate": "fast"}}, "dfpl.learning_rate must be float, not str"),
        ({"hyperparameters": {"learning_rate": 0.0}}, "learning_rate must lie in (0.0, 1000.0], not 0.0"),
        ({"hyperparameters": {"learning_rate": float("nan")}}, "dfpl.learning_rate must be finite, not nan"),
        ({"hyperparameters": {"batch_size": 0}}, "batch_size must lie in [1,"),
        ({"hyperparameters": {"momentum": 1.0}}, "momentum must lie in [0.0, 1.0), not 1.0"),
        ({"hyperparameters": {"regularizer_weight": -1.0}}, "regularizer_weight must lie in"),
        (
            {"hyperparameters": {"regularizer": "l1"}},
            "unknown value of dfpl.regularizer 'l1'; choose one of: mse, norm",
        ),
    ],
)
def test_an_impossible_value_is_refused_in_one_line_that_names_it(changes: dict[str, Any], message: str) -> None:
    config = replace(LearningConfig(), **changes)
    with pytest.raises(ConfigurationError) as caught:
        config.validate()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_hyperparameters_are_sorted_pairs_whatever_they_came_as() -> None:
    from_mapping = LearningConfig(hyperparameters={"momentum": 0.5, "batch_size": 8})
    from_pairs = LearningConfig(hyperparameters=(("batch_size", 8), ("momentum", 0.5)))
    assert from_mapping == from_pairs
    assert hash(from_mapping) == hash(from_pairs)


def test_newcomers_have_the_parts_behind_the_founders_and_the_founder_without_data_has_none() -> None:
    config = LearningConfig(clients=4, dataless=2)
    assert [config.part_of(place) for place in range(5)] == [0, 1, 4, 2, 3]
    assert config.places_with_data == (0, 1, 3, 4)
    assert [config.architecture_of(config.part_of(place), 3) for place in range(5)] == [0, 1, 0, 2, 0]
    closed = LearningConfig(clients=4)
    assert [closed.part_of(place) for place in range(5)] == [0, 1, 2, 3, 4]
    assert closed.places_with_data == (0, 1, 2, 3)


def test_an_integer_serves_as_a_float() -> None:
    method = build_method("dfpl", {"learning_rate": 1})
    assert isinstance(method, LocalSgdMethod)
    assert method.learning_rate == 1.0
    assert type(method.learning_rate) is float


def test_the_configuration_is_read_without_loading_any_tensor_library() -> None:
    program = (
        "import sys, fedchain.learning.config as c, fedchain.learning.exceptions; c.LearningConfig().validate();"
        "sys.exit(any(name in sys.modules for name in ('torch', 'numpy', 'sklearn')))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
