"""pFedMe: Dinh et al., "Personalized Federated Learning with Moreau Envelopes", NeurIPS 2020 (arXiv:2006.08848).

w is the common model and a client's copy of it in training, theta the client's personal model. P scalars of the model,
K clients.

A newcomer starts from the common model, theta as well, whatever `start` says. A leaver takes theta with it; w goes on
from the mean of those who post.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedchain.learning.aggregation.mean import by_block, weighted_sum
from fedchain.learning.method import Phase, validate_range
from fedchain.learning.methods.fedavg import FedAvg
from fedchain.learning.models.parameters import PREFIX, combine_parameters
from fedchain.learning.payload.lazy import LazyTensors
from fedchain.learning.round import Round, Tensors

if TYPE_CHECKING:
    import torch

    from fedchain.learning.client import Client
    from fedchain.learning.training.loop import Step


@dataclass(slots=True)
class PFedMeState:
    """The state that a client keeps between rounds."""

    personal: torch.Tensor | None = None
    """theta, (P,), as its last round left it."""


@dataclass(frozen=True, kw_only=True)
class PFedMe(FedAvg):
    """Clients fit personal models near the common one, and move the common one towards them; theta is the result."""

    learning_rate: float = 0.005
    """Step size eta of the local copy of the common model w."""

    personal_learning_rate: float = 0.09
    """Step size of the personal model theta."""

    personal_steps: int = 5
    """Steps of theta on each minibatch, K."""

    proximal_weight: float = 15.0
    """Weight lambda of the squared distance between theta and w."""

    mixing: float = 1.0
    """beta: the next common model is (1 - beta) w + beta times the mean of the clients'; above 1 it goes further."""

    weight_decay: float = 0.001
    """L2 penalty of theta; the published code has it, the paper has not."""

    start: Literal["common", "personal"] = "common"
    """Where theta starts a round: at the common model, or where the client's own left off."""

    beyond_dp_sgd: ClassVar[str] = "its steps are its own"
    beyond_late: ClassVar[str] = "its clients remember models of their own"
    beyond_rules: ClassVar[str] = ""
    beyond_fedex: ClassVar[str] = "its clients remember models of their own"
    alone: ClassVar[str] = beyond_dp_sgd
    sgd_alone: ClassVar[str] = "its two step sizes are Algorithm 1's"

    def validate(self) -> None:
        """Raise `ConfigurationError` for a hyper-parameter outside its range."""
        super().validate()
        validate_range("personal_learning_rate", self.personal_learning_rate, 0.0, 1e3, low_open=True)
        validate_range("personal_steps", self.personal_steps, 1, 1 << 20)
        validate_range("proximal_weight", self.proximal_weight, 0.0, 1e6)
        validate_range("mixing", self.mixing, 0.0, 10.0, low_open=True)
        validate_range("momentum", self.momentum, 0.0, 0.0)

    def update(self, client: Client, round: Round) -> Tensors:
        """Train theta and w (Algorithm 1); post w and n_k; the client's model is theta from here on."""
        from fedchain.learning.models.vectors import read_vector, write_vector
        from fedchain.learning.training.loop import run_steps

        local = read_vector(client.model)  # w, (P,)
        state = client.state(PFedMeState)
        if self.start == "personal" and state.personal is not None:
            write_vector(client.model, state.personal)
        schedule = self.schedule_in(round.number)
        run_steps(client, self.step(client, local, schedule.learning_rate), schedule, round.number)
        state.personal = personal = read_vector(client.model)  # theta, (P,)
        write_vector(client.model, local)
        posted = self.post_model(client)
        write_vector(client.model, personal)
        return posted

    def step(self, client: Client, local: torch.Tensor, rate: float) -> Step:
        """Build the local iteration; it moves the client's model, theta, and `local`, which is w."""
        from fedchain.learning.models.vectors import gradient_vector, read_vector, write_vector

        def step(images: torch.Tensor, labels: torch.Tensor, given: None) -> torch.Tensor:
            for _ in range(self.personal_steps):
                theta = read_vector(client.model)
                loss = self.loss(client.model, images, labels, given)
                gradient = gradient_vector(loss, client.model)
                pull = self.proximal_weight * (theta - local) + self.weight_decay * theta
                write_vector(client.model, theta - self.personal_learning_rate * (gradient + pull))  # Eq. 7
            theta = read_vector(client.model)
            local.sub_(rate * self.proximal_weight * (local - theta))  # line 8
            return loss

        return step

    def aggregate(self, phase: Phase, round: Round) -> Tensors:
        """w <- (1 - beta) w + beta * mean of w_k (line 11); the first round, without w on the chain, takes the mean."""
        weights = self.weights(round)  # (K,)
        mean = combine_parameters(self.robust_rule, round, self.weight)
        if round.knowledge is None or self.mixing == 1.0:
            return mean
        before, is_mean = round.knowledge, self.robust_rule is None

        def mix(name: str) -> NDArray[Any]:
            def mixed(parts: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
                last, *rest = parts
                now = weighted_sum(rest, weights) / sum(weights) if is_mean else rest[0].astype(np.float64)
                return (1 - self.mixing) * last.astype(np.float64) + self.mixing * now

            now = [post.payload[name] for post in round.posts] if is_mean else [mean[name]]
            return by_block([before[name], *now], mixed)

        return mean | LazyTensors({name: partial(mix, name) for name in mean if name.startswith(PREFIX)})
