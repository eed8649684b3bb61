"""The yardstick of training: what the clients of a simulation do, in plain PyTorch loops.

They read and spread the data, take local steps of plain SGD, share what the method shares, and average it. Nothing
else is done: no chain, messages, encoding or checkpoints, and nothing is measured. SGD is written out, because
`torch.optim` loads torch's compiler. Batches and dropout are drawn as a simulation draws them, so both sides end with
the same numbers; steps are counted where they are taken.
"""

import mmap
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from fedchain.learning.datasets.load import load_dataset
from fedchain.learning.families.local_sgd import LocalSgdMethod
from fedchain.learning.models.base import Model
from fedchain.learning.models.registry import build_model
from fedchain.learning.partition.split import split
from fedchain.learning.registry import build_method
from fedchain.learning.seeding import derive
from fedchain.learning.training.schedule import Schedule
from fedchain.simulator.scenario import Scenario
from tests.bench.processes import Mark, Trained, mark

CPU = torch.device("cpu")


@dataclass(slots=True)
class Peer:
    """One client."""

    number: int
    images: torch.Tensor
    labels: torch.Tensor


@dataclass(frozen=True, slots=True)
class Known:
    """The global prototypes, spread over all classes."""

    prototypes: torch.Tensor
    """(C, D)"""
    is_known: torch.Tensor
    """(C,)"""


class Loop:
    """The loop of one scenario.

    Args:
        scenario: with `test_every` 0.
        drawn: clients that train in each round; by default all.
        device: where they train; on a card in this process alone, with FedAvg.
    """

    def __init__(
        self, scenario: Scenario, drawn: Sequence[Sequence[int]] | None = None, device: torch.device = CPU
    ) -> None:
        assert scenario.test_every == 0, "nothing is measured here"
        self._config = config = scenario.learning_config()
        method = build_method(config.method, dict(config.hyperparameters))
        assert isinstance(method, LocalSgdMethod), "the loop is SGD's"
        self._schedule: Schedule = method.schedule_in(1)
        assert self._schedule.momentum == self._schedule.weight_decay == 0, "plain SGD"
        assert (method.optimizer, method.schedule) == ("sgd", "constant"), "plain SGD"
        self._drawn = drawn or [range(config.clients)] * scenario.rounds
        self._data = load_dataset(config.dataset, config.data_dir)
        parts = split(config, self._data.train_labels, self._data.test_labels, self._data.classes)
        self._parts, self._peers = parts.train, dict[int, Peer]()
        self._generator, self._device = torch.Generator(), device
        self._steps = self._updates = 0

    def run(self, workers: int) -> Trained:
        """Train, with the clients spread over so many processes, of which this one is the first."""
        share = {"fedavg": self._share_models, "dfpl": self._share_prototypes}[self._config.method]
        size, clients = self._size(), self._config.clients
        fork = multiprocessing.get_context("fork")
        posted = np.frombuffer(mmap.mmap(-1, 4 * clients * size), dtype=np.float32).reshape(clients, size)  # shared
        counts = np.frombuffer(mmap.mmap(-1, 16 * workers), dtype=np.int64).reshape(workers, 2)
        barrier = fork.Barrier(workers)
        marks: list[Mark] = []

        def work(place: int) -> NDArray[np.float32]:
            result: NDArray[np.float32] = posted[0]
            for left in share(posted, lambda client: client % workers == place, barrier.wait):
                result = left
                if place == 0:
                    marks.append(mark())
            counts[place] = self._steps, self._updates
            barrier.wait()
            return result

        others = [fork.Process(target=work, args=(place,)) for place in range(1, workers)]
        for process in others:
            process.start()
        result = work(0)
        for process in others:
            process.join()
        steps, updates = counts.sum(axis=0).tolist()
        return Trained(steps, updates, result, tuple(marks))

    def _share_models(
        self, posted: NDArray[np.float32], is_mine: Callable[[int], bool], meet: Callable[[], object]
    ) -> Iterator[NDArray[np.float32]]:
        """FedAvg: each round begins with the mean of the models, weighted by the clients' examples; yields the mean."""
        model = self._model()
        parameters = list(model.parameters())
        parts = ("buffer", model.named_buffers()), ("model", model.named_parameters())  # as a post names them
        named = sorted((f"{kind}.{name}", value) for kind, values in parts for name, value in values)
        shared = [value for _, value in named]
        flat = _flat(shared)
        for number, clients in enumerate(self._drawn, start=1):
            for client in filter(is_mine, clients):
                _load(shared, flat)
                self._train(model, parameters, self._peer(client), number)
                posted[client] = _flat(shared)
            meet()
            weights = [len(self._parts[client]) for client in clients]
            total = np.zeros(posted.shape[1])
            for client, weight in zip(clients, weights, strict=True):
                total += posted[client] * np.float64(weight)
            flat = (total / sum(weights)).astype(np.float32)
            meet()
            yield flat

    def _share_prototypes(
        self, posted: NDArray[np.float32], is_mine: Callable[[int], bool], meet: Callable[[], object]
    ) -> Iterator[NDArray[np.float32]]:
        """DFPL: clients keep their models, and are pulled towards the mean of all prototypes; yields the means."""
        classes, models = self._data.classes, dict[int, Model]()
        width = posted.shape[1] // classes
        known = Known(torch.zeros(classes, width), torch.zeros(classes, dtype=torch.bool))
        for number, clients in enumerate(self._drawn, start=1):
            for client in filter(is_mine, clients):
                model, peer = models.setdefault(client, self._model()), self._peer(client)
                self._train(model, list(model.parameters()), peer, number, known)
                posted[client] = self._prototypes(model, peer, width).ravel()
            meet()
            means = torch.zeros(classes, width)
            rows = torch.from_numpy(posted.reshape(-1, classes, width)[list(clients)])
            holds = torch.stack([torch.bincount(self._labels(client), minlength=classes) > 0 for client in clients])
            for label in holds.any(dim=0).nonzero().ravel().tolist():
                means[label] = rows[holds[:, label], label].double().mean(dim=0).float()
            known = Known(means, holds.any(dim=0))
            meet()
            yield means[known.is_known].numpy().ravel()

    def _train(
        self, model: Model, parameters: list[torch.nn.Parameter], peer: Peer, number: int, known: Known | None = None
    ) -> None:
        """A round's local steps."""
        schedule, labels = self._schedule, ("client", peer.number, "phase", "update", "round", number)
        torch.default_generator.manual_seed(derive(self._config.seed, *labels, "dropout"))
        self._generator.manual_seed(derive(self._config.seed, *labels, "batches"))
        model.train()
        size, order, place = min(schedule.batch_size, len(peer.labels)), torch.empty(0), 0
        for _ in range(schedule.steps):
            if place + size > len(order):
                order, place = torch.randperm(len(peer.labels), generator=self._generator).to(self._device), 0
            batch = order[place : place + size]
            place += size
            embedding, logits = model(peer.images.index_select(0, batch))
            truth = peer.labels.index_select(0, batch)
            loss = F.cross_entropy(logits, truth)
            if known is not None:
                apart = embedding - known.prototypes[truth]
                loss = loss + (apart.square() * known.is_known[truth].unsqueeze(1)).mean()
            gradients = torch.autograd.grad(loss, parameters)
            with torch.no_grad():
                for parameter, gradient in zip(parameters, gradients, strict=True):
                    parameter.sub_(gradient, alpha=schedule.learning_rate)
            self._steps += 1
        self._updates += 1

    def _prototypes(self, model: Model, peer: Peer, width: int) -> NDArray[np.float32]:
        """(C, D): each class's mean embedding of the client's training images; zeros where it has none."""
        model.eval()
        classes = self._data.classes
        with torch.inference_mode():
            embeddings = torch.cat([model(batch)[0] for batch in torch.split(peer.images, 256)])
        sums = torch.zeros(classes, width, dtype=torch.float64)
        sums.index_add_(0, peer.labels, embeddings.double())
        counts = torch.bincount(peer.labels, minlength=classes).clamp(min=1)
        return (sums / counts.unsqueeze(1)).float().numpy()

    def _size(self) -> int:
        """How many numbers a client shares at most."""
        if self._config.method == "dfpl":
            return self._data.classes * self._model().embedding_size
        return sum(value.numel() for value in (*self._model().parameters(), *self._model().buffers()))

    def _model(self) -> Model:
        config = self._config
        model = build_model(
            config.model_of(0), derive(config.seed, "model", "shared"), **config.dataset_info.model_shape
        )
        return model.to(self._device)

    def _labels(self, client: int) -> torch.Tensor:
        return torch.from_numpy(self._data.train_labels[self._parts[client]])

    def _peer(self, client: int) -> Peer:
        """A client with its share of the data, made when it first trains."""
        if client not in self._peers:
            images = self._data.normalise(self._data.train_images[self._parts[client]])
            self._peers[client] = Peer(client, images.to(self._device), self._labels(client).to(self._device))
        return self._peers[client]


def draw_as_the_processor() -> None:
    """Have dropout on a card drop what the processor would drop, as in a simulation: both sides learn the same."""

    def drawn(
        by_channel: bool, value: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> torch.Tensor:
        if not training:
            return value
        shape = (*value.shape[:2], *(1,) * (value.ndim - 2)) if by_channel else value.shape
        return value * torch.empty(shape).bernoulli_(1 - p).div_(1 - p).to(value.device)

    F.dropout, F.dropout2d = partial(drawn, False), partial(drawn, True)


def _flat(shared: Sequence[torch.Tensor]) -> NDArray[np.float32]:
    """All numbers of a model, in one vector of the processor's."""
    flat: NDArray[np.float32] = torch.cat([value.detach().float().ravel() for value in shared]).cpu().numpy()
    return flat


def _load(shared: Sequence[torch.Tensor], flat: NDArray[np.float32]) -> None:
    with torch.no_grad():
        parts = torch.split(torch.from_numpy(flat).to(shared[0].device), [value.numel() for value in shared])
        for value, part in zip(shared, parts, strict=True):
            value.copy_(part.reshape(value.shape))
