"""The yardstick of training: the same work as a simulation's clients do with DFPL or FedAvg, in one plain PyTorch loop.

That is reading and spreading the data, local steps of plain SGD, what the method shares (prototypes of the training
data, or models) and its mean, and what is measured of every client on its own test set. SGD is written out: the import
of ``torch.optim`` loads torch's compiler, which the other side does not need. No chain, messages, encoding or
checkpoints.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from fedchain.learning.config import LearningConfig
from fedchain.learning.datasets.load import load_dataset
from fedchain.learning.families.local_sgd import LocalSgdMethod
from fedchain.learning.models.base import Model
from fedchain.learning.models.registry import build_model
from fedchain.learning.partition.split import split
from fedchain.learning.registry import build_method
from fedchain.learning.training.schedule import Schedule
from fedchain.simulator.scenario import Scenario


@dataclass(slots=True)
class Peer:
    """One client: model, training set, test set."""

    model: Model
    images: torch.Tensor
    labels: torch.Tensor
    test_images: torch.Tensor
    test_labels: torch.Tensor


@dataclass(frozen=True, slots=True)
class Known:
    """The global prototypes, spread over all classes."""

    prototypes: torch.Tensor
    """(C, D)"""
    is_known: torch.Tensor
    """(C,)"""


def run(scenario: Scenario) -> float:
    """Train every client for every round; the mean accuracy on the clients' own test sets at the end."""
    assert scenario.test_every == 0, "nothing is measured on the whole test set here"
    torch.set_num_threads(1)
    config = scenario.learning_config()
    method = build_method(config.method, dict(config.hyperparameters))
    assert isinstance(method, LocalSgdMethod), "the loop is SGD's"
    assert method.schedule.momentum == method.schedule.weight_decay == 0, "plain SGD"
    peers, classes = load_peers(config, scenario.seed)
    if config.method == "dfpl":
        return share_prototypes(peers, classes, method.schedule, scenario.rounds)
    assert config.method == "fedavg"
    return share_models(peers, method.schedule, scenario.rounds)


def share_prototypes(peers: Sequence[Peer], classes: int, schedule: Schedule, rounds: int) -> float:
    """DFPL: clients keep their models, and are pulled towards the mean of all prototypes."""
    known = Known(torch.zeros(classes, peers[0].model.embedding_size), torch.zeros(classes, dtype=torch.bool))
    accuracies: list[float] = []
    for _ in range(rounds):
        posted: dict[int, list[torch.Tensor]] = {}
        for peer in peers:
            train(peer, schedule, known)
            for label, prototype in prototypes_of(peer).items():
                posted.setdefault(label, []).append(prototype)
        accuracies = [measure(peer, known) for peer in peers]
        prototypes, is_known = torch.zeros_like(known.prototypes), torch.zeros_like(known.is_known)
        for label, items in posted.items():
            prototypes[label], is_known[label] = torch.stack(items).double().mean(dim=0).float(), True
        known = Known(prototypes, is_known)
    return sum(accuracies) / len(accuracies)


def share_models(peers: Sequence[Peer], schedule: Schedule, rounds: int) -> float:
    """FedAvg: clients begin with the mean of all models; it is measured before they train, and their own after."""
    weights = torch.tensor([len(peer.labels) for peer in peers], dtype=torch.float64)
    accuracies: list[float] = []
    for number in range(rounds):
        if number > 0:
            for peer in peers:
                measure(peer)
        for peer in peers:
            train(peer, schedule)
        accuracies = [measure(peer) for peer in peers]
        models = [list(peer.model.parameters()) for peer in peers]
        with torch.no_grad():
            for copies in zip(*models, strict=True):
                mean = torch.tensordot(weights / weights.sum(), torch.stack(copies).double(), dims=1).float()
                for copy in copies:
                    copy.copy_(mean)
    for peer in peers:
        measure(peer)
    return sum(accuracies) / len(accuracies)


def load_peers(config: LearningConfig, seed: int) -> tuple[list[Peer], int]:
    """All clients with their own shares of the data, and the number of classes."""
    data = load_dataset(config.dataset, config.data_dir)
    parts = split(config, data.train_labels, data.test_labels, data.classes)
    peers = []
    for train_part, test_part in zip(parts.train, parts.test, strict=True):
        peers.append(
            Peer(
                build_model(config.model_of(0), seed),
                data.normalise(data.train_images[train_part]),
                torch.from_numpy(data.train_labels[train_part]),
                data.normalise(data.test_images[test_part]),
                torch.from_numpy(data.test_labels[test_part]),
            )
        )
    return peers, data.classes


def train(peer: Peer, schedule: Schedule, known: Known | None = None) -> None:
    """A round's local steps."""
    parameters = list(peer.model.parameters())
    peer.model.train()
    size = min(schedule.batch_size, len(peer.labels))
    order, place = torch.randperm(len(peer.labels)), 0
    for _ in range(schedule.steps):
        if place + size > len(order):
            order, place = torch.randperm(len(peer.labels)), 0
        batch = order[place : place + size]
        place += size
        embedding, logits = peer.model(peer.images[batch])
        labels = peer.labels[batch]
        loss = F.cross_entropy(logits, labels)
        if known is not None:
            loss = loss + distance(embedding, labels, known)
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.sub_(gradient, alpha=schedule.learning_rate)


def distance(embedding: torch.Tensor, labels: torch.Tensor, known: Known) -> torch.Tensor:
    """DFPL's distance term, of mean squares."""
    apart = embedding - known.prototypes[labels]
    return (apart.square() * known.is_known[labels].unsqueeze(1)).mean()


def prototypes_of(peer: Peer) -> dict[int, torch.Tensor]:
    """Label -> mean embedding of the client's training images."""
    embeddings, _ = forward(peer.model, peer.images)
    return {label: embeddings[peer.labels == label].mean(dim=0) for label in sorted(set(peer.labels.tolist()))}


def measure(peer: Peer, known: Known | None = None) -> float:
    """Everything that is measured of a client's model on its own test set; the accuracy."""
    embeddings, logits = forward(peer.model, peer.test_images)
    with torch.inference_mode():
        if known is not None:
            own = (torch.bincount(peer.labels, minlength=len(known.is_known)) > 0) & known.is_known
            if own.any():
                nearest = torch.cdist(embeddings, known.prototypes[own]).argmin(dim=1)
                (own.nonzero().squeeze(1)[nearest] == peer.test_labels).float().mean()
            float(distance(embeddings, peer.test_labels, known))
        float(F.cross_entropy(logits, peer.test_labels))
        return float((logits.argmax(dim=1) == peer.test_labels).float().mean())


def forward(model: Model, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Embeddings and logits in evaluation mode, batch after batch."""
    model.eval()
    with torch.inference_mode():
        parts = [model(batch) for batch in torch.split(images, 256)]
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])


if __name__ == "__main__":
    from tests.bench.measured import scenario_of

    print(run(scenario_of(sys.argv[1])))
