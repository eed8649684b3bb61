"""FedGKT's loss."""

import numpy as np
import pytest
import torch

from fedchain.learning.families.distillation import Given
from fedchain.learning.methods.fedgkt import FedGkt
from tests.support.learning.divergence import LOGITS, THEIRS, softmax, weighted_kl

LABELS = np.array([0, 1, 2, 3, 3, 1])
OWN, COMMON = np.array([0.6, 0.2, 0.1, 0.1]), np.array([0.1, 0.4, 0.3, 0.2])
GIVEN = Given(torch.from_numpy(THEIRS), torch.from_numpy(OWN), torch.from_numpy(COMMON))
CROSS_ENTROPY = float(-np.log(softmax(LOGITS))[range(6), LABELS].mean())


def client(method: FedGkt) -> float:
    return float(method.client_objective(torch.from_numpy(LOGITS), torch.from_numpy(LABELS), GIVEN))


def server(method: FedGkt) -> float:
    return float(method.server_objective(torch.from_numpy(LOGITS), torch.from_numpy(LABELS), GIVEN))


@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_fedgkt_minimises_cross_entropy_and_the_divergence_from_the_other_side(temperature: float) -> None:
    method = FedGkt(temperature=temperature, distillation_weight=0.7)
    expected = CROSS_ENTROPY + 0.7 * weighted_kl(1.0, temperature)  # Eqs. 2 and 4
    assert client(method) == pytest.approx(expected, rel=1e-12)
    assert server(method) == pytest.approx(expected, rel=1e-12)
