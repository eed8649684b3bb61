"""Examples and the initial model of each client, from where the task has them."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from fedchain.crypto.hashing import sha256
from fedchain.learning.client import Client
from fedchain.learning.config import LearningConfig
from fedchain.learning.datasets.load import forget_datasets
from fedchain.learning.models.base import Model
from fedchain.learning.models.frozen import FrozenHead
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.seeding import initial_seed
from fedchain.learning.task.data_source import DataSource, Share


class ClientExamples:
    """The clients' examples, read when first needed.

    Args:
        config: the task.
        shared_init: whether all clients begin with one model.
        open_source: opens where the examples come from; called again when they are let go of.
    """

    def __init__(self, config: LearningConfig, *, shared_init: bool, open_source: Callable[[], DataSource]) -> None:
        self._config, self._shared_init, self._open_source = config, shared_init, open_source
        self.source = open_source()
        """Where they come from."""

    def replace_source(self, replacement: Callable[[DataSource], DataSource]) -> None:
        """Put something between the clients and where their examples come from."""
        opened = self._open_source
        self._open_source = lambda: replacement(opened())
        self.source = replacement(self.source)

    def release(self) -> None:
        """Let go of the data sets that this process has read."""
        self.source = self._open_source()
        forget_datasets()

    def share(self, client: int) -> Share:
        """The model and the examples that a client begins with."""
        return self.source.share(self._config.part_of(client), self._seed(client))

    def train_labels(self, client: int) -> NDArray[np.int64]:
        """Labels (n,) of a client's training examples."""
        return self.source.train_labels(self._config.part_of(client), self._seed(client))

    def hash_own(self) -> str:
        """The SHA-256 of the examples of all clients, in hexadecimal, if they are the user's own; "" elsewhere."""
        clients = self._config.places_with_data
        found = "".join(self.source.hash_own(self._config.part_of(client), self._seed(client)) for client in clients)
        return sha256(found.encode()).hex() if found else ""

    def histogram(self, classes: int) -> NDArray[np.int64]:
        """Count the training examples of every client and class, (K, C)."""
        of_clients = [self.train_labels(client) for client in self._config.places_with_data]
        return np.stack([np.bincount(labels, minlength=classes) for labels in of_clients]).astype(np.int64)

    def _seed(self, client: int) -> int:
        """Seed of a client's initial model, and of the draw of its examples."""
        return initial_seed(self._config.seed, client, shared_init=self._shared_init)


def as_seen(model: Model, images: torch.Tensor) -> torch.Tensor:
    """Return images as the model looks at them in every round: for a frozen backbone, its features."""
    return model.features(images) if isinstance(model, FrozenHead) else images


def client_of(index: int, share: Share, info: ModelInfo) -> Client:
    """Build the client that begins with these examples and this model, whose shapes are given."""
    return Client(
        index=index,
        model=share.model,
        info=info,
        train_images=as_seen(share.model, share.train_images),
        train_labels=share.train_labels,
        test_images=as_seen(share.model, share.test_images),
        test_labels=share.test_labels,
        augmentation=share.augmentation,
        classes=tuple(np.unique(share.train_labels.numpy()).tolist()),
    )
