"""Clients' data in every weather, from the seed alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedchain.learning.config import LearningConfig
from fedchain.learning.datasets.load import load_dataset
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.task.data_source import PartitionedDataSource
from fedchain.learning.task.feature_shift import WEATHERS, Weather, apply_weather
from fedchain.learning.worker.learner import Learner

WHITE = 16
CONFIG = LearningConfig(clients=6, partition="iid", feature_shift="weather")
PLAIN = replace(CONFIG, feature_shift="none")


def seen(weather: Weather, pixels: np.ndarray) -> np.ndarray:
    return apply_weather(weather, pixels, WHITE, np.random.default_rng(1))


def test_client_k_has_weather_k_for_training_and_test() -> None:
    plain, shifted = PartitionedDataSource(PLAIN), PartitionedDataSource(CONFIG)
    digits = load_dataset("digits")
    for client in range(6):
        before, after = plain.share(client, 0), shifted.share(client, 0)
        assert torch.equal(before.train_labels, after.train_labels)
        for part in ("train_images", "test_images"):
            images, found = getattr(before, part), getattr(after, part)
            pixels = images * 0.3760 + 0.3053
            weather = WEATHERS[client % 5]
            if weather == "noisy":
                assert 0.1 < (found - images).abs().mean() * 0.3760 < 0.2
            else:
                expected = digits.normalise(seen(weather, pixels.numpy() * WHITE))
                assert torch.allclose(found, expected, atol=1e-4)


def test_noise_follows_from_seed_client_and_part_alone() -> None:
    noisy = WEATHERS.index("noisy")

    def images(seed: int, client: int = noisy) -> torch.Tensor:
        config = replace(CONFIG, clients=10, seed=seed)
        return PartitionedDataSource(config).share(client, 0).train_images

    assert torch.equal(images(0), images(0))
    assert not torch.equal(images(0)[:50], images(1)[:50])


def test_the_whole_test_set_is_seen_by_each_client_in_turn() -> None:
    config = replace(CONFIG, clients=3)
    (plain, labels), (images, same) = (PartitionedDataSource(one).test_set() for one in (PLAIN, config))
    assert torch.equal(labels, same)
    assert torch.equal(images[0::3], plain[0::3]), "clear"
    lighter = (images - plain)[1::3]
    assert lighter.min() >= 0
    assert lighter.max() == pytest.approx(0.3 / 0.3760, rel=1e-4), "bright"
    assert images[2::3].std() < plain[2::3].std(), "blurred"


def test_classes_that_do_not_take_part_are_nowhere() -> None:
    source, digits = PartitionedDataSource(replace(PLAIN, classes=4, clients=2)), load_dataset("digits")
    _, labels = source.test_set()
    assert np.bincount(labels).tolist() == np.bincount(digits.test_labels)[:4].tolist()
    trained = np.concatenate([source.train_labels(client, 0) for client in range(2)])
    assert np.bincount(trained).tolist() == np.bincount(digits.train_labels)[:4].tolist()
    assert source.share(0, 0).model.classes == 4


def test_more_examples_than_the_classes_have_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="train_examples is 1000, but 6 classes have 869 together"):
        Learner(replace(PLAIN, classes=6, train_examples=1000)).histogram()
