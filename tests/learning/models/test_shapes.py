"""Shapes of a task's models: those that a document states, or those of the built-in models that it names."""

from dataclasses import replace

import pytest

from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.models.registry import describe_model
from fedchain.learning.models.shapes import infos_of

PLAIN, NORMED = describe_model("digits-mlp"), describe_model("digits-mlp-bn")


def test_stated_shapes_are_taken_as_they_are() -> None:
    stated = replace(PLAIN, embedding_size=PLAIN.embedding_size + 1)
    assert infos_of(LearningConfig(clients=2, shapes=stated)) == (stated,)


def test_without_stated_shapes_the_named_models_are_described_in_their_order() -> None:
    assert infos_of(LearningConfig(clients=2, model="digits-mlp")) == (PLAIN,)
    mixed = LearningConfig(clients=2, method="fedproto", model="digits-mlp-bn+digits-mlp")
    assert infos_of(mixed) == (NORMED, PLAIN)


def test_models_of_one_federation_take_the_same_inputs() -> None:
    other = replace(NORMED, input_shape=(1, 9, 9))
    config = LearningConfig(
        clients=2, method="fedproto", model="digits-mlp+digits-mlp-bn", shapes=PLAIN, more_shapes=(other,)
    )
    with pytest.raises(ConfigurationError, match=r"need the same input_shape, but it is digits-mlp .*, digits-mlp-bn "):
        infos_of(config)
