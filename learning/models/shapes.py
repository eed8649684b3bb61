"""The shapes that a task's payloads follow. A genesis document states them, so that who only judges needs no torch."""

from fedchain.learning.config import LearningConfig
from fedchain.learning.datasets.catalogue import DATASETS
from fedchain.learning.models.model_info import ModelInfo


def info_of(config: LearningConfig) -> ModelInfo:
    """Return the shapes of everybody's model; where none are stated, the built-in model is built to find them."""
    if config.shapes is not None:
        return config.shapes
    from fedchain.learning.models.registry import describe_model

    return describe_model(config.model_name, **DATASETS[config.dataset].model_shape)
