"""BLADE-FL: Li et al., "Blockchain Assisted Decentralized Federated Learning (BLADE-FL): Performance Analysis and
Resource Allocation", IEEE Transactions on Parallel and Distributed Systems 33(10), 2022.

Training and posting (steps 1 and 2) are the family's. K clients.

A newcomer starts from the common model, as everybody does. A leaver leaves nothing behind: its model is part of the
last mean that counts it, and K is the number of posts.
"""

from dataclasses import dataclass
from typing import ClassVar

from fedchain.learning.families.parameters import ParametersMethod
from fedchain.learning.method import Phase
from fedchain.learning.round import Round, Tensors


@dataclass(frozen=True, kw_only=True)
class BladeFl(ParametersMethod):
    """Every client trains, broadcasts its model, mines, and averages all models with equal weights."""

    beyond_dp_sgd: ClassVar[str] = ""
    beyond_late: ClassVar[str] = ""
    beyond_rules: ClassVar[str] = ""
    beyond_fedex: ClassVar[str] = ""

    def aggregate(self, phase: Phase, round: Round) -> Tensors:
        """w <- 1/K sum_k w_k, every client counting the same, or the robust rule."""
        return self.combine(round, lambda post: 1)
