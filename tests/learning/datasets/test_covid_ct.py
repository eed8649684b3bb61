"""Files of COVID-CT."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedchain.learning.datasets.load import load_dataset
from fedchain.learning.exceptions import DatasetError
from tests.learning.datasets.official import (
    pictures,
    write,
)
from tests.support.learning.unchecked import few_rows as few_rows


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


@pytest.mark.usefixtures("few_rows")
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


@pytest.mark.usefixtures("few_rows")
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


def test_an_archive_without_its_last_images_is_named(tmp_path: Path) -> None:
    write(tmp_path, {"covidct_gray224.npz": _npz()})
    with pytest.raises(DatasetError, match=r"covidct_gray224.npz holds 5 examples, 628 were published$"):
        load_dataset("covid-ct", str(tmp_path))
