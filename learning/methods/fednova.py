"""FedNova: Wang et al., "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization",
NeurIPS 2020 (arXiv:2007.07481).

a_k is the vector of factors with which client k's gradients enter its model. K clients, P scalars of the model.

A newcomer starts from the common model. A leaver leaves nothing behind: tau_eff and all weights are of the round's
posts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedchain.learning.aggregation.mean import WEIGHT_MAX, by_block, weighted_sum
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.method import Phase, validate_range
from fedchain.learning.methods.fedavg import INITIAL_MODEL, FedAvg
from fedchain.learning.methods.fedprox import pull_back
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.models.parameters import PREFIX, average_parameters, parameter_spec
from fedchain.learning.payload.lazy import LazyTensors
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.round import Round, Tensors

if TYPE_CHECKING:
    from fedchain.learning.client import Client
    from fedchain.learning.training.loop import Correction

_NORMALIZER_MAX = 2.0**40
"""Largest ||a_k||_1: of the most steps that count, and a momentum below 1 - 2^-16."""


@dataclass(frozen=True, kw_only=True)
class FedNova(FedAvg):
    """Averages the clients' normalised changes, so that a client with more steps does not pull harder."""

    proximal_weight: float = 0.0
    """Weight mu of FedProx's term in the local objective; 0 is plain SGD."""

    beyond_dp_sgd: ClassVar[str] = ""
    beyond_late: ClassVar[str] = "its server divides by the steps of one round"
    beyond_rules: ClassVar[str] = "its step is as long as the clients say that theirs were"
    beyond_fedex: ClassVar[str] = "its server takes a step from the last model instead of the mean"
    sgd_alone: ClassVar[str] = "||a_k||_1 counts how often each gradient of SGD enters the model (section 4)"

    @property
    def setup(self) -> tuple[Phase, ...]:
        """The first common model."""
        return (INITIAL_MODEL,)

    def validate(self) -> None:
        """Raise `ConfigurationError` for a hyper-parameter outside its range."""
        super().validate()
        validate_range("proximal_weight", self.proximal_weight, 0.0, 1.0 / self.learning_rate)
        if self.proximal_weight > 0 and self.momentum > 0:
            raise ConfigurationError("proximal_weight and momentum: no norm ||a_k||_1 is known for both together")
        if self.proximal_weight > 0 and (self.schedule != "constant" or self.warmup_rounds):
            raise ConfigurationError("proximal_weight and a schedule: ||a_k||_1 is reckoned with one learning rate")

    def correction(self, client: Client) -> Correction | None:
        """The gradient of FedProx's term, if there is one: clients train as FedAvg's or FedProx's do."""
        return pull_back(client, self.proximal_weight) if self.proximal_weight > 0 else None

    def post_model(self, client: Client) -> dict[str, NDArray[Any]]:
        """Return the client's parameters, n_k, tau_k and ||a_k||_1."""
        return super().post_model(client) | {
            "steps": np.array([client.steps], dtype=np.int64),
            "normalizer": np.array([self.normalizer(client.steps)], dtype=np.float32),
        }

    def normalizer(self, steps: int) -> float:
        """Return ||a||_1 of SGD with momentum rho (section 4): sum_j (1 - rho^j)/(1 - rho); with mu as in the code."""
        counter = norm = 0.0
        for _ in range(steps):
            counter = self.momentum * counter + 1.0
            norm = norm * (1.0 - self.learning_rate * self.proximal_weight) + counter
        return norm

    def aggregate(self, phase: Phase, round: Round) -> Tensors:
        """w <- w - tau_eff sum_k p_k (w - w_k) / ||a_k||_1 (Eq. 11), with the terms in w_k and in w collected.

        So written, FedNova is FedAvg to the bit where all ||a_k||_1 are equal. Buffers are averaged.
        """
        if phase == INITIAL_MODEL:
            return average_parameters(round.posts, [1] * len(round.posts))
        examples = self.weights(round)  # (K,)
        mean = average_parameters(round.posts, examples)
        if round.knowledge is None:  # nobody posted the initial model in time
            return mean
        before, total = round.knowledge, sum(examples)
        norms = [float(post.payload["normalizer"][0]) for post in round.posts]  # (K,)
        steps = [float(post.payload["steps"][0]) for post in round.posts]  # (K,)
        local = steps if self.proximal_weight > 0 else norms
        effective = math.fsum(n * tau for n, tau in zip(examples, local, strict=True)) / total  # tau_eff
        shares = [n * effective / norm for n, norm in zip(examples, norms, strict=True)]  # (K,)
        rest = total - math.fsum(shares)

        def move(name: str) -> NDArray[Any]:
            return by_block(
                [before[name], *(post.payload[name] for post in round.posts)],
                lambda parts: (weighted_sum(parts[1:], shares) + rest * parts[0].astype(np.float64)) / total,
            )

        return mean | LazyTensors({name: partial(move, name) for name in mean if name.startswith(PREFIX)})

    def payload_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """The model's tensors, and n_k, tau_k and ||a_k||_1 within bounds."""
        if phase == INITIAL_MODEL:
            return parameter_spec(info)
        return (
            *super().payload_spec(phase, info),
            TensorSpec("steps", (1,), "int64", minimum=1, maximum=WEIGHT_MAX),
            TensorSpec("normalizer", (1,), minimum=1, magnitude_max=_NORMALIZER_MAX),
        )
