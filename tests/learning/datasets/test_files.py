"""Where files of a data set are looked for, and what is said of those that are missing or damaged."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from fedchain.learning.datasets.files import DATA_DIR_VARIABLE
from fedchain.learning.datasets.load import load_dataset
from fedchain.learning.exceptions import DatasetError
from tests.learning.datasets.official import idx, pictures, write_idx_files
from tests.support.learning.unchecked import few_rows as few_rows

FASHION = "fashion-mnist"
TRAIN_IMAGES = "train-images-idx3-ubyte"
TRAIN_IMAGES_MD5 = "8d4fb7e6c68d591d4c3dfef9ec88bf0d"


@pytest.mark.usefixtures("few_rows")
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


@pytest.mark.usefixtures("few_rows")
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


@pytest.mark.usefixtures("few_rows")
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
