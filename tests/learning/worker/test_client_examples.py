"""Examples of clients: initial models follow from the seed, and a source that is replaced stays replaced."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedchain.learning.config import LearningConfig
from fedchain.learning.models.registry import describe_model
from fedchain.learning.models.vectors import read_vector
from fedchain.learning.task.data_source import DataSource, PartitionedDataSource
from fedchain.learning.worker.client_examples import ClientExamples, client_of

CONFIG = LearningConfig(clients=3)


class OfClass(PartitionedDataSource):
    """Says that all labels are one class."""

    def __init__(self, config: LearningConfig, label: int) -> None:
        super().__init__(config)
        self._label = label

    def train_labels(self, client: int, seed: int) -> NDArray[np.int64]:
        return np.full_like(super().train_labels(client, seed), self._label)


def examples(*, shared_init: bool = False, **changed: Any) -> ClientExamples:
    config = LearningConfig(clients=3, **changed)
    return ClientExamples(config, shared_init=shared_init, open_source=partial(PartitionedDataSource, config))


@pytest.mark.parametrize("shared_init", [True, False])
def test_all_clients_begin_with_one_model_only_where_it_is_shared(shared_init: bool) -> None:
    source = examples(shared_init=shared_init)
    first, second = (read_vector(source.share(client).model) for client in (0, 1))
    assert torch.equal(first, second) is shared_init


def test_initial_models_are_a_function_of_the_seed() -> None:
    first, again, other = (read_vector(examples(seed=seed).share(0).model) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_examples_of_the_catalogue_need_no_hash() -> None:
    assert examples().hash_own() == ""


def test_the_histogram_counts_the_labels_of_each_client() -> None:
    source = examples()
    histogram = source.histogram(10)
    assert histogram.shape == (3, 10)
    for client, counts in enumerate(histogram):
        assert counts.tolist() == np.bincount(source.train_labels(client), minlength=10).tolist()
        assert counts.sum() == len(source.share(client).train_labels)


def test_a_replaced_source_is_replaced_again_when_it_is_read_anew() -> None:
    source = examples()

    def of_class_3(opened: DataSource) -> DataSource:
        assert isinstance(opened, PartitionedDataSource)
        return OfClass(CONFIG, 3)

    source.replace_source(of_class_3)
    before = source.source
    source.release()
    assert source.source is not before
    assert set(source.train_labels(1).tolist()) == {3}


def test_a_client_knows_the_classes_that_it_has_examples_of() -> None:
    share = examples().share(2)
    client = client_of(2, share, describe_model("digits-mlp"))
    assert client.index == 2
    assert client.classes == tuple(sorted(set(share.train_labels.tolist())))
    assert client.train_images is share.train_images
