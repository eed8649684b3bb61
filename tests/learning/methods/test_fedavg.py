"""FedAvg's mean."""

import numpy as np

from fedchain.learning.methods.fedavg import FedAvg
from tests.support.learning.formulas import (
    aggregate,
    random_models,
)


def test_fedavg_weights_models_by_their_examples() -> None:
    models, examples = random_models(3), [5, 1, 10]
    found = aggregate(FedAvg(), [m | {"examples": np.array([n])} for m, n in zip(models, examples, strict=True)])
    expected = np.average([m["model.w"] for m in models], axis=0, weights=examples)
    assert found.keys() == {"model.w"}
    np.testing.assert_allclose(found["model.w"], expected, rtol=1e-6)
