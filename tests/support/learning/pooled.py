"""A plain model for small images."""

from fedchain.learning.models.plain import PooledModel
from fedchain.learning.models.registry import build_model


def pooled_model(name: str) -> PooledModel:
    model = build_model(name, 3, channels=3)
    assert isinstance(model, PooledModel)
    return model.double()
