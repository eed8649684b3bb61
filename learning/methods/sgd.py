"""SGD: the baseline of Xu et al., "Acceleration of Federated Learning with Alleviated Forgetting in Local Training"
(FedReg), ICLR 2022, section 4: FedAvg with a single local step over all data of a client.

The mean of the models after one step is a step along the mean gradient, as if all examples of the round's clients lay
in one place, as a centralized optimiser would do with large batches. The authors weigh clients alike instead
(`weighting = "clients"`): the step is along the mean of the clients' mean gradients.

A newcomer starts from the common model. A leaver leaves nothing behind: n is summed over the round's posts.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from fedchain.files.effects import Needs
from fedchain.learning.method import validate_range
from fedchain.learning.methods.fedavg import FedAvg

_KEPT = Needs("optimizer", ("momentum",), "a round is one step, from an empty buffer unless optimizer is momentum")


@dataclass(frozen=True, kw_only=True)
class Sgd(FedAvg):
    """w <- w - eta sum_k n_k/n g_k(w), g_k the gradient over all examples of client k."""

    beyond_dp_sgd: ClassVar[str] = ""
    beyond_late: ClassVar[str] = ""
    beyond_rules: ClassVar[str] = ""
    beyond_fedex: ClassVar[str] = ""

    batch_size: int = 1 << 20
    """Examples per minibatch; the default is more than any client has, so that a step sees all of them."""

    local_steps: int = 1
    """Steps of a client per round: one."""

    momentum: Annotated[float, _KEPT] = 0.0
    """Momentum; it takes optimizer = momentum, which keeps the buffer between rounds."""

    def validate(self) -> None:
        """Raise `ConfigurationError` for a hyper-parameter outside its range."""
        super().validate()
        validate_range("local_steps", self.local_steps, 1, 1)
        validate_range("local_epochs", self.local_epochs, 0, 0)
