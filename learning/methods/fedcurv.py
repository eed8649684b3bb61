"""FedCurv: Shoham et al., "Overcoming Forgetting in Federated Learning on Non-IID Data", 2019 (arXiv:1910.07796).

The rule for which clients' terms count, and the Fisher information's sample, follow the code of FedReg (Xu et al.,
ICLR 2022), which compares with FedCurv. K clients, P scalars of the model.

A newcomer starts from the common model, held by the last round's sums. A leaver's F_k and F_k theta_k are in those sums
for one round more, since they are replaced and not added to.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedchain.learning.aggregation.mean import by_block, weighted_sum
from fedchain.learning.config import CLIENTS_MAX
from fedchain.learning.method import Phase, validate_range
from fedchain.learning.methods.fedavg import FedAvg
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.payload.lazy import LazyTensors
from fedchain.learning.payload.spec import MAGNITUDE_MAX, TensorSpec
from fedchain.learning.round import Round, Tensors

if TYPE_CHECKING:
    import torch

    from fedchain.learning.client import Client


@dataclass(frozen=True, kw_only=True)
class FedCurv(FedAvg):
    """FedAvg with elastic weights: parameters that mattered to the clients of the last round are held fast.

    The term of Eq. 5 is lambda sum_j (theta - theta_j)' diag(F_j) (theta - theta_j), of which sum_j F_j and
    sum_j F_j theta_j are all that a client needs.
    """

    curvature_weight: float = 1e-4
    """Weight lambda of the elastic term."""

    beyond_dp_sgd: ClassVar[str] = "it posts the Fisher information of single examples"
    beyond_rules: ClassVar[str] = ""
    beyond_fedex: ClassVar[str] = "its Fisher information is that of the frozen weights as they were"

    def validate(self) -> None:
        """Raise `ConfigurationError` for a hyper-parameter outside its range."""
        super().validate()
        validate_range("curvature_weight", self.curvature_weight, 0.0, 1e6)

    def update(self, client: Client, round: Round) -> Tensors:
        """Train with the elastic term; post the parameters, n_k, F_k and F_k theta_k (section 3.2)."""
        from fedchain.learning.models.vectors import kept_vector, trained_parameters, unflatten
        from fedchain.learning.training.loop import Correction

        self.train(client, round, correct=Correction(self._elastic, known_sums(client.info, round)))
        fisher, model = self.fisher_information(client), trained_parameters(client.model)
        parts = zip(unflatten(fisher, model), model, strict=True)
        weighted = kept_vector((f * theta.detach() for f, theta in parts), round.spools)  # F_k theta_k, (P,)
        return self.post_model(client) | {"fisher": fisher.numpy(), "fisher_parameters": weighted.numpy()}

    def _elastic(
        self, gradient: torch.Tensor, parameter: torch.Tensor, fisher: torch.Tensor, weighted: torch.Tensor
    ) -> torch.Tensor:
        """Add the gradient of the elastic term to that of a tensor, of its parts of sum_j F_j and sum_j F_j theta_j."""
        return gradient + 2 * self.curvature_weight * (fisher * parameter - weighted)

    def fisher_information(self, client: Client) -> torch.Tensor:
        """Return the diagonal F_k (P,): the mean squared gradient of single examples' losses, in evaluation mode."""
        import torch

        from fedchain.learning.models.vectors import trained_parameters, unflatten
        from fedchain.learning.training.gradients import gradients_of

        client.model.eval()
        total, parameters = torch.zeros(client.info.parameter_count), trained_parameters(client.model)
        parts = unflatten(total, parameters)
        images, labels = torch.split(client.train_images, 1), torch.split(client.train_labels, 1)
        for image, label in zip(images, labels, strict=True):
            loss = self.loss(client.model, image, label, None)
            for part, gradient in zip(parts, gradients_of(loss, parameters), strict=True):
                part.add_(gradient.square())
        return total.div_(len(client.train_labels))

    def aggregate(self, phase: Phase, round: Round) -> Tensors:
        """The weighted mean of the models, sum_k F_k and sum_k F_k theta_k."""
        posted = [{name: post.payload[name] for name in ("fisher", "fisher_parameters")} for post in round.posts]
        means = None if self.robust_rule is None else self.robust_rule.combine(posted)

        def summed(name: str) -> NDArray[Any]:
            if means is None:
                return by_block([own[name] for own in posted], lambda parts: weighted_sum(parts, [1.0] * len(parts)))
            # the clients' mean, by the rule, times their number
            return by_block([means[name]], lambda parts: parts[0].astype(np.float64) * float(len(posted)))

        return self.combine(round, self.weight) | LazyTensors({name: partial(summed, name) for name in posted[0]})

    def payload_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """The model's tensors, n_k, F_k and F_k theta_k."""
        return (*super().payload_spec(phase, info), *_fisher_spec(info))

    def knowledge_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """The model's tensors and both sums."""
        return (*super().knowledge_spec(phase, info), *_fisher_spec(info, CLIENTS_MAX * MAGNITUDE_MAX))


def known_sums(info: ModelInfo, round: Round) -> tuple[torch.Tensor, torch.Tensor]:
    """Return sum_j F_j and sum_j F_j theta_j over the last round's clients, (P,) each; zero at first."""
    import torch

    from fedchain.learning.models.vectors import kept_vector

    if round.knowledge is None:
        zero = torch.zeros(()).expand(info.parameter_count)
        return zero, zero
    fisher, weighted = (kept_vector([round.knowledge[name]], round.spools) for name in ("fisher", "fisher_parameters"))
    return fisher, weighted


def _fisher_spec(info: ModelInfo, magnitude_max: float = MAGNITUDE_MAX) -> tuple[TensorSpec, ...]:
    size = (info.parameter_count,)
    return (
        TensorSpec("fisher", size, minimum=0, magnitude_max=magnitude_max),
        TensorSpec("fisher_parameters", size, magnitude_max=magnitude_max),
    )
