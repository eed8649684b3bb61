"""Where a task's models and examples come from: a learner asks here and nowhere else."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from fedchain.learning.config import LearningConfig
from fedchain.learning.datasets.dataset import Dataset, keep_classes
from fedchain.learning.datasets.load import load_dataset
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.models.base import Model, twin_of
from fedchain.learning.models.model_info import validate_same
from fedchain.learning.models.registry import build_model, describe
from fedchain.learning.models.weights import load_weights, stamp_of, validate_file
from fedchain.learning.partition.split import Partition, split
from fedchain.learning.task.augmentation import Augmentation, CropFlip
from fedchain.learning.task.feature_shift import shift_features, shift_in_turn

COPIED_SIZE_MAX = 2**20
"""Bytes of a model that is kept to be copied; a larger one is built for each client."""


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """The model and the examples that one client begins with."""

    model: Model
    """Untrained."""

    train_images: torch.Tensor
    """(n, ...), float32: images (n, channels, height, width), or whatever else the model takes."""

    train_labels: torch.Tensor
    """(n,), int64, 0 to C - 1."""

    test_images: torch.Tensor
    """The client's own test set, shaped as `train_images`."""

    test_labels: torch.Tensor
    """Labels of the own test set, int64, 0 to C - 1."""

    augmentation: Augmentation | None = None
    """The change made to training images each time that they are looked at."""


class DataSource(Protocol):
    """Gives each client its model and its examples. It need not keep what it gave: the learner does.

    Clients ask by their part of the data. A member without any asks as client K: it has the first client's kind of
    model, and no examples.
    """

    def share(self, client: int, seed: int) -> Share:
        """Read the client's examples, and build its model, whose parameters depend on the seed alone."""

    def train_labels(self, client: int, seed: int) -> NDArray[np.int64]:
        """Return the labels (n,) of the client's training examples, as `share` with this seed gives them."""

    def hash_own(self, client: int, seed: int) -> str:
        """Return the SHA-256 of the client's examples, in hexadecimal, if they are the user's own; "" if the
        configuration says which they are. Inputs that are not held count by their shape alone."""

    def test_set(self) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Return the images and labels that all clients can be measured on; None if they have none in common."""


class WeightedDataSource:
    """Another source, whose models begin with the weights of a file.

    Raises `ConfigurationError` if it is not the file that the members agreed on, and for a model that it does not fit.
    Clients are built one after the other, and some again: all of them from the file that was there at first.
    """

    def __init__(self, source: DataSource, config: LearningConfig) -> None:
        self._source, self._config, self._path = source, config, Path(config.weights)
        self._stamp = stamp_of(self._path)
        if config.weights_hash:
            validate_file(self._path, config.weights_hash)

    def share(self, client: int, seed: int) -> Share:
        """See `DataSource`."""
        share = self._source.share(client, seed)
        load_weights(share.model, self._path, new_head=self._config.weights_head == "new")
        if stamp_of(self._path) != self._stamp:
            raise ConfigurationError(f"weights {self._path} were changed while they were in use")
        return share

    def train_labels(self, client: int, seed: int) -> NDArray[np.int64]:
        """See `DataSource`."""
        return self._source.train_labels(client, seed)

    def hash_own(self, client: int, seed: int) -> str:
        """See `DataSource`."""
        return self._source.hash_own(client, seed)

    def test_set(self) -> tuple[torch.Tensor, torch.Tensor] | None:
        """See `DataSource`."""
        return self._source.test_set()


class PartitionedDataSource:
    """A built-in data set, spread over the clients; read when first needed."""

    def __init__(self, config: LearningConfig) -> None:
        self._config = config
        self._loaded: tuple[Dataset, Partition] | None = None
        self._begun: dict[str, tuple[int, Model]] = {}  # by name: the last seed, and the small model that follows

    def share(self, client: int, seed: int) -> Share:
        """See `DataSource`.

        Raises `DatasetError` if a file is missing, `ConfigurationError` if it is too small, or if the model that this
        program has under its name is not the federation's.
        """
        if client == self._config.clients:
            return share_without_examples(self._build(client, seed), self._config.dataset_info.shape)
        dataset, partition = self._load()
        train, test = partition.train[client], partition.test[client]
        return Share(
            model=self._build(client, seed),
            train_images=self._as_seen(dataset.train_images[train], client, "train"),
            train_labels=torch.from_numpy(dataset.train_labels[train]),
            test_images=self._as_seen(dataset.test_images[test], client, "test"),
            test_labels=torch.from_numpy(dataset.test_labels[test]),
            augmentation=CropFlip(dataset.black) if self._config.augmentation == "crop-flip" else None,
        )

    def train_labels(self, client: int, seed: int) -> NDArray[np.int64]:
        """See `DataSource`."""
        if client == self._config.clients:
            return np.empty(0, dtype=np.int64)
        dataset, partition = self._load()
        return dataset.train_labels[partition.train[client]]

    def hash_own(self, client: int, seed: int) -> str:
        """See `DataSource`: their files are those of the catalogue."""
        return ""

    def test_set(self) -> tuple[torch.Tensor, torch.Tensor]:
        """See `DataSource`: all of the data set's test images, where clients' differ as those of each in turn."""
        dataset, _ = self._load()
        seen = shift_in_turn(self._config, dataset.test_images, dataset.info.pixel_max)
        return dataset.normalise(seen, self._config.scaling), torch.from_numpy(dataset.test_labels)

    def _build(self, client: int, seed: int) -> Model:
        """Build the client's model; raises `ConfigurationError` if it is not the federation's.

        Many clients begin with one model, which the name and the seed decide; so another client's is copied.
        """
        config, name = self._config, self._config.model_of(client)
        known, model = self._begun.get(name, (None, None))
        if model is not None and known == seed:
            return twin_of(model)
        model = build_model(name, seed, **config.dataset_info.model_shape)
        if config.shapes is not None:
            stated = dict(zip(config.model_names, (config.shapes, *config.more_shapes), strict=False))
            if name in stated:  # older documents state the first of several alone
                validate_same(describe(model), stated[name])
        if sum(value.nbytes for value in model.state_dict().values()) <= COPIED_SIZE_MAX:
            self._begun[name] = seed, twin_of(model)
        return model

    def _as_seen(self, pixels: NDArray[Any], client: int, part: str) -> torch.Tensor:
        """Return a client's training or test images, normalised, (n, *shape)."""
        dataset, _ = self._load()
        seen = shift_features(self._config, pixels, dataset.info.pixel_max, client, part)
        return dataset.normalise(seen, self._config.scaling)

    def _load(self) -> tuple[Dataset, Partition]:
        if self._loaded is None:
            dataset = load_examples(self._config)
            train, test = dataset.train_sources, dataset.test_sources
            sources = None if train is None or test is None else (train, test)
            labels = dataset.train_labels, dataset.test_labels
            self._loaded = dataset, split(self._config, *labels, dataset.classes, sources)
        return self._loaded


def share_without_examples(model: Model, shape: tuple[int, ...]) -> Share:
    """Return the model and the empty sets of a dedicated aggregator, for examples of this shape."""
    nothing, no_labels = torch.empty(0, *shape), torch.empty(0, dtype=torch.int64)
    return Share(model, nothing, no_labels, nothing, no_labels)


def load_examples(config: LearningConfig) -> Dataset:
    """Return the built-in data set with the classes that take part, before it is spread over the clients.

    Raises `DatasetError` for a missing or damaged file.
    """
    dataset = load_dataset(config.dataset, config.data_dir)
    return keep_classes(dataset, config.classes) if config.classes else dataset
