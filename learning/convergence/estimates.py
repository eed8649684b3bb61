"""Estimates of the constants in DFPL's assumptions (arXiv:2505.04947, section IV-A), from a short training run.

A few clients train for a few rounds, as the method trains them. At checkpoints along the way their gradients are
taken again, on single batches and on all their data. A Lipschitz constant holds for *all* pairs of models and is
estimated by the largest ratio among those that were seen: the true one is larger, and bounds that follow are too
generous rather than too strict. B batch, D embedding, n examples of a client, P parameters.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations, islice
from typing import Any

import torch

from fedchain.learning.client import Client
from fedchain.learning.convergence.theory import Constants
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.families.prototypes import Known, known_prototypes
from fedchain.learning.methods.dfpl import Dfpl
from fedchain.learning.round import ReadPost, Round, Tensors
from fedchain.learning.training.loop import draw_batches
from fedchain.learning.training.schedule import batches_per_pass, count_steps
from fedchain.learning.worker.learner import Learner

CLIENTS_MAX = 20
"""Clients that are measured; of more, the first so many."""

EXAMPLES_MAX = 4096
"""Examples used of a client; of more, the first so many stand for all: gradients over all are taken in one piece."""

BATCHES_MAX = 8
"""Batch gradients at one checkpoint."""

EMBEDDINGS_MAX = 256
"""Examples of a client whose embeddings are compared."""


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """Measurements of one client at one set of parameters."""

    parameters: torch.Tensor
    """(P,), float64."""

    gradient: torch.Tensor
    """(P,), float64: of the loss over all the client's data, without dropout."""

    loss: float
    """The loss itself."""

    batch_norm: float
    """Mean norm of the gradients of single batches, with dropout, as training takes them."""

    batch_variance: float
    """Mean squared distance of these to `gradient`."""

    extractor: torch.Tensor
    """(P',), float64: the parameters that the embedding depends on."""

    embeddings: torch.Tensor
    """(n, D), float64."""


def estimate_constants(learner: Learner, clients: int, *, checkpoints: int = 4) -> Constants:
    """Train the first `clients` clients for two rounds and measure at `checkpoints` places of each.

    The distance term takes part from round 2 on. Raises `ConfigurationError` unless the method is DFPL, posts what it
    has trained as it is, and takes two steps a round: slopes are between models of one round.
    """
    method = learner.method
    if not isinstance(method, Dfpl):
        raise ConfigurationError(f"the corollaries are about dfpl's loss, not {type(method).__name__}'s")
    if method.optimizer != "sgd" or method.schedule != "constant" or method.warmup_rounds:
        found = f"{method.optimizer}, schedule {method.schedule} and {method.warmup_rounds} rounds of warm-up"
        raise ConfigurationError(f"the corollaries are of sgd with one learning rate, not {found}")
    if method.adds_noise or method.encrypts:
        found = "noise" if method.adds_noise else "encryption"
        raise ConfigurationError(
            f"the corollaries are of prototypes without noise and in clear, not with {found} (--set bounds=false)"
        )
    if method.local_epochs == 0 and method.local_steps < 2:
        raise ConfigurationError(
            "local_steps is 1: the bounds are estimated between the steps of a round (--set bounds=false)"
        )
    paths: list[list[Checkpoint]] = []
    knowledge: Tensors | None = None
    for number in (1, 2):
        posts = []
        for index in range(min(clients, CLIENTS_MAX)):
            with learner.lend(index, number) as client:
                payload, path = observe_round(method, client, Round(number, knowledge), checkpoints)
            posts.append(ReadPost(index.to_bytes(4, "big"), payload))
            paths.append(path)
        knowledge = method.aggregate(method.phases[0], Round(number, knowledge, tuple(posts)))
    return constants_of(paths)


def constants_of(paths: Sequence[Sequence[Checkpoint]]) -> Constants:
    """Turn the measurements on all paths, one of each client and round, into constants that hold for all."""
    points = [point for path in paths for point in path]
    squares = [[float(point.gradient.square().sum()) for point in path] for path in paths]
    pairs = list(_pairs(paths))
    return Constants(
        smoothness=max((_gradient_slope(a, b) for a, b in pairs), default=0.0),
        lipschitz=max((_embedding_slope(a, b) for a, b in pairs), default=0.0),
        gradient_norm=max(point.batch_norm for point in points),
        variance=max(point.batch_variance for point in points),
        gap=max(path[0].loss for path in paths),
        gradient_square=min(sum(path) / len(path) for path in squares),
        first_gradient_square=min(path[0] for path in squares),
    )


def observe_round(method: Dfpl, client: Client, round: Round, checkpoints: int) -> tuple[Tensors, list[Checkpoint]]:
    """Let the client do its part of a round, then go back to `checkpoints` of its steps and measure there.

    Returns what it posts, and the checkpoints in order. The client is left as its training left it.
    """
    method.receive(client, round)
    steps = count_steps(method.schedule_in(round.number), len(client.train_labels))
    chosen = {step * (steps - 1) // max(1, checkpoints - 1) for step in range(checkpoints)}
    seen: list[list[torch.Tensor]] = []
    with _watched(client, seen, chosen):
        payload = method.update(client, round)
    trained = [value.detach().clone() for value in client.model.parameters()]
    path = []
    for parameters in seen:
        _load(client, parameters)
        path.append(_measure(method, client, known_prototypes(client.info, round)))
    _load(client, trained)
    return payload, path


@contextmanager
def _watched(client: Client, seen: list[list[torch.Tensor]], chosen: set[int]) -> Iterator[None]:
    """Copy the parameters as they are before the chosen steps: training runs the model forward once a step."""
    step = 0

    def note(model: Any, inputs: Any) -> None:
        nonlocal step
        if model.training:
            if step in chosen:
                seen.append([value.detach().clone() for value in model.parameters()])
            step += 1

    hook = client.model.register_forward_pre_hook(note)
    try:
        yield
    finally:
        hook.remove()


def _measure(method: Dfpl, client: Client, known: Known) -> Checkpoint:
    """Take gradients and embeddings at the parameters that the client's model has now."""
    images, labels = client.train_images[:EXAMPLES_MAX], client.train_labels[:EXAMPLES_MAX]
    client.model.eval()
    loss = method.loss(client.model, images, labels, known)
    gradient = _gradient(client, loss)  # (P,)
    embeddings = client.model(images[:EMBEDDINGS_MAX])[0]  # (n, D)
    extractor = _extractor(client, embeddings)
    client.model.train()
    size = method.batch_size
    count = min(BATCHES_MAX, batches_per_pass(len(labels), size))
    batches = [
        _gradient(client, method.loss(client.model, images[batch], labels[batch], known))
        for batch in islice(draw_batches(len(labels), size, client.generator), count)
    ]
    return Checkpoint(
        parameters=_flat([value for value in client.model.parameters() if value.requires_grad]),
        gradient=gradient,
        loss=float(loss.detach()),
        batch_norm=sum(float(torch.linalg.vector_norm(batch)) for batch in batches) / count,
        batch_variance=sum(float((batch - gradient).square().sum()) for batch in batches) / count,
        extractor=extractor,
        embeddings=embeddings.detach().double(),
    )


def _gradient(client: Client, loss: torch.Tensor) -> torch.Tensor:
    parameters = [value for value in client.model.parameters() if value.requires_grad]
    return _flat(list(torch.autograd.grad(loss, parameters, materialize_grads=True)))


def _extractor(client: Client, embeddings: torch.Tensor) -> torch.Tensor:
    """The parameters that the embedding depends on, which the head's are not."""
    parameters = [value for value in client.model.parameters() if value.requires_grad]
    slopes = torch.autograd.grad(embeddings.sum(), parameters, allow_unused=True)
    return _flat([value for value, slope in zip(parameters, slopes, strict=True) if slope is not None])


def _flat(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensor.detach().reshape(-1).double() for tensor in tensors])


def _load(client: Client, parameters: Sequence[torch.Tensor]) -> None:
    with torch.no_grad():
        for value, known in zip(client.model.parameters(), parameters, strict=True):
            value.copy_(known)


def _pairs(paths: Sequence[Sequence[Checkpoint]]) -> Iterator[tuple[Checkpoint, Checkpoint]]:
    """Checkpoints of one client and round: between rounds the global prototypes, and so the loss, are others."""
    for path in paths:
        yield from combinations(path, 2)


def _gradient_slope(a: Checkpoint, b: Checkpoint) -> float:
    """||grad L(a) - grad L(b)|| / ||w_a - w_b|| (Eq. 12)."""
    change = torch.linalg.vector_norm(a.gradient - b.gradient)
    return _ratio(change, torch.linalg.vector_norm(a.parameters - b.parameters))


def _embedding_slope(a: Checkpoint, b: Checkpoint) -> float:
    """||f(r_a; x) - f(r_b; x)|| / ||r_a - r_b|| for the example x that moved most (Eq. 17)."""
    change = torch.linalg.vector_norm(a.embeddings - b.embeddings, dim=1).max()
    return _ratio(change, torch.linalg.vector_norm(a.extractor - b.extractor))


def _ratio(change: torch.Tensor, distance: torch.Tensor) -> float:
    """0 where nothing moved, which says nothing about the slope."""
    return float(change / distance) if distance > 0 else 0.0
