import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from fedchain.learning.data import DATA_DIR_VARIABLE, load_dataset
from fedchain.learning.exceptions import ConfigurationError, DatasetError

FASHION = "fashion-mnist"
TRAIN_IMAGES = "train-images-idx3-ubyte"
TRAIN_IMAGES_MD5 = "8d4fb7e6c68d591d4c3dfef9ec88bf0d"


def idx(array: np.ndarray) -> bytes:
    return (
        bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.astype(np.uint8).tobytes()
    )


def write_plain_files(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for part, size in (("train", 6), ("t10k", 4)):
        (folder / f"{part}-images-idx3-ubyte").write_bytes(idx(np.arange(size * 4).reshape(size, 2, 2)))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(idx(np.arange(size)))


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


def test_a_data_set_is_read_once() -> None:
    assert load_dataset("digits") is load_dataset("digits")


def test_plain_files_are_read_from_the_folder_its_parent_or_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_plain_files(tmp_path / "a" / FASHION)
    for folder in (tmp_path / "a", tmp_path / "a" / FASHION):
        data = load_dataset(FASHION, str(folder))
        assert data.train_images.shape == (6, 2, 2)
        assert data.train_images[5].tolist() == [[20, 21], [22, 23]]
        assert data.test_labels.tolist() == [0, 1, 2, 3]
    write_plain_files(tmp_path / "b")
    monkeypatch.setenv(DATA_DIR_VARIABLE, str(tmp_path / "b"))
    assert len(load_dataset(FASHION).train_labels) == 6


def test_the_sub_folder_wins_because_both_data_sets_name_their_files_alike(tmp_path: Path) -> None:
    write_plain_files(tmp_path / FASHION)
    (tmp_path / TRAIN_IMAGES).write_bytes(b"those of another data set")
    assert len(load_dataset(FASHION, str(tmp_path)).train_labels) == 6


def test_a_missing_file_is_named_with_its_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DatasetError) as caught:
        load_dataset(FASHION, str(tmp_path))
    assert f"{TRAIN_IMAGES}.gz (MD5 {TRAIN_IMAGES_MD5}) is neither in {tmp_path}" in str(caught.value)
    monkeypatch.delenv(DATA_DIR_VARIABLE, raising=False)
    with pytest.raises(DatasetError, match=DATA_DIR_VARIABLE):
        load_dataset(FASHION)


@pytest.mark.parametrize(
    ("suffix", "content", "message"),
    [
        (".gz", gzip.compress(b"another file"), f"MD5 {TRAIN_IMAGES_MD5} expected, found"),
        ("", b"", "is no IDX file of rank 3"),
        ("", idx(np.zeros(4)), "is no IDX file of rank 3"),
        ("", idx(np.zeros((2, 2, 2)))[:-1], "24 bytes expected, found 23"),
        ("", bytes((0, 0, 8, 3)) + b"\xff" * 12, "bytes expected, found 16"),
        ("", idx(np.zeros((5, 2, 2))), "5 images but 6 labels"),
    ],
    ids=["other checksum", "empty", "other rank", "cut off", "impossible size", "images without labels"],
)
def test_a_damaged_file_is_refused(tmp_path: Path, suffix: str, content: bytes, message: str) -> None:
    write_plain_files(tmp_path)
    (tmp_path / TRAIN_IMAGES).unlink()
    (tmp_path / f"{TRAIN_IMAGES}{suffix}").write_bytes(content)
    with pytest.raises(DatasetError) as caught:
        load_dataset(FASHION, str(tmp_path))
    assert message in str(caught.value)


def test_an_unknown_data_set_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="did you mean 'mnist'"):
        load_dataset("mnits")


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_the_official_files_are_read(name: str) -> None:
    try:
        data = load_dataset(name)
    except DatasetError as error:
        pytest.skip(f"set {DATA_DIR_VARIABLE} to the folder of the data sets: {error}")
    assert data.train_images.shape == (60_000, 28, 28)
    assert data.test_images.shape == (10_000, 28, 28)
    assert np.bincount(data.test_labels).sum() == 10_000
    pixels = data.train_images / data.pixel_max
    assert pixels.mean() == pytest.approx(data.mean, abs=1e-3)
    assert pixels.std() == pytest.approx(data.std, abs=1e-3)
