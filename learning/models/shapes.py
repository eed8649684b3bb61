"""The shapes that a task's payloads follow. A genesis document states them, so that who only judges needs no torch."""

from fedchain.learning.config import LearningConfig
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.registry import load_method


def info_of(config: LearningConfig) -> ModelInfo:
    """Return the shapes of everybody's model; where none are stated, the built-in model is built to find them.

    Of several models they are the first one's. Raises `ConfigurationError` unless the method can have them together.
    """
    if config.shapes is not None:
        return config.shapes
    from fedchain.learning.models.registry import describe_model

    infos = {name: describe_model(name, **config.dataset_info.model_shape) for name in config.model_names}
    if len(infos) > 1:
        load_method(config.method).validate_together(infos)
    return infos[config.model_names[0]]
