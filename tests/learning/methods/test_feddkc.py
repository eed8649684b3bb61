"""FedDKC: its aggregator learns from refined knowledge."""

from typing import Any

import numpy as np
import pytest
import torch

from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.families.distillation import Given
from fedchain.learning.methods.feddkc import FedDkc
from fedchain.learning.methods.fedgkt import FedGkt
from fedchain.learning.models.registry import describe_model
from tests.support.learning.divergence import LOGITS, THEIRS, softmax

LABELS = np.array([0, 1, 2, 3, 3, 1])
OWN, COMMON = np.array([0.6, 0.2, 0.1, 0.1]), np.array([0.1, 0.4, 0.3, 0.2])
GIVEN = Given(torch.from_numpy(THEIRS), torch.from_numpy(OWN), torch.from_numpy(COMMON))
CROSS_ENTROPY = float(-np.log(softmax(LOGITS))[range(6), LABELS].mean())


def client(method: FedGkt) -> float:
    return float(method.client_objective(torch.from_numpy(LOGITS), torch.from_numpy(LABELS), GIVEN))


def server(method: FedGkt) -> float:
    return float(method.server_objective(torch.from_numpy(LOGITS), torch.from_numpy(LABELS), GIVEN))


def test_feddkc_s_aggregator_learns_from_refined_knowledge() -> None:
    kernel = FedDkc(peak=0.3, sharpness=0.5)
    rows = softmax(THEIRS / (0.5 * 3))
    expected = np.stack(
        [((4 * 0.3 - 1) * row + row.max() - 0.3) / (4 * row.max() - 1) for row in rows]
    )  # phi, where it is not negative
    refined = kernel.local_knowledge(torch.from_numpy(THEIRS)).numpy()
    linear = (expected >= 0).all(axis=1)
    assert linear.any()
    np.testing.assert_allclose(refined[linear], expected[linear], rtol=1e-10)
    np.testing.assert_allclose(refined.max(axis=1), 0.3)
    q = softmax(LOGITS / 3)
    distance = 9 * (refined * np.log(refined / q)).sum() / 6
    assert server(kernel) == pytest.approx(CROSS_ENTROPY + 1.5 * distance, rel=1e-9)
    assert client(kernel) == pytest.approx(client(FedGkt())), "what clients learn from stays as it is"
    search = FedDkc(refinement="skr", entropy_bits=1.7).local_knowledge(torch.from_numpy(THEIRS))
    np.testing.assert_allclose(-(search * search.log2()).sum(dim=1), 1.7, atol=1e-4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"peak": 0.1}, "peak must be above 1/10, not 0.1: it would be no peak"),
        ({"refinement": "skr", "entropy_bits": float(np.log2(10))}, "entropy_bits must be below 3.3219"),
    ],
)
def test_knowledge_without_a_peak_is_not_asked_for(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        FedDkc(**settings).validate_model(describe_model("resnet2-56"))
