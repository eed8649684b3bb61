"""FedAdam: Reddi et al., "Adaptive Federated Optimization", ICLR 2021 (arXiv:2003.00295).

K clients.

A newcomer starts from the common model. A leaver has moved both moments, which go on as they are: its part in them
decays by beta1 and beta2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedchain.learning.aggregation.mean import by_block, weighted_sum
from fedchain.learning.method import Phase, validate_range
from fedchain.learning.methods.fedavg import INITIAL_MODEL, FedAvg
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.models.parameters import PREFIX, combine_parameters, parameter_spec
from fedchain.learning.payload.lazy import LazyTensors, computed_once
from fedchain.learning.payload.spec import MAGNITUDE_MAX, TensorSpec
from fedchain.learning.round import Round, Tensors

FIRST, SECOND = "first_moment.", "second_moment."
"""Before the names of the moments' tensors."""

_CHANGE_MAX = 2 * MAGNITUDE_MAX
_SQUARE_MAX = _CHANGE_MAX**2
"""Largest change of a parameter in a round, and its square: no moment is larger."""


@dataclass(frozen=True, kw_only=True)
class FedAdam(FedAvg):
    """FedAvg whose mean change is a gradient to Adam. The moments are part of the knowledge: any peer aggregates."""

    server_learning_rate: float = 0.01
    """Step size of the common model."""

    beta1: float = 0.9
    """Decay of the first moment."""

    beta2: float = 0.99
    """Decay of the second moment."""

    tau: float = 1e-3
    """Degree of adaptivity: the number added to the root of the second moment."""

    leaves: ClassVar[str] = "the model and two moments as large as it"
    beyond_dp_sgd: ClassVar[str] = ""
    beyond_late: ClassVar[str] = "its server takes one round's mean for a gradient"
    beyond_rules: ClassVar[str] = ""
    beyond_fedex: ClassVar[str] = "its server takes a step from the last model instead of the mean"

    @property
    def setup(self) -> tuple[Phase, ...]:
        """The first common model."""
        return (INITIAL_MODEL,)

    def validate(self) -> None:
        """Raise `ConfigurationError` for a hyper-parameter outside its range."""
        super().validate()
        validate_range("server_learning_rate", self.server_learning_rate, 0.0, 1e3, low_open=True)
        validate_range("beta1", self.beta1, 0.0, 1.0, high_open=True)
        validate_range("beta2", self.beta2, 0.0, 1.0, high_open=True)
        validate_range("tau", self.tau, 1e-12, 1e3)

    def aggregate(self, phase: Phase, round: Round) -> Tensors:
        """Take Algorithm 2's step against Delta = sum_k p_k (w - w_k); buffers are averaged."""
        if phase == INITIAL_MODEL:
            return combine_parameters(self.robust_rule, round, lambda post: 1)
        mean = combine_parameters(self.robust_rule, round, self.weight)
        if self.robust_rule is not None:
            mean = computed_once(mean, round.spools)  # the model and both moments begin with it
        trained = [name for name in mean if name.startswith(PREFIX)]
        steps = {
            prefix + name.removeprefix(PREFIX): partial(self._step, name, prefix, round, mean)
            for name in trained
            for prefix in (PREFIX, FIRST, SECOND)
        }
        return mean | LazyTensors(steps)

    def _step(self, name: str, prefix: str, round: Round, mean: LazyTensors) -> NDArray[Any]:
        """Return one tensor after the step, or one of its moments; a robust rule has rounded its result once more."""
        tensor, weights, known = name.removeprefix(PREFIX), self.weights(round), round.knowledge
        now = [mean[name]] if self.robust_rule is not None else [post.payload[name] for post in round.posts]

        def mean_of(parts: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
            if self.robust_rule is not None:
                return np.asarray(parts[0].astype(np.float64))
            return np.asarray(weighted_sum(parts, weights) / sum(weights))

        if known is None:  # nobody posted the initial model in time
            return by_block(now, mean_of) if prefix == PREFIX else np.zeros(now[0].shape, dtype=np.float32)
        kept = [moment + tensor for moment in (FIRST, SECOND)]
        moments = [known[moment] for moment in kept if moment in known]  # none of the setup

        def step(parts: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
            before = parts[0].astype(np.float64)
            first, second = (part.astype(np.float64) for part in parts[1:3]) if moments else (0.0, 0.0)
            delta = before - mean_of(parts[1 + len(moments) :])
            m = self.beta1 * first + (1 - self.beta1) * delta
            v = self.beta2 * second + (1 - self.beta2) * delta * delta
            if prefix != PREFIX:
                return m if prefix == FIRST else v
            return np.asarray(before - self.server_learning_rate * m / (np.sqrt(v) + self.tau))

        return by_block([known[name], *moments, *now], step)

    def payload_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """The model's tensors, and n_k after the setup."""
        return parameter_spec(info) if phase == INITIAL_MODEL else super().payload_spec(phase, info)

    def knowledge_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """The model's tensors, and the moments after the setup."""
        if phase == INITIAL_MODEL:
            return parameter_spec(info)
        trainable = [(name, shape) for name, shape in info.parameters if name in info.trainable]
        first = (TensorSpec(FIRST + name, shape, magnitude_max=_CHANGE_MAX) for name, shape in trainable)
        second = (TensorSpec(SECOND + name, shape, minimum=0, magnitude_max=_SQUARE_MAX) for name, shape in trainable)
        return (*parameter_spec(info), *first, *second)
