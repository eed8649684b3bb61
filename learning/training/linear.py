"""Logistic regressions of many clients, trained at once: one batched matrix product does a step of all of them.

The batches are those of `training.loop.train`, client by client, and so are the results except for rounding: sums run
in another order. K clients, B batch, C classes, F features.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

import torch
import torch.nn.functional as F

from fedchain.learning.client import Client
from fedchain.learning.models.small import Logistic
from fedchain.learning.training.loop import draw_batches, take_step
from fedchain.learning.training.schedule import Schedule, count_steps

SCALARS_MAX = 1 << 20
"""Features that are gathered at a time, of all clients' next batches together."""


def is_linear(client: Client) -> bool:
    """Whether the client's model can be trained here."""
    return isinstance(client.model, Logistic) and client.augmentation is None


@torch.no_grad()
def train_linear(clients: Sequence[Client], schedule: Schedule, *, proximal_weight: float = 0.0) -> torch.Tensor:
    """Train the clients' models in place on cross-entropy, and count the steps in `client.steps`.

    `proximal_weight` is FedProx's mu, of the squared distance to the models as they were. Returns for each client
    whether all its losses were finite, (K,) bool; a model with other losses is of no use.
    """
    are_finite = torch.ones(len(clients), dtype=torch.bool)
    alike: dict[tuple[int, int], list[int]] = {}  # clients by the numbers of their steps and of examples in each
    for place, client in enumerate(clients):
        examples = len(client.train_labels)
        kind = count_steps(schedule, examples), min(schedule.batch_size, examples)
        alike.setdefault(kind, []).append(place)
    for (steps, size), places in alike.items():
        group = [clients[place] for place in places]
        are_finite[places] = _train_alike(group, steps, size, schedule, proximal_weight)
    return are_finite


def _train_alike(
    clients: Sequence[Client], steps: int, size: int, schedule: Schedule, proximal_weight: float
) -> torch.Tensor:
    """Train clients that take the same number of steps on batches of the same size B."""
    layers = [client.model.get_submodule("fc") for client in clients]
    weights = torch.stack([layer.get_parameter("weight") for layer in layers])  # (K, C, F)
    biases = torch.stack([layer.get_parameter("bias") for layer in layers]).unsqueeze(1)  # (K, 1, C)
    values = weights, biases
    common = weights.clone(), biases.clone()
    velocities = [torch.zeros_like(value) for value in values]
    losses = torch.zeros(len(clients))
    for inputs, targets in _gather(clients, steps, size, weights.shape[1]):  # (K, B, F), (K, B, C)
        log_shares = torch.baddbmm(biases, inputs, weights.mT).log_softmax(dim=2)  # (K, B, C)
        losses -= (log_shares * targets).sum(dim=(1, 2)) / size
        errors = (log_shares.exp() - targets) / size  # (K, B, C), the gradient of the loss with respect to the logits
        gradients = [errors.mT @ inputs, errors.sum(dim=1, keepdim=True)]  # (K, C, F), (K, 1, C)
        if proximal_weight > 0:
            pairs = zip(values, common, strict=True)
            pulls = [proximal_weight * (value - start) for value, start in pairs]
            gradients = [gradient + pull for gradient, pull in zip(gradients, pulls, strict=True)]
        take_step(values, gradients, velocities, schedule)
    for place, (client, layer) in enumerate(zip(clients, layers, strict=True)):
        layer.get_parameter("weight").copy_(weights[place])
        layer.get_parameter("bias").copy_(biases[place, 0])
        client.steps += steps
    return torch.isfinite(losses)


def _gather(
    clients: Sequence[Client], steps: int, size: int, classes: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the inputs (K, B, F) and one-hot labels (K, B, C) of each step, gathered for as many as fit at a time."""
    drawn = [draw_batches(len(client.train_labels), size, client.generator) for client in clients]
    scalars = len(clients) * size * clients[0].train_images[0].numel()
    at_once = max(1, SCALARS_MAX // scalars)
    for begin in range(0, steps, at_once):
        count = min(at_once, steps - begin)
        rows = [torch.cat(list(islice(batches, count))) for batches in drawn]  # K times (steps B,)
        chosen = list(zip(clients, rows, strict=True))
        inputs = torch.stack([client.train_images.index_select(0, row).flatten(1) for client, row in chosen])
        labels = torch.stack([client.train_labels.index_select(0, row) for client, row in chosen])
        targets = F.one_hot(labels, classes).to(inputs.dtype)
        yield from zip(torch.split(inputs, size, dim=1), torch.split(targets, size, dim=1), strict=True)
