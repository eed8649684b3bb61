"""FedProx against its formulas."""

import torch

from fedchain.learning.methods.fedprox import FedProx
from fedchain.learning.models.vectors import read_vector
from fedchain.learning.round import Round
from fedchain.learning.training.loop import draw_batches
from tests.support.learning.federation import gradient_at, new_client

FIRST = Round(1, None, clients=3)


def test_fedprox_steps_along_the_gradient_of_its_objective() -> None:
    method = FedProx(proximal_weight=0.3, local_steps=2, batch_size=4)
    client = new_client()
    start = read_vector(client.model)
    method.update(client, FIRST)
    batches = draw_batches(12, 4, torch.Generator().manual_seed(2))
    point = start.clone()
    for _ in range(2):
        point = point - 0.1 * (gradient_at(point, next(batches)) + 0.3 * (point - start))
    torch.testing.assert_close(read_vector(client.model), point)
