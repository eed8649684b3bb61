"""Each client's images are in one weather, training and test alike; classes that take part are the first ones."""

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
from tests.support.learning.federation import Federation

WHITE = 16
CONFIG = LearningConfig(clients=6, partition="iid", feature_shift="weather")
PLAIN = replace(CONFIG, feature_shift="none")


def seen(weather: Weather, pixels: np.ndarray) -> np.ndarray:
    return apply_weather(weather, pixels, WHITE, np.random.default_rng(1))


def test_each_weather_does_what_its_name_says() -> None:
    pixels = np.random.default_rng(0).integers(WHITE + 1, size=(50, 28, 28)).astype(np.uint8)
    before = pixels.copy()
    assert np.array_equal(seen("clear", pixels), pixels)
    assert np.allclose(seen("bright", pixels), np.minimum(pixels + 0.3 * WHITE, WHITE))
    assert np.allclose(seen("foggy", pixels), 0.4 * pixels + 0.6 * 0.8 * WHITE)
    blurred = seen("blurred", pixels)
    assert np.abs(np.diff(blurred, axis=1)).mean() < 0.5 * np.abs(np.diff(pixels.astype(float), axis=1)).mean()
    assert blurred.mean() == pytest.approx(pixels.mean(), rel=0.01)
    grey = np.full((200, 8, 8), WHITE / 2)
    assert (seen("noisy", grey) / WHITE).std() == pytest.approx(0.2, rel=0.03)
    assert np.array_equal(pixels, before)


@pytest.mark.parametrize("weather", WEATHERS)
@pytest.mark.parametrize("shape", [(8, 8), (3, 8, 8)])
def test_pixels_stay_between_black_and_white(weather: Weather, shape: tuple[int, ...]) -> None:
    found = seen(weather, np.stack([np.zeros(shape), np.full(shape, WHITE)]))
    assert found.shape == (2, *shape)
    assert 0 <= found.min() < found.max() <= WHITE
    assert found[0].mean() < found[1].mean()


def test_blur_leaves_bands_and_images_apart() -> None:
    pixels = np.zeros((2, 3, 56, 56), dtype=np.uint8)
    pixels[1, 2, 28, 28] = WHITE
    blurred = seen("blurred", pixels)
    assert blurred[0].max() == blurred[1, :2].max() == 0
    assert blurred[1, 2, 28, 28] == pytest.approx(WHITE / (8 * np.pi), rel=0.02), "a Gaussian of two pixels of 56"


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


def test_a_federation_trains_on_the_first_classes_in_every_weather() -> None:
    config = replace(CONFIG, classes=6, method="fedavg", train_examples=800, hyperparameters={"local_steps": 1})
    federation = Federation(config)
    federation.play(1)
    assert federation.learner.info.classes == 6
    assert federation.learner.histogram().shape == (6, 6)
    assert federation.learner.histogram().sum() == 800
    assert federation.rules.info == federation.learner.info
    for client in range(6):
        assert federation.client(client).test_labels.max() < 6


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
