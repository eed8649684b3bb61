"""Reading a data set by its name."""

import functools
import importlib

from fedchain.learning.datasets.catalogue import DATASETS
from fedchain.learning.datasets.dataset import Dataset, forget_statistics, validate
from fedchain.learning.datasets.files import Files, data_folder
from fedchain.learning.exceptions import UnknownName


def load_dataset(name: str, data_dir: str = "") -> Dataset:
    """Return the named data set, read at most once per process.

    `data_dir` is the folder with the files, or its parent; empty means $FEDCHAIN_DATA. Raises `DatasetError` for
    a missing or damaged file.
    """
    if name not in DATASETS:
        raise UnknownName("data set", name, DATASETS)
    return _load(name, data_folder(data_dir) if DATASETS[name].files else "")


def forget_datasets() -> None:
    """Drop the data that were read, for a process that only tried to read them, or has all that it needs of them."""
    _load.cache_clear()
    forget_statistics()


@functools.cache
def _load(name: str, data_dir: str) -> Dataset:
    info = DATASETS[name]
    module_name, _, function_name = info.reader.partition(":")
    dataset: Dataset = getattr(importlib.import_module(module_name), function_name)(Files(info, data_dir))
    validate(dataset)
    return dataset
