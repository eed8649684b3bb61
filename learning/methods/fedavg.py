"""FedAvg: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017.

Algorithm 1's ClientUpdate is the family's. K clients, n_k training examples of client k.

A newcomer starts from the common model and counts with its n_k at once. A leaver leaves nothing behind: n is summed
over the round's posts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedchain.files.effects import Needs
from fedchain.learning.aggregation.mean import WEIGHT_MAX
from fedchain.learning.families.parameters import ParametersMethod
from fedchain.learning.method import Phase
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.models.parameters import read_parameters
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.round import ReadPost, Round, Tensors

if TYPE_CHECKING:
    from fedchain.learning.client import Client

INITIAL_MODEL = Phase("initial_model")
"""Setup phase of a rule that moves the common model by a step, and so must find the first one on the chain. All clients
post the same; a client that posts another one shifts the plain mean, as in any round."""


@dataclass(frozen=True, kw_only=True)
class FedAvg(ParametersMethod):
    """Clients train the common model; the next one is the mean of theirs, weighted by their examples."""

    weighting: Annotated[
        Literal["examples", "clients"], Needs("weighs_posts", why="what is set makes no weighted mean")
    ] = "examples"
    """How much a client's model counts: as its examples (n_k / n), or as every other client's (1 / K).
    Clients state n_k themselves; no aggregation rule but the plain mean looks at it."""

    beyond_dp_sgd: ClassVar[str] = ""
    beyond_late: ClassVar[str] = ""
    beyond_rules: ClassVar[str] = ""
    beyond_fedex: ClassVar[str] = ""

    def initial_model(self, client: Client, round: Round) -> Tensors:
        """Post the model as it is: the setup of methods that have one (`INITIAL_MODEL`)."""
        return read_parameters(client.model)

    def aggregate(self, phase: Phase, round: Round) -> Tensors:
        """w <- sum_k n_k / n * w_k (Algorithm 1, server), late models by what they changed, or the robust rule."""
        return self.combine(round, self.weight)

    def post_model(self, client: Client) -> dict[str, NDArray[Any]]:
        """Return the client's parameters and n_k."""
        return super().post_model(client) | {"examples": np.array([len(client.train_labels)], dtype=np.int64)}

    @property
    def weighs_posts(self) -> bool:
        """Whether the aggregate is a weighted mean."""
        return self.robust_rule is None

    def weights(self, round: Round) -> list[int]:
        """Return the weight of each post, (K,)."""
        return [self.weight(post) for post in round.posts]

    def weight(self, post: ReadPost) -> int:
        """Return the weight of a post."""
        return 1 if self.weighting == "clients" else int(post.payload["examples"][0])

    def payload_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """The model's tensors and the bounded number of examples."""
        return (
            *super().payload_spec(phase, info),
            TensorSpec("examples", (1,), "int64", minimum=1, maximum=WEIGHT_MAX),
        )
