"""FedProto: Tan et al., "FedProto: Federated Prototype Learning across Heterogeneous Clients", AAAI 2022
(arXiv:2105.00243).

DFPL builds on it, so its file holds the equations: here are the settings that make them FedProto's, from its code.

A newcomer starts from a new model of its own, a leaver's prototypes go with it, as in DFPL.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from fedchain.learning.methods.dfpl import Dfpl


@dataclass(frozen=True, kw_only=True)
class FedProto(Dfpl):
    """Own models, common prototypes: CE + lambda * mean squared distance to the example's global prototype (Eq. 7)."""

    beyond_dp_sgd: ClassVar[str] = ""
    beyond_late: ClassVar[str] = ""
    beyond_rules: ClassVar[str] = ""

    learning_rate: float = 0.01
    """Step size eta of local SGD."""

    batch_size: int = 4
    """Examples per minibatch, B; the published code takes 32 for CIFAR-10."""

    local_epochs: int = 1
    """Passes over the client's data per round; if 0, local_steps minibatch steps."""

    momentum: float = 0.5
    """Momentum of local SGD; its buffer starts empty in every round."""

    shared_init: bool = False
    """Whether all clients start from the same random model; otherwise each draws its own."""

    prototype_source: Literal["recompute", "last_epoch"] = "last_epoch"
    """The prototypes that are posted: recompute (class means under the trained model, all data, evaluation mode) or
    last_epoch (means of the embeddings seen during the last pass of training, as the published code)."""
