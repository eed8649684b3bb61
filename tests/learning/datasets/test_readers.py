"""Each published form, on small files that the test writes in it."""

import csv
import gzip
import io
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fedchain.learning.datasets import catalogue, tmd
from fedchain.learning.datasets.batch_file import read_batch_file
from fedchain.learning.datasets.load import load_dataset
from fedchain.learning.exceptions import DatasetError
from tests.learning.datasets.official import (
    cifar10_binary_files,
    cifar_binary,
    cifar_python,
    emnist_files,
    mat,
    pictures,
    tar_gz,
    write,
    zip_archive,
)

CIFAR10_LABELS = [0, 1, 1, 2, 2, 3, 3, 4, 4, 5]


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let files that a test made stand for the published ones."""
    monkeypatch.setattr("fedchain.learning.datasets.files.Files.validate_checksum", lambda *arguments: None)


def test_emnist_s_images_are_turned_upright_and_its_letters_count_from_0(tmp_path: Path) -> None:
    write(tmp_path / "emnist", emnist_files("letters", first_label=1))
    data = load_dataset("emnist-letters", str(tmp_path))
    assert np.array_equal(data.train_images, pictures(6, 28, 28).transpose(0, 2, 1))
    assert data.train_labels.tolist() == [0, 1, 2, 3, 4, 5]
    assert data.classes == 26


@pytest.mark.usefixtures("unchecked")
def test_emnist_is_read_from_its_archive(tmp_path: Path) -> None:
    write(tmp_path, {"gzip.zip": zip_archive(emnist_files("digits") | emnist_files("letters", 1))})
    data = load_dataset("emnist-digits", str(tmp_path))
    assert data.test_labels.tolist() == [0, 1, 2, 3]
    with pytest.raises(DatasetError, match=r"gzip.zip lacks the file gzip/emnist-balanced-test-images-idx3-ubyte.gz"):
        load_dataset("emnist-balanced", str(tmp_path))


def test_an_archive_is_checked_before_it_is_opened(tmp_path: Path) -> None:
    write(tmp_path, {"gzip.zip": zip_archive(emnist_files("digits")), "cifar-10-binary.tar.gz": b"not this"})
    write(tmp_path, {"cifar-100-python.tar.gz": b"nor this"})
    published = {"emnist-digits": "58c8d27c78d21e72", "cifar10": "c32a1d4ab5d03f12", "cifar100": "eb9058c3a382ffc7"}
    for name, md5 in published.items():
        with pytest.raises(DatasetError, match=f"is damaged: MD5 {md5}[0-9a-f]* expected, found"):
            load_dataset(name, str(tmp_path))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("place", ["archive", "folder", "in the folder", "sub-folder"])
def test_cifar10_s_binary_form_is_read(tmp_path: Path, place: str) -> None:
    files, data_dir = cifar10_binary_files(), tmp_path
    if place == "archive":
        files = {"cifar-10-binary.tar.gz": tar_gz(files)}
    write(tmp_path / "cifar10" if place == "sub-folder" else tmp_path, files)
    if place == "in the folder":
        data_dir = tmp_path / "cifar-10-batches-bin"
    data = load_dataset("cifar10", str(data_dir))
    assert data.train_labels.tolist() == CIFAR10_LABELS
    assert data.test_labels.tolist() == [5, 6]
    assert np.array_equal(data.test_images, pictures(2, 3, 32, 32))
    assert data.normalise(data.train_images).shape == (10, 3, 32, 32)


def test_each_channel_has_its_own_scale(tmp_path: Path) -> None:
    write(tmp_path, cifar10_binary_files())
    data = load_dataset("cifar10", str(tmp_path))
    images = data.normalise(data.test_images)
    info = catalogue.DATASETS["cifar10"]
    for channel, (mean, std) in enumerate(zip(info.mean, info.std, strict=True)):
        expected = (data.test_images[:, channel] / np.float32(255) - np.float32(mean)) / np.float32(std)
        assert np.allclose(images[:, channel].numpy(), expected, atol=1e-6)
    black = data.normalise(np.zeros((1, 3, 32, 32), dtype=np.uint8))[0, :, :1, :1]
    assert np.array_equal(data.black.numpy(), black.numpy())


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    "pack", [dict, lambda files: {"cifar-10-python.tar.gz": tar_gz(files)}], ids=["folder", "archive"]
)
def test_cifar10_s_python_form_is_read(tmp_path: Path, pack: Callable[[dict[str, bytes]], dict[str, bytes]]) -> None:
    names = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    files = {f"cifar-10-batches-py/{name}": cifar_python([place, place + 1]) for place, name in enumerate(names)}
    write(tmp_path, pack(files))
    data = load_dataset("cifar10", str(tmp_path))
    assert data.train_labels.tolist() == CIFAR10_LABELS
    assert np.array_equal(data.test_images, pictures(2, 3, 32, 32))


def test_cifar100_s_forms_are_read_with_the_fine_labels(tmp_path: Path) -> None:
    binary = {"train.bin": cifar_binary([(3, 99), (19, 0)]), "test.bin": cifar_binary([(1, 42)])}
    write(tmp_path / "b" / "cifar-100-binary", binary)
    python = {"train": cifar_python([99, 0], "fine_labels"), "test": cifar_python([42], "fine_labels")}
    write(tmp_path / "p" / "cifar-100-python", python)
    for folder in ("b", "p"):
        data = load_dataset("cifar100", str(tmp_path / folder))
        assert data.train_labels.tolist() == [99, 0]
        assert data.test_labels.tolist() == [42]
        assert np.array_equal(data.train_images, pictures(2, 3, 32, 32))


def test_a_missing_batch_is_named(tmp_path: Path) -> None:
    files = cifar10_binary_files()
    del files["cifar-10-batches-bin/data_batch_3.bin"]
    write(tmp_path, files)
    with pytest.raises(DatasetError, match=f"^cifar-10-batches-bin/data_batch_3.bin is neither in {tmp_path} nor in"):
        load_dataset("cifar10", str(tmp_path))


def test_a_batch_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    files = cifar10_binary_files()
    files["cifar-10-batches-bin/data_batch_3.bin"] = files["cifar-10-batches-bin/data_batch_3.bin"][:-1]
    write(tmp_path, files)
    with pytest.raises(DatasetError, match=r"data_batch_3.bin: 6145 bytes are no whole number of images of 3073 bytes"):
        load_dataset("cifar10", str(tmp_path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"cos\nsystem\n(U\x04evilq\x00tR.", "it asks for 'os system'"),
        (b"\x80\x02cbuiltins\neval\nU\x01a\x85R.", "it asks for 'builtins eval'"),
        (b"(ios\nsystem\n.", "instruction INST"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "instruction STACK_GLOBAL"),
        (b"\x80\x02]q\x00.", "must hold a dictionary, not list"),
        (b"\x80\x02}q\x00", "pickle exhausted before seeing STOP"),
        (b"", "pickle exhausted"),
        (b"\x80\x02}h\x07.", "7"),
        (b"\x80\x02u.", "pop from empty|out of range"),
        (b"\x80\x02}K\x01K\x02u.", "a mark is missing"),
        (cifar_python([1])[:-40], "expected|exhausted"),
    ],
    ids=[
        "call",
        "reduce",
        "old call",
        "new call",
        "list",
        "endless",
        "empty",
        "memory",
        "nothing",
        "no mark",
        "cut off",
    ],
)
def test_a_python_file_that_wants_anything_else_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        read_batch_file(Path("batch"), content)


ASKED: list[str] = []
"""Names that were imported or unpickled while the test listened."""


def _listen(event: str, arguments: tuple[object, ...]) -> None:
    if event in ("pickle.find_class", "import") and ASKED[:1] == ["listening"]:
        ASKED.append(f"{event} {arguments[:2]}")


def test_reading_a_python_file_imports_nothing_and_calls_nothing() -> None:
    read_batch_file(Path("batch"), cifar_python([3]))  # now every import of ours is done
    sys.addaudithook(_listen)
    ASKED[:] = ["listening"]
    try:
        found = read_batch_file(Path("batch"), cifar_python([3, 4]))
        with pytest.raises(DatasetError):
            read_batch_file(Path("batch"), b"cantigravity\ngeohash\n)R.")
    finally:
        heard, ASKED[:] = ASKED[1:], []
    assert heard == []
    assert found["labels"] == [3, 4]


@given(place=st.integers(0, len(cifar_python([3, 4])) - 1), value=st.integers(0, 255))
def test_a_python_file_with_a_wrong_byte_is_read_or_refused(place: int, value: int) -> None:
    content = bytearray(cifar_python([3, 4]))
    content[place] = value
    with suppress(DatasetError):
        assert isinstance(read_batch_file(Path("batch"), bytes(content)), dict)


def test_an_svhn_file_with_another_checksum_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {"train_32x32.mat": mat([1]), "test_32x32.mat": mat([2])})
    with pytest.raises(DatasetError, match="is damaged: MD5 e26dedcc434d2e4c54c9b2d4a06d8373 expected"):
        load_dataset("svhn", str(tmp_path))


@pytest.mark.usefixtures("unchecked")
def test_svhn_s_files_are_read_and_ten_is_zero(tmp_path: Path) -> None:
    write(tmp_path, {"train_32x32.mat": mat([1, 10, 9]), "test_32x32.mat": mat([10, 2])})
    data = load_dataset("svhn", str(tmp_path))
    assert data.train_labels.tolist() == [1, 0, 9]
    assert np.array_equal(data.train_images, pictures(3, 3, 32, 32))
    write(tmp_path / "other", {"train_32x32.mat": b"not this" * 40})
    with pytest.raises(DatasetError, match="is no MATLAB file that can be read"):
        load_dataset("svhn", str(tmp_path / "other"))


def _npz(**changes: object) -> bytes:
    target = io.BytesIO()
    arrays = {
        "x": pictures(6, 224, 224),
        "y": np.array([0, 1, 0, 1, 0, 1], dtype=np.uint8),
        "split": np.array([0, 0, 1, 0, 2, 2], dtype=np.uint8),
        "patient": np.array(["a", "b", "c", "b", "d", "e"]),
    }
    np.savez(target, **(arrays | changes))  # type: ignore[arg-type]
    return target.getvalue()


def test_covid_ct_keeps_to_the_official_split_and_knows_the_patients(tmp_path: Path) -> None:
    write(tmp_path, {"covid-ct/covidct_gray224.npz": _npz()})
    data = load_dataset("covid-ct", str(tmp_path))
    assert np.array_equal(data.train_images, pictures(6, 224, 224)[[0, 1, 3]])
    assert data.train_labels.tolist() == [0, 1, 1]
    assert data.test_labels.tolist() == [0, 1]
    assert data.train_sources is not None
    assert data.train_sources.tolist() == [0, 1, 1]
    assert data.normalise(data.test_images).shape == (2, 1, 224, 224)


@pytest.mark.parametrize(
    "content",
    [b"not this", _npz(x=np.zeros((6, 224, 224))), _npz(y=np.zeros(3)), _npz(y=np.array([None] * 6))],
    ids=["no archive", "no bytes", "too few labels", "pickled"],
)
def test_another_archive_than_covid_ct_s_is_refused(tmp_path: Path, content: bytes) -> None:
    write(tmp_path, {"covidct_gray224.npz": content})
    with pytest.raises(DatasetError, match=r"covidct_gray224.npz"):
        load_dataset("covid-ct", str(tmp_path))


def test_covid_ct_s_folder_of_pictures_is_read(tmp_path: Path) -> None:
    for kind in ("COVID", "NonCOVID"):
        lists = {part: f"{part}.png\n".encode() for part in ("train", "val", "test")}
        write(tmp_path, {f"Data-split/{kind}/{part}CT_{kind}.txt": text for part, text in lists.items()})
        folder = tmp_path / "Images-processed" / f"CT_{kind}"
        folder.mkdir(parents=True)
        for place, part in enumerate(lists):
            Image.new("RGB", (30 + place, 20), (90, 90, 90)).save(folder / f"{part}.png")
    data = load_dataset("covid-ct", str(tmp_path))
    assert data.train_labels.tolist() == data.test_labels.tolist() == [0, 1]
    assert (data.train_images == 90).all()
    assert data.train_images.shape == (2, 224, 224)
    (tmp_path / "x" / "Images-processed").mkdir(parents=True)
    write(tmp_path / "x", {"Data-split/NonCOVID/trainCT_NonCOVID.txt": b"none.png"})
    with pytest.raises(DatasetError, match=r"none.png, which .*trainCT_NonCOVID.txt names, cannot be read"):
        load_dataset("covid-ct", str(tmp_path / "x"))


def _table(rows: list[dict[str, object]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return gzip.compress(text.getvalue().encode())


def _windows(count: int) -> list[dict[str, object]]:
    """Windows of two users in two classes; the first feature is missing in every third row, the last is constant."""
    return [
        {
            "id": place,
            "time": 1.0,
            "activityrecognition#0": "",
            "activityrecognition#1": 100.0,
            "sensor0": "" if place % 3 == 0 else place,
            **{f"sensor{number}": number * place for number in range(1, 63)},
            "sensor63": 7.0,
            "target": ("Car", "Walking")[place % 2],
            "user": ("u01", "u02")[place // 2 % 2],
        }
        for place in range(count)
    ]


def test_tmd_is_standardised_and_what_is_missing_becomes_the_mean(tmp_path: Path) -> None:
    write(tmp_path, {"tmd/dataset_5secondWindow.csv.gz": _table(_windows(60))})
    data = load_dataset("tmd", str(tmp_path))
    assert data.train_images.shape == (48, 64)
    assert data.test_images.shape == (12, 64)
    assert np.abs(data.train_images.mean(axis=0)).max() < 1e-6
    assert np.allclose(data.train_images.std(axis=0)[:-1], 1, atol=1e-5)
    assert (data.train_images[:, -1] == 0).all()
    assert ((data.train_images[:, 0] == 0).sum(), (data.test_images[:, 0] == 0).sum()) == (16, 4)
    assert set(data.train_labels.tolist()) == {tmd.CLASSES.index("Car"), tmd.CLASSES.index("Walking")}
    assert data.test_sources is not None
    assert np.bincount(data.test_sources).tolist() == [6, 6]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (_table(_windows(3)), "3 windows are too few"),
        (_table([{"target": "Flying", "user": "u01", "a": 1.0}]), "is no table of windows"),
        (_table([{"user": "u01", "a": "x"}]), "is no table of windows"),
        (b"not this", "cannot be read"),
    ],
    ids=["too few", "unknown class", "no number", "not compressed"],
)
def test_another_table_than_tmd_s_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    write(tmp_path, {"dataset_5secondWindow.csv.gz": content})
    with pytest.raises(DatasetError, match=message):
        load_dataset("tmd", str(tmp_path))
