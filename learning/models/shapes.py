"""The shapes that a task's payloads follow. A genesis document states them, so that judging payloads needs no torch."""

from fedchain.learning.config import OWN, LearningConfig
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.registry import load_method


def infos_of(config: LearningConfig) -> tuple[ModelInfo, ...]:
    """Return the shapes of every architecture, which `LearningConfig.architecture_of` spreads over the members.

    Where none are stated, the built-in models are built to find them. Older documents state the first of several alone:
    what is posted beside them does not depend on the others'. Raises `ConfigurationError` unless the method can have
    them, each and together.
    """
    config.validate_pooling()
    if config.shapes is not None:
        infos: tuple[ModelInfo, ...] = (config.shapes, *config.more_shapes)
    else:
        from fedchain.learning.models.registry import describe_model

        shape = config.dataset_info.model_shape
        built = {name: describe_model(name, **shape) for name in set(config.model_names)}
        infos = tuple(built[name] for name in config.model_names)
    if len(infos) > 1:
        is_own = config.dataset == OWN
        names = [f"member {k}'s" for k in range(len(infos))] if is_own else config.model_names
        _validate_together(config, dict(zip(names, infos, strict=True)))
    return infos


def _validate_together(config: LearningConfig, infos: dict[str, ModelInfo]) -> None:
    for field in ("classes", "input_shape", "input_type", "input_fields"):
        if len({getattr(info, field) for info in infos.values()}) > 1:
            found = ", ".join(f"{name} {getattr(info, field)}" for name, info in infos.items())
            raise ConfigurationError(f"models of one federation need the same {field}, but it is {found}")
    load_method(config.method).validate_together(infos)
