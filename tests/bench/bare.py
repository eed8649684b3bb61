"""The yardstick: the same local steps, prototypes and evaluations as a DFPL simulation, in one plain PyTorch loop.

It uses torch's own optimiser and no chain, no messages, no processes and no checkpoints.
"""

import sys

import torch
import torch.nn.functional as F

from fedchain.learning.datasets.load import load_dataset
from fedchain.learning.models import build_model
from fedchain.learning.partition import split
from fedchain.learning.registry import build_method
from fedchain.simulator.scenario import Scenario


def run(scenario: Scenario) -> float:
    """Train every client for every round; the mean accuracy on the clients' own test sets at the end."""
    torch.set_num_threads(1)
    config = scenario.learning_config()
    schedule = build_method(config.method, dict(config.hyperparameters)).schedule
    data = load_dataset(config.dataset, config.data_dir)
    parts = split(config, data.train_labels, data.test_labels, data.classes)
    whole = data.normalise(data.test_images), torch.from_numpy(data.test_labels)
    models = [build_model(config.model_name, scenario.seed) for _ in range(scenario.peers)]
    sets = [
        tuple(
            (data.normalise(images[own]), torch.from_numpy(labels[own]))
            for images, labels, own in (
                (data.train_images, data.train_labels, parts.train[client]),
                (data.test_images, data.test_labels, parts.test[client]),
            )
        )
        for client in range(scenario.peers)
    ]
    known: dict[int, torch.Tensor] = {}
    accuracies: list[float] = []
    for number in range(1, scenario.rounds + 1):
        posted: dict[int, list[torch.Tensor]] = {}
        accuracies = []
        table = torch.zeros(data.classes, models[0].embedding_size)
        is_known = torch.zeros(data.classes)
        for label, prototype in known.items():
            table[label], is_known[label] = prototype, 1.0
        for model, ((images, labels), test) in zip(models, sets, strict=True):
            optimiser = torch.optim.SGD(
                model.parameters(), schedule.learning_rate, schedule.momentum, weight_decay=schedule.weight_decay
            )
            model.train()
            size = min(schedule.batch_size, len(labels))
            order = torch.randperm(len(labels))
            place = 0
            for _ in range(schedule.steps):
                if place + size > len(labels):
                    order, place = torch.randperm(len(labels)), 0
                batch = order[place : place + size]
                place += size
                embedding, logits = model(images[batch])
                loss = F.cross_entropy(logits, labels[batch])
                if known:
                    distance = embedding - table[labels[batch]]
                    loss = loss + (distance.square() * is_known[labels[batch]].unsqueeze(1)).mean()
                optimiser.zero_grad()
                torch.autograd.backward(loss)
                optimiser.step()
            model.eval()
            with torch.inference_mode():
                embeddings, _ = _forward(model, images)
                for label in sorted(set(labels.tolist())):
                    posted.setdefault(label, []).append(embeddings[labels == label].mean(dim=0))
                accuracies.append(_accuracy(model, *test))
                if number % scenario.test_every == 0 or number == scenario.rounds:
                    _accuracy(model, *whole)
        known = {label: torch.stack(items).mean(dim=0).clone() for label, items in posted.items()}
    return sum(accuracies) / len(accuracies)


def _forward(model: torch.nn.Module, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    parts = [model(batch) for batch in torch.split(images, 256)]
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])


def _accuracy(model: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    return float((_forward(model, images)[1].argmax(dim=1) == labels).float().mean())


if __name__ == "__main__":
    from tests.bench.measured import scenario_of

    print(run(scenario_of(sys.argv[1])))
