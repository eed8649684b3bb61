"""FedAvg: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017.

B batch, C classes, K clients, n_k training examples of client k.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedchain.learning.aggregation.mean import WEIGHT_MAX
from fedchain.learning.families.robust import RobustMethod
from fedchain.learning.method import Phase
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.models.parameters import combine_parameters, load_parameters, parameter_spec, read_parameters
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.round import Round, Tensors

if TYPE_CHECKING:
    import torch

    from fedchain.learning.client import Client, Forward
    from fedchain.learning.training.loop import Correct

INITIAL_MODEL = Phase("initial_model")
"""Setup phase of a rule that moves the common model by a step, and so must find the first one on the chain. All clients
post the same; a client that posts another one shifts the plain mean, as in any round."""


@dataclass(frozen=True, kw_only=True)
class FedAvg(RobustMethod):
    """Clients train the common model; the next one is the mean of theirs, weighted by their examples."""

    weighting: Literal["examples", "clients"] = "examples"
    """How much a client's model counts: as its examples (n_k / n), or as every other client's (1 / K).
    Clients state n_k themselves; no aggregation rule but the plain mean looks at it."""

    beyond_dp_sgd: ClassVar[str] = ""
    has_update_together: ClassVar[bool] = True

    def update(self, client: Client, round: Round) -> Tensors:
        """Train locally (Algorithm 1, ClientUpdate); post the parameters and n_k."""
        self.train(client, round, correct=self.correction(client))
        return self.post_model(client)

    def correction(self, client: Client) -> Correct | None:
        """Return the addition to the gradient in this round, for a client that has just received; None if none."""
        return None

    def update_together(self, clients: Sequence[Client], round: Round) -> Sequence[Tensors | None]:
        """Train logistic regressions at once."""
        from fedchain.learning.training.linear import train_linear

        are_finite = train_linear(clients, self.schedule)
        return [self.post_model(client) if are_finite[place] else None for place, client in enumerate(clients)]

    uses_embedding: ClassVar[bool] = False
    shares_model: ClassVar[bool] = True

    def receive(self, client: Client, round: Round) -> None:
        """Start the round from the common model."""
        if round.knowledge is not None:
            load_parameters(client.model, round.knowledge)

    def loss(self, forward: Forward, images: torch.Tensor, labels: torch.Tensor, given: Any) -> torch.Tensor:
        """Cross-entropy."""
        import torch.nn.functional as F

        _, logits = forward(images)  # (B, C)
        return F.cross_entropy(logits, labels)

    def initial_model(self, client: Client, round: Round) -> Tensors:
        """Post the model as it is: the setup of methods that have one (`INITIAL_MODEL`)."""
        return read_parameters(client.model)

    def aggregate(self, phase: Phase, round: Round) -> Tensors:
        """w <- sum_k n_k / n * w_k (Algorithm 1, server), or the robust rule."""
        return combine_parameters(self.robust_rule, round, self.weights(round))

    def post_model(self, client: Client) -> dict[str, NDArray[Any]]:
        """Return the client's parameters and n_k."""
        return read_parameters(client.model) | {"examples": np.array([len(client.train_labels)], dtype=np.int64)}

    def weights(self, round: Round) -> list[int]:
        """Return the weight of each post, (K,)."""
        if self.weighting == "clients":
            return [1] * len(round.posts)
        return [int(post.payload["examples"][0]) for post in round.posts]

    def payload_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """The model's tensors and the bounded number of examples."""
        return (*parameter_spec(info), TensorSpec("examples", (1,), "int64", minimum=1, maximum=WEIGHT_MAX))

    def knowledge_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """The model's tensors."""
        return parameter_spec(info)
