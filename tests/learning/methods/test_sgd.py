"""SGD against its formulas."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.methods.sgd import Sgd
from fedchain.learning.models.vectors import gradient_vector, read_vector
from fedchain.learning.round import Round
from fedchain.learning.worker.learner import Learner
from tests.support.learning.federation import Federation, config, vector_of

FIRST = Round(1, None, clients=3)


def test_sgd_is_one_step_along_the_gradient_over_all_clients_examples() -> None:
    federation = Federation(config("sgd"))
    clients = [Learner(federation.config).client(index) for index in range(3)]
    model = clients[0].model
    images = torch.cat([client.train_images for client in clients])
    labels = torch.cat([client.train_labels for client in clients])
    expected = read_vector(model) - 0.1 * gradient_vector(F.cross_entropy(model(images)[1], labels), model)
    made = federation.play()
    assert [contribution.steps for contribution in made] == [1, 1, 1]
    np.testing.assert_allclose(vector_of(federation.known()), expected.numpy(), atol=1e-6)


@pytest.mark.parametrize("changes", [{"local_steps": 2}, {"local_epochs": 1}])
def test_sgd_takes_one_step(changes: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match="must lie in"):
        Sgd(**changes)  # type: ignore[arg-type]
