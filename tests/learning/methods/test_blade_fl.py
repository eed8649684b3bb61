"""BLADE-FL's loss and its mean."""

import numpy as np
import pytest

from fedchain.learning.families.local_sgd import LocalSgdMethod
from fedchain.learning.methods.blade_fl import BladeFl
from fedchain.learning.methods.dfpl import Dfpl
from fedchain.learning.methods.fedavg import FedAvg
from fedchain.learning.methods.solo import Solo
from tests.support.learning.formulas import (
    CROSS_ENTROPY,
    aggregate,
    loss_of,
    random_models,
)


@pytest.mark.parametrize("method", [FedAvg(), BladeFl(), Solo(), Dfpl(regularizer_weight=0.0)])
def test_the_loss_without_a_regularizer_is_cross_entropy(method: LocalSgdMethod) -> None:
    assert loss_of(method) == pytest.approx(CROSS_ENTROPY, rel=1e-12)


def test_blade_fl_is_fedavg_with_equal_weights_to_the_bit() -> None:
    models = random_models(4)
    found = aggregate(BladeFl(), models)
    np.testing.assert_allclose(found["model.w"], np.mean([m["model.w"] for m in models], axis=0), rtol=1e-6)
    equal = aggregate(FedAvg(), [model | {"examples": np.array([1])} for model in models])
    assert found["model.w"].tobytes() == equal["model.w"].tobytes()
