"""Clients' data in every weather, from the seed alone, and the weights that their models begin with."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from fedchain.learning.config import LearningConfig
from fedchain.learning.datasets.load import load_dataset
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.models.registry import build_model, describe_model
from fedchain.learning.models.weights import hash_file, head_names
from fedchain.learning.task.custom import open_data_source
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


def weighted(path: Path) -> LearningConfig:
    """A task whose models begin with the weights of a file, which is written."""
    model = build_model("digits-mlp", 5)
    safetensors.torch.save_file({name: value.contiguous() for name, value in model.state_dict().items()}, path)
    return replace(PLAIN, weights=str(path), weights_hash=hash_file(path))


def test_all_models_begin_with_the_weights_of_the_file(tmp_path: Path) -> None:
    config = weighted(tmp_path / "w.safetensors")
    expected = build_model("digits-mlp", 5).state_dict()
    source = open_data_source(config)
    for client, seed in ((0, 1), (3, 2)):
        state = source.share(client, seed).model.state_dict()
        assert all(torch.equal(state[name], value) for name, value in expected.items())
    heads = [open_data_source(replace(config, weights_head="new")).share(0, seed).model.state_dict() for seed in (1, 2)]
    changed = {name for name in expected if not torch.equal(heads[0][name], heads[1][name])}
    assert changed == head_names(build_model("digits-mlp", 0))


def test_another_file_than_the_one_that_was_agreed_on_is_refused_before_any_example_is_read(tmp_path: Path) -> None:
    config, other = weighted(tmp_path / "a"), weighted(tmp_path / "b")
    state = {name: value + 1 for name, value in build_model("digits-mlp", 5).state_dict().items()}
    safetensors.torch.save_file(state, tmp_path / "b")
    with pytest.raises(ConfigurationError, match=f"the federation begins with {config.weights_hash}"):
        open_data_source(replace(config, weights=other.weights))


def test_a_file_that_changes_while_clients_are_built_is_refused(tmp_path: Path) -> None:
    config, other = weighted(tmp_path / "a"), weighted(tmp_path / "b")
    source = open_data_source(config)
    source.share(0, 1)
    Path(other.weights).replace(config.weights)
    with pytest.raises(ConfigurationError, match=r"weights .*/a were changed while they were in use"):
        source.share(1, 1)


def test_clients_that_begin_with_one_model_have_their_own_and_another_seed_has_another() -> None:
    source = PartitionedDataSource(PLAIN)
    first, second, third = (source.share(client, 3).model for client in range(3))
    with torch.no_grad():
        for model in (first, second):
            for value in model.parameters():
                value.zero_()
    expected = build_model(PLAIN.model_of(0), 3, **PLAIN.dataset_info.model_shape).state_dict()
    assert all(map(torch.equal, third.state_dict().values(), expected.values()))
    assert all(map(torch.equal, source.share(4, 3).model.state_dict().values(), expected.values()))
    other = source.share(0, 4).model.state_dict()
    assert not all(map(torch.equal, other.values(), expected.values()))
    assert all(map(torch.equal, source.share(4, 3).model.state_dict().values(), expected.values()))


def test_a_model_is_described_and_compared_whenever_it_is_built() -> None:
    source = PartitionedDataSource(replace(PLAIN, shapes=describe_model("logistic", classes=10, features=64)))
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="tensor 0 of the model"):
            source.share(0, 3)
