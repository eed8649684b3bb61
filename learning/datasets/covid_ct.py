"""COVID-CT: 746 images, as an archive of arrays of one size, or as the authors' folders of pictures of any size."""

import io
import zipfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedchain.files.layout import open_found
from fedchain.learning.datasets.dataset import Dataset
from fedchain.learning.datasets.files import DAMAGED, Files
from fedchain.learning.exceptions import DatasetError

SIDE = 224
"""Height and width of an image, in pixels."""

ARRAYS = "covidct_gray224.npz"
"""Arrays x (n, 224, 224) of bytes; y, 1 for COVID-19; split, 0 training, 1 validation, 2 test; patient."""

PICTURES = "Images-processed"
"""The authors' folder of pictures, beside their folder of lists."""

_LISTS = "Data-split"
_KINDS = (("NonCOVID", "CT_NonCOVID"), ("COVID", "CT_COVID"))
"""Name in the lists, and folder of the pictures, of each class."""


def read(files: Files) -> Dataset:
    """Read the training and the test images of the official split; its validation images are left alone."""
    pictures = files.find(PICTURES)
    if files.find(ARRAYS) is None and pictures is not None:
        return _read_pictures(files, pictures)
    path, content = files.read(ARRAYS)
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            images, labels, split = archive["x"], archive["y"].astype(np.int64), archive["split"]
            _, sources = np.unique(archive["patient"], return_inverse=True)
    except (KeyError, zipfile.BadZipFile, *DAMAGED) as error:
        raise DatasetError(f"{path} cannot be read: {error}") from error
    if images.dtype != np.uint8 or not len(images) == len(labels) == len(split) == len(sources):
        raise DatasetError(f"{path}: x must hold bytes, and x, y, split and patient must be of one length")
    return _choose(files, path, images, labels, split, sources.astype(np.int64))


def _read_pictures(files: Files, pictures: Path) -> Dataset:
    """Read the pictures that the authors' lists name. The lists do not say whose they are: each is its own source."""
    images, labels, split = [], [], []
    for label, (kind, folder) in enumerate(_KINDS):
        for number, part in enumerate(("train", "val", "test")):
            path, content = files.read(f"{_LISTS}/{kind}/{part}CT_{kind}.txt")
            for name in content.decode("utf-8", "replace").split("\n"):
                if name.strip():
                    images.append(_read_picture(pictures / folder / name.strip(), path))
                    labels.append(label)
                    split.append(number)
    sources = np.arange(len(images), dtype=np.int64)
    return _choose(files, pictures, np.stack(images), np.array(labels, dtype=np.int64), np.array(split), sources)


def _read_picture(path: Path, named_in: Path) -> NDArray[np.uint8]:
    """Return one picture in shades of grey, (224, 224)."""
    from PIL import Image

    try:
        with open_found(path) as file, Image.open(file) as picture:
            return np.asarray(picture.convert("L").resize((SIDE, SIDE), Image.Resampling.BILINEAR))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DatasetError(f"{path}, which {named_in} names, cannot be read: {error}") from error


def _choose(
    files: Files,
    path: Path,
    images: NDArray[np.uint8],
    labels: NDArray[np.int64],
    split: NDArray[np.int64],
    sources: NDArray[np.int64],
) -> Dataset:
    train, test = split == 0, split == 2
    files.validate_count(path, int(train.sum() + test.sum()), files.info.train_size + files.info.test_size)
    return Dataset(
        info=files.info,
        train_images=images[train],
        train_labels=labels[train],
        test_images=images[test],
        test_labels=labels[test],
        train_sources=sources[train],
        test_sources=sources[test],
    )
