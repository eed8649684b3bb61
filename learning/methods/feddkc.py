"""FedDKC: Wu et al., "Exploring the Distributed Knowledge Congruence in Proxy-data-free Federated Distillation",
ACM Transactions on Intelligent Systems and Technology 2024 (arXiv:2204.07028).

It is FedGKT, except that clients' knowledge is refined before the aggregator learns from it, so that all are equally
sure. The refinements are those of its authors' code, which survives beside FedICT's. B batch, C classes.

A newcomer and a leaver are what they are in FedGKT: refinement remembers nobody.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from fedchain.files.effects import Needs
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.method import validate_range
from fedchain.learning.methods.fedgkt import FedGkt
from fedchain.learning.models.model_info import ModelInfo

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class FedDkc(FedGkt):
    """FedGKT whose aggregator learns from refined knowledge."""

    refinement: Literal["kkr", "skr"] = "kkr"
    """The property that is made equal in all knowledge: its largest probability (kkr, by a linear map) or its entropy
    (skr, by the scale of the logits)."""

    peak: Annotated[float, Needs("refinement", ("kkr",))] = 0.12
    """kkr: the largest probability, T; more than 1 / C."""

    sharpness: Annotated[float, Needs("refinement", ("kkr",))] = 0.05
    """kkr: logits are divided by it, and by the temperature, before they are mapped."""

    entropy_bits: Annotated[float, Needs("refinement", ("skr",))] = 3.2
    """skr: the entropy, in bits; less than log2 C."""

    def validate(self) -> None:
        """Raise `ConfigurationError` for a hyper-parameter outside its range."""
        super().validate()
        validate_range("peak", self.peak, 0.0, 1.0, low_open=True, high_open=True)
        validate_range("sharpness", self.sharpness, 0.0, 1e3, low_open=True)
        validate_range("entropy_bits", self.entropy_bits, 0.0, 64.0, low_open=True)

    def validate_model(self, info: ModelInfo) -> None:
        """Raise `ConfigurationError` also for a peak or an entropy that so many classes cannot have."""
        super().validate_model(info)
        if self.refinement == "kkr" and self.peak * info.classes <= 1:
            raise ConfigurationError(f"peak must be above 1/{info.classes}, not {self.peak}: it would be no peak")
        if self.refinement == "skr" and self.entropy_bits >= math.log2(info.classes):
            raise ConfigurationError(
                f"entropy_bits must be below {math.log2(info.classes):.4f}, that of {info.classes} equally likely "
                f"classes, not {self.entropy_bits}"
            )

    def local_knowledge(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the refined p^k, (B, C), of a client's logits (B, C)."""
        from fedchain.learning.families.distillation_terms import refine_by_kernel, refine_by_search, soften

        if self.refinement == "skr":
            return refine_by_search(logits, self.entropy_bits)
        return refine_by_kernel(soften(logits, self.sharpness * self.temperature), self.peak)
