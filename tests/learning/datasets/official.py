"""Small files in the forms in which the data sets are published."""

import gzip
import io
import struct
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import scipy.io

PARTS = (("train", 6), ("t10k", 4))
"""Beginning of MNIST's file names, and how many images such a file has here."""


def pictures(count: int, *shape: int) -> np.ndarray:
    """Random pixels, always the same."""
    return np.random.default_rng(count).integers(256, size=(count, *shape), dtype=np.uint8)


def idx(array: np.ndarray) -> bytes:
    head = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + array.astype(np.uint8).tobytes()


def write_idx_files(folder: Path) -> None:
    """MNIST's four files, unpacked: the labels are 0, 1, 2, ..."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, size in PARTS:
        (folder / f"{part}-images-idx3-ubyte").write_bytes(idx(pictures(size, 28, 28)))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(idx(np.arange(size)))


def emnist_files(split: str, first_label: int = 0) -> dict[str, bytes]:
    """The four compressed files of one split, by their names in the archive."""
    made = {}
    for part, size in (("train", 6), ("test", 4)):
        made[f"gzip/emnist-{split}-{part}-images-idx3-ubyte.gz"] = idx(pictures(size, 28, 28))
        made[f"gzip/emnist-{split}-{part}-labels-idx1-ubyte.gz"] = idx(np.arange(size) + first_label)
    return {name: gzip.compress(content) for name, content in made.items()}


def zip_archive(members: Mapping[str, bytes]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return target.getvalue()


def tar_gz(members: Mapping[str, bytes]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return target.getvalue()


def cifar_binary(labels: Sequence[Sequence[int]]) -> bytes:
    """Records of the binary form: each image's labels, then its pixels."""
    images = pictures(len(labels), 3 * 32 * 32)
    return b"".join(bytes(own) + image.tobytes() for own, image in zip(labels, images, strict=True))


def cifar10_binary_files() -> dict[str, bytes]:
    names = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
    return {f"cifar-10-batches-bin/{name}": cifar_binary([(place,), (place + 1,)]) for place, name in enumerate(names)}


def cifar_python(labels: Sequence[int], key: str = "labels") -> bytes:
    """One file of the Python form, instruction by instruction as Python 2.7's cPickle wrote the published ones."""
    images = pictures(len(labels), 3 * 32 * 32).tobytes()
    kind = b"cnumpy\ndtype\nq\x08" + _text(b"u1") + b"K\x00K\x01\x87Rq\x09"
    kind += b"(K\x03" + _text(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\nq\x04cnumpy\nndarray\nq\x05K\x00\x85" + _text(b"b") + b"\x87Rq\x06"
    array += b"(K\x01K" + bytes((len(labels),)) + b"M\x00\x0c\x86" + kind
    array += b"\x89T" + struct.pack("<i", len(images)) + images + b"tb"
    listed = b"]q\x03(" + b"".join(b"K" + bytes((label,)) for label in labels) + b"e"
    names = b"]q\x0a(" + b"".join(_text(b"a_%d.png" % place) for place in range(len(labels))) + b"e"
    items = _text(b"batch_label") + b"q\x01" + _text(b"a batch") + _text(key.encode()) + b"q\x02" + listed
    items += _text(b"data") + array + _text(b"filenames") + names
    return b"\x80\x02}q\x00(" + items + b"u."


def _text(value: bytes) -> bytes:
    """Python 2's short string."""
    return b"U" + bytes((len(value),)) + value


def write(folder: Path, members: Mapping[str, bytes]) -> None:
    for name, content in members.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def mat(labels: Sequence[int]) -> bytes:
    """SVHN's form: images (32, 32, 3, n), labels (n, 1) from 1 to 10."""
    target = io.BytesIO()
    images = pictures(len(labels), 3, 32, 32).transpose(2, 3, 1, 0)
    scipy.io.savemat(target, {"X": images, "y": np.array(labels, dtype=np.uint8)[:, None]}, do_compression=True)
    return target.getvalue()
