"""Each client's images are in one weather, training and test alike; classes that take part are the first ones."""

from dataclasses import replace

import numpy as np
import pytest

from fedchain.learning.config import LearningConfig
from fedchain.learning.task.feature_shift import WEATHERS, Weather, apply_weather, shift_features
from tests.support.learning.federation import Federation

WHITE = 16
CONFIG = LearningConfig(clients=6, partition="iid", feature_shift="weather")


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


def test_training_and_test_images_have_noise_of_their_own() -> None:
    """With the same grain on both, a model could learn the noise and be tested on it."""
    grey = np.full((4, 8, 8), WHITE / 2)
    training, test = (shift_features(CONFIG, grey, WHITE, 3, part) for part in ("training", "test"))
    assert not np.any(training == test)
    assert np.array_equal(training, shift_features(CONFIG, grey, WHITE, 3, "training"))


def test_blur_leaves_bands_and_images_apart() -> None:
    pixels = np.zeros((2, 3, 56, 56), dtype=np.uint8)
    pixels[1, 2, 28, 28] = WHITE
    blurred = seen("blurred", pixels)
    assert blurred[0].max() == blurred[1, :2].max() == 0
    assert blurred[1, 2, 28, 28] == pytest.approx(WHITE / (8 * np.pi), rel=0.02), "a Gaussian of two pixels of 56"


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
