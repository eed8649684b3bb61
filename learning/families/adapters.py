"""Low-rank adapters (LoRA): how one is made of the members' A and B, whose means are not the mean of their products.

FFA-LoRA: Sun et al., "Improving LoRA in Privacy-preserving Federated Learning", ICLR 2024 (arXiv:2403.12313).
FedEx-LoRA: Singhal et al., "FedEx-LoRA: Exact Aggregation for Federated and Efficient Fine-Tuning of Foundation
Models", ACL 2025 (arXiv:2410.09432).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedchain.learning.aggregation.low_rank import residual_of_means
from fedchain.learning.aggregation.mean import round_once
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.families.late import LateMethod
from fedchain.learning.models.model_info import RESIDUAL_PREFIX, LowRank, ModelInfo
from fedchain.learning.models.parameters import combine_parameters, wire_name
from fedchain.learning.payload.lazy import LazyTensors
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.round import ReadPost, Round, Tensors

UNSTATED = "it does not say that its aggregate is the mean of models (`beyond_fedex`)"
"""Why FedEx-LoRA is refused to a method that says nothing about it."""


@dataclass(frozen=True, kw_only=True)
class AdapterMethod(LateMethod):
    """A method that averages models, which may be a frozen one with adapters."""

    adapters: Literal["mean", "ffa", "fedex"] = "mean"
    """How low-rank adapters B A become one: mean (of each A and each B), ffa (A stays as it was drawn, so the mean is
    exact) or fedex (the mean, and what it lacks is added to the frozen weights)."""

    beyond_fedex: ClassVar[str] = UNSTATED
    """The reason for which FedEx-LoRA is refused. Empty: `aggregate` returns `combine`, and nothing that clients
    remember of a model outlives the round. A class says that for itself alone."""

    def validate(self) -> None:
        """Raise `ConfigurationError` for a hyper-parameter outside its range, or one that does nothing."""
        super().validate()
        if self.adapters == "fedex" and self.beyond_fedex:
            raise ConfigurationError(f"{type(self).__name__} takes no adapters fedex: {self.beyond_fedex}")
        if self.adapters == "fedex" and self.robust_rule is not None:
            raise ConfigurationError("adapters fedex adds what the plain mean lacks: it allows no other rule")

    def validate_model(self, info: ModelInfo) -> None:
        """Raise `ConfigurationError` for a model without adapters, if something is to become of them."""
        super().validate_model(info)
        if self.adapters != "mean" and not info.low_rank:
            raise ConfigurationError(f"adapters {self.adapters} needs a model with low-rank adapters (LoRA)")
        for layer in info.low_rank:
            if layer.up not in info.trainable or (layer.down in info.trainable) != (self.adapters == "fedex"):
                is_frozen = "is" if layer.down not in info.trainable else "is not"
                raise ConfigurationError(f"adapters {self.adapters} cannot be: {layer.down} {is_frozen} frozen")

    @property
    def refuses_late(self) -> str:
        """The class's reason, or that of the residual."""
        if self.adapters == "fedex" and not self.beyond_late:
            return "adapters fedex adds up products of one round"
        return super().refuses_late

    def combine(self, round: Round, count: Callable[[ReadPost], int]) -> LazyTensors:
        """Return the mean of the posted models, or the robust rule's, and with `fedex` what it lacks.

        `count` is the weight of a post.
        """
        combined = combine_parameters(self.robust_rule, round, count)
        if self.adapters != "fedex":
            return combined
        assert round.info is not None, "a chain's rounds have it"
        weights = [float(count(post)) for post in round.posts]
        residuals = {
            RESIDUAL_PREFIX + layer.base: partial(self._residual, layer, round, weights, combined)
            for layer in round.info.low_rank
        }
        return combined | LazyTensors(residuals)

    def _residual(self, layer: LowRank, round: Round, weights: list[float], combined: Tensors) -> NDArray[Any]:
        """W_res + scale (sum_k w_k B_k A_k / sum_k w_k - B A), which is the mean of the members' layers but for W."""
        down, up = wire_name(layer.down, True), wire_name(layer.up, True)
        posted = [post.payload for post in round.posts]
        missing = layer.scale * residual_of_means(
            [payload[down] for payload in posted],
            [payload[up] for payload in posted],
            weights,
            (combined[down], combined[up]),
        )
        if layer.is_transposed:
            missing = missing.T
        before = None if round.knowledge is None else round.knowledge[RESIDUAL_PREFIX + layer.base]
        return round_once(missing if before is None else before.astype(np.float64) + missing)

    def residual_spec(self, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """State what the knowledge holds beside the mean: for each layer the sum of what means lacked, as W is."""
        if self.adapters != "fedex":
            return ()
        shapes = dict(info.parameters)
        return tuple(TensorSpec(RESIDUAL_PREFIX + layer.base, shapes[layer.base]) for layer in info.low_rank)
