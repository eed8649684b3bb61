"""Labelled examples in memory, and their scaling."""

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedchain.learning.datasets.catalogue import DatasetInfo
from fedchain.learning.device import DEVICE
from fedchain.learning.exceptions import DatasetError

_PIXEL_DEVIATION_FLOOR = 0.001
"""Added to each deviation of single pixels, in their own units, as FedProx's generator does."""


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """A data set, split into training and test examples."""

    info: DatasetInfo
    """Its entry in the catalogue."""

    train_images: NDArray[Any]
    """(N, *shape): uint8 pixels, or float32 features; a single channel may be left out."""

    train_labels: NDArray[np.int64]
    """(N,), 0 to C - 1."""

    test_images: NDArray[Any]
    """(M, *shape), like `train_images`."""

    test_labels: NDArray[np.int64]
    """(M,), 0 to C - 1."""

    train_sources: NDArray[np.int64] | None = None
    """(N,), number of the user or patient that each example is from; None if the files do not say."""

    test_sources: NDArray[np.int64] | None = None
    """(M,), likewise, with the same numbers."""

    @property
    def classes(self) -> int:
        """Number of classes C."""
        return self.info.classes

    def normalise(self, pixels: NDArray[Any], scaling: str = "channel") -> torch.Tensor:
        """Return (n, *shape) float32 examples of mean about 0 and deviation about 1.

        By "channel", as the catalogue has both; by "pixel", of each place in the image over all training and test
        images, as the generator of FedProx does (Li et al., MLSys 2020), on which FedReg's data build. A pixel that is
        nearly always black is very large where it is not.
        """
        if scaling == "pixel":
            mean, std = _pixel_statistics(self)
            values = torch.from_numpy(pixels.astype(np.float32)).reshape(len(pixels), *self.info.shape)
            return (values - mean) / (std + _PIXEL_DEVIATION_FLOOR)
        scaled = torch.from_numpy(pixels.astype(np.float32)).div_(self.info.pixel_max)
        scaled = scaled.reshape(len(pixels), *self.info.shape)
        return scaled.sub_(self._per_channel(self.info.mean)).div_(self._per_channel(self.info.std))

    @property
    def black(self) -> torch.Tensor:
        """(channels, 1, 1): the normalised value of a pixel of 0."""
        return -self._per_channel(self.info.mean) / self._per_channel(self.info.std)

    def _per_channel(self, values: tuple[float, ...]) -> torch.Tensor:
        return _per_channel(values, len(self.info.shape))


@functools.lru_cache(maxsize=8)
def _per_channel(values: tuple[float, ...], dimensions: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32, device=DEVICE).reshape(-1, *(1,) * (dimensions - 1))


@functools.cache
def _pixel_statistics(dataset: Dataset) -> tuple[torch.Tensor, torch.Tensor]:
    """Return mean and standard deviation of each place, (*shape) each, in units of the pixels as they are read."""
    parts = (dataset.train_images, dataset.test_images)
    count = sum(len(part) for part in parts)
    mean = sum(part.sum(axis=0, dtype=np.float64) for part in parts) / count
    square = sum(np.square(part, dtype=np.float64).sum(axis=0) for part in parts) / count
    std = np.sqrt(np.maximum(square - mean**2, 0))
    shape = dataset.info.shape
    return torch.from_numpy(mean).float().reshape(shape), torch.from_numpy(std).float().reshape(shape)


def forget_statistics() -> None:
    """Drop the numbers calculated of whole data sets, and with them the data sets."""
    _pixel_statistics.cache_clear()


def keep_classes(dataset: Dataset, classes: int) -> Dataset:
    """Return the examples of the data set's first so many classes."""
    train, test = dataset.train_labels < classes, dataset.test_labels < classes
    return replace(
        dataset,
        info=replace(dataset.info, classes=classes),
        train_images=dataset.train_images[train],
        train_labels=dataset.train_labels[train],
        test_images=dataset.test_images[test],
        test_labels=dataset.test_labels[test],
        train_sources=None if dataset.train_sources is None else dataset.train_sources[train],
        test_sources=None if dataset.test_sources is None else dataset.test_sources[test],
    )


def validate(dataset: Dataset) -> None:
    """Raise `DatasetError` unless the data that were read fit together and are as the catalogue says."""
    name, shape, classes = dataset.info.name, dataset.info.shape, dataset.info.classes
    for part in ("train", "test"):
        images, labels, sources = (getattr(dataset, f"{part}_{what}") for what in ("images", "labels", "sources"))
        if len(images) != len(labels):
            raise DatasetError(f"{name}: {len(images)} images but {len(labels)} labels in the {part} files")
        if len(labels) == 0:
            raise DatasetError(f"{name}: there are no {part} examples")
        if images.shape[1:] not in (shape, shape[1:] if shape[0] == 1 else shape):
            raise DatasetError(f"{name}: {part} examples must have shape {shape}, not {images.shape[1:]}")
        if labels.min() < 0 or labels.max() >= classes:
            found = f"{labels.min()} to {labels.max()}"
            raise DatasetError(f"{name}: {part} labels must be 0 to {classes - 1}, not {found}")
        assert sources is None or len(sources) == len(labels)
