"""Finding files, checksums, and what is said where something is missing; on MNIST's form."""

import gzip
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from fedchain.learning.datasets import digits as reader
from fedchain.learning.datasets.catalogue import DATASETS
from fedchain.learning.datasets.files import DATA_DIR_VARIABLE
from fedchain.learning.datasets.load import load_dataset
from fedchain.learning.exceptions import ConfigurationError, DatasetError
from fedchain.learning.models.registry import build_model
from tests.learning.datasets.official import idx, pictures, write_idx_files

FASHION = "fashion-mnist"
TRAIN_IMAGES = "train-images-idx3-ubyte"
TRAIN_IMAGES_MD5 = "8d4fb7e6c68d591d4c3dfef9ec88bf0d"


def test_the_digits_are_the_library_s_with_or_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = reader._read_file()
    monkeypatch.setattr(reader, "find_spec", lambda name: None)
    known_images, known_labels = reader._read_file()
    assert (images.dtype, labels.dtype) == (known_images.dtype, known_labels.dtype)
    assert np.array_equal(images, known_images)
    assert np.array_equal(labels, known_labels)


@pytest.mark.long
def test_who_trains_on_digits_without_noise_loads_no_large_library() -> None:
    code = """
import sys
from fedchain.learning.config import LearningConfig
from fedchain.learning.worker.learner import Learner
Learner(LearningConfig(dataset="digits", clients=4))
print({"sklearn", "scipy", "matplotlib"} & sys.modules.keys())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_the_digits_are_split_by_class() -> None:
    digits = load_dataset("digits")
    assert digits.train_images.shape == (1442, 8, 8)
    assert len(digits.test_labels) == 355
    assert len(digits.train_labels) + len(digits.test_labels) == 1797
    shares = np.bincount(digits.test_labels) / (np.bincount(digits.test_labels) + np.bincount(digits.train_labels))
    assert ((shares > 0.19) & (shares < 0.21)).all()


def test_images_are_normalised() -> None:
    digits = load_dataset("digits")
    images = digits.normalise(digits.train_images)
    assert images.shape == (1442, 1, 8, 8)
    assert abs(float(images.mean())) < 0.01
    assert abs(float(images.std()) - 1) < 0.01


def test_each_pixel_can_be_standardised_by_itself_over_training_and_test_images() -> None:
    digits = load_dataset("digits")
    pixels = np.concatenate([digits.train_images, digits.test_images]).astype(np.float64)
    expected = (pixels - pixels.mean(axis=0)) / (pixels.std(axis=0) + 0.001)
    images = digits.normalise(digits.test_images, "pixel")
    assert images.shape == (355, 1, 8, 8)
    assert np.allclose(images[:, 0], expected[len(digits.train_images) :], atol=1e-4)
    assert not np.allclose(images, digits.normalise(digits.test_images), atol=0.1)


def test_a_data_set_is_read_once() -> None:
    assert load_dataset("digits") is load_dataset("digits", "anywhere")


def test_plain_files_are_read_from_the_folder_its_parent_or_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_idx_files(tmp_path / "a" / FASHION)
    for folder in (tmp_path / "a", tmp_path / "a" / FASHION):
        data = load_dataset(FASHION, str(folder))
        assert np.array_equal(data.train_images, pictures(6, 28, 28))
        assert data.test_labels.tolist() == [0, 1, 2, 3]
    write_idx_files(tmp_path / "b")
    monkeypatch.setenv(DATA_DIR_VARIABLE, str(tmp_path / "b"))
    assert len(load_dataset(FASHION).train_labels) == 6


def test_the_sub_folder_wins_because_both_data_sets_name_their_files_alike(tmp_path: Path) -> None:
    write_idx_files(tmp_path / FASHION)
    (tmp_path / TRAIN_IMAGES).write_bytes(b"those of another data set")
    assert len(load_dataset(FASHION, str(tmp_path)).train_labels) == 6


def test_a_missing_file_is_named_with_its_checksum_and_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DatasetError) as caught:
        load_dataset(FASHION, str(tmp_path))
    assert str(caught.value) == (
        f"{TRAIN_IMAGES}.gz (MD5 {TRAIN_IMAGES_MD5}) is neither in {tmp_path} nor in {tmp_path / FASHION}; "
        "fedchain data fashion-mnist --download fetches it"
    )
    monkeypatch.delenv(DATA_DIR_VARIABLE, raising=False)
    with pytest.raises(DatasetError, match=DATA_DIR_VARIABLE):
        load_dataset(FASHION)


@pytest.mark.parametrize("name", [name for name, info in DATASETS.items() if info.files])
def test_every_data_set_says_what_it_lacks_and_how_to_get_it(name: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetError) as caught:
        load_dataset(name, str(tmp_path))
    message = str(caught.value)
    assert message.startswith(f"{DATASETS[name].files[0].name} ")
    assert str(tmp_path) in message
    assert f"fedchain data {name} --download" in message or DATASETS[name].page in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("suffix", "content", "message"),
    [
        (".gz", gzip.compress(b"another file"), f"is damaged: MD5 {TRAIN_IMAGES_MD5} expected, found"),
        ("", b"", "is no IDX file of rank 3"),
        ("", idx(np.zeros(4)), "is no IDX file of rank 3"),
        ("", idx(np.zeros((2, 28, 28)))[:-1], "1584 bytes expected, found 1583"),
        ("", bytes((0, 0, 8, 3)) + b"\xff" * 12, "bytes expected, found 16"),
        ("", idx(np.zeros((5, 28, 28))), "5 images but 6 labels in the train files"),
        ("", idx(np.zeros((6, 28, 20))), "train examples must have shape (1, 28, 28), not (28, 20)"),
    ],
    ids=["other checksum", "empty", "other rank", "cut off", "impossible size", "too few images", "other shape"],
)
def test_a_damaged_file_is_refused(tmp_path: Path, suffix: str, content: bytes, message: str) -> None:
    write_idx_files(tmp_path)
    (tmp_path / TRAIN_IMAGES).unlink()
    (tmp_path / f"{TRAIN_IMAGES}{suffix}").write_bytes(content)
    with pytest.raises(DatasetError) as caught:
        load_dataset(FASHION, str(tmp_path))
    assert message in str(caught.value)


def test_a_label_without_a_class_is_refused(tmp_path: Path) -> None:
    write_idx_files(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx(np.array([0, 3, 10, 2])))
    with pytest.raises(DatasetError, match="test labels must be 0 to 9, not 0 to 10"):
        load_dataset("mnist", str(tmp_path))


def test_an_unknown_data_set_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="did you mean 'mnist'"):
        load_dataset("mnits")


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(DATASETS))
def test_the_official_files_hold_what_the_catalogue_says(name: str) -> None:
    try:
        data = load_dataset(name)
    except DatasetError as error:
        pytest.skip(f"set {DATA_DIR_VARIABLE} to the folder of the data sets: {error}")
    info = data.info
    assert (len(data.train_labels), len(data.test_labels)) == (info.train_size, info.test_size)
    assert np.unique(data.train_labels).tolist() == list(range(info.classes))
    assert (data.train_sources is not None) == bool(info.sources)
    images = data.normalise(data.train_images[:20_000])
    assert images.shape[1:] == info.shape
    channels = images.transpose(0, 1).flatten(1) if len(info.shape) == 3 else images.flatten()[None]
    assert torch.allclose(channels.mean(dim=1), torch.tensor(0.0), atol=0.05)
    assert torch.allclose(channels.std(dim=1), torch.tensor(1.0), atol=0.3)


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name == "covid-ct" else []) for name in sorted(DATASETS)],
)
def test_every_model_of_the_catalogue_takes_the_examples(name: str) -> None:
    info = DATASETS[name]
    for model in info.models:
        device = "meta" if model == "covid-cnn" else "cpu"  # shapes alone: it takes ten seconds for an image
        built = build_model(model, 0, **info.model_shape).to(device)
        _, logits = built(torch.zeros(2, *info.shape, device=device))
        assert logits.shape == (2, info.classes)
        assert built.classes == info.classes
