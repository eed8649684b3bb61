"""FedAdam: Reddi et al., "Adaptive Federated Optimization", ICLR 2021 (arXiv:2003.00295).

K clients.

A newcomer starts from the common model. A leaver has moved both moments, which go on as they are: its part in them
decays by beta1 and beta2.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedchain.learning.aggregation.mean import round_once, weighted_sum
from fedchain.learning.method import Phase, validate_range
from fedchain.learning.methods.fedavg import INITIAL_MODEL, FedAvg
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.models.parameters import PREFIX, combine_parameters, parameter_spec
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

    beyond_dp_sgd: ClassVar[str] = ""
    beyond_late: ClassVar[str] = "its server takes one round's mean for a gradient"
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
        found = dict(mean)
        for name in mean:
            if name.startswith(PREFIX):
                found |= self._move(name, round, mean[name])
        return found

    def _move(self, name: str, round: Round, combined: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return one tensor and its moments after the step; a robust rule has rounded its result once more."""
        tensor, weights = name.removeprefix(PREFIX), self.weights(round)
        mean = combined.astype(np.float64)
        if self.robust_rule is None:
            mean = weighted_sum([post.payload[name] for post in round.posts], weights) / sum(weights)
        if round.knowledge is None:  # nobody posted the initial model in time
            still = np.zeros(mean.shape, dtype=np.float32)
            return {name: round_once(mean), FIRST + tensor: still, SECOND + tensor: still}
        before = round.knowledge[name].astype(np.float64)
        delta = before - mean
        m = self.beta1 * self._moment(round, FIRST + tensor) + (1 - self.beta1) * delta
        v = self.beta2 * self._moment(round, SECOND + tensor) + (1 - self.beta2) * delta * delta
        moved = before - self.server_learning_rate * m / (np.sqrt(v) + self.tau)
        return {name: round_once(moved), FIRST + tensor: round_once(m), SECOND + tensor: round_once(v)}

    def _moment(self, round: Round, name: str) -> Any:
        """Return a moment as the last round left it; the setup leaves none."""
        assert round.knowledge is not None
        return round.knowledge[name].astype(np.float64) if name in round.knowledge else 0.0

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
