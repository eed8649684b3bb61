"""The data sets: sizes, scaling, models that fit, files and checksums. A new one is an entry here, and maybe a reader.

Nothing heavy is imported: the command line's help reads this table.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from fedchain.learning.exceptions import ConfigurationError


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A file as its publisher offers it."""

    name: str
    """Name in the data folder."""

    url: str
    """Where `--download` fetches it from; empty where it has no lasting address."""

    md5: str = ""
    """MD5 as published, hexadecimal; empty where nobody published one."""

    unpacked: tuple[str, ...] = ()
    """The files in an archive that are read; they may as well lie there unpacked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetInfo:
    """The facts that are known about a data set before it is read."""

    name: str
    """Name on the command line, and of its sub-folder unless `folder` says otherwise."""

    title: str
    """The subject of its examples, for people."""

    shape: tuple[int, ...]
    """Shape of one example: (channels, height, width) of an image, or (features,)."""

    classes: int
    """Number of classes C."""

    train_size: int
    """Training examples."""

    test_size: int
    """Test examples."""

    models: tuple[str, ...]
    """Built-in models that take such examples; 'auto' means the first one that the method can work with."""

    reader: str
    """The function that reads the files: 'module:function'."""

    pixel_max: int = 255
    """Largest value of a pixel."""

    mean: tuple[float, ...] = (0.0,)
    """Mean of each channel of the training images after division by `pixel_max`; ready-made features have 0."""

    std: tuple[float, ...] = (1.0,)
    """Standard deviation of each channel likewise."""

    files: tuple[PublishedFile, ...] = ()
    """The published files; empty for a data set that a library brings."""

    other_files: tuple[PublishedFile, ...] = ()
    """The same in another form: checked and read where it is there, but not fetched."""

    page: str = ""
    """Where people find the data set, its authors and its licence."""

    folder: str = ""
    """Sub-folder of the data folder, where it is not called like the data set."""

    sources: str = ""
    """The kind of source that an example is from, in the plural; empty where the files do not say."""

    @property
    def folder_name(self) -> str:
        """Sub-folder of the data folder in which the files are looked for first."""
        return self.folder or self.name

    @property
    def model_shape(self) -> dict[str, int]:
        """Sizes that a model is built for: numbers of classes and features, and for images their channels and side."""
        known = {"classes": self.classes, "features": math.prod(self.shape)}
        return known if len(self.shape) == 1 else known | {"channels": self.shape[0], "size": self.shape[1]}

    def with_classes(self, classes: int) -> "DatasetInfo":
        """Return the data set with its first so many classes; 0: all of them. Raises `ConfigurationError`."""
        if classes and not CLASSES_MIN <= classes <= self.classes:
            raise ConfigurationError(f"classes must be 0 or between {CLASSES_MIN} and {self.classes}, not {classes}")
        return replace(self, classes=classes) if classes else self

    def validate_model(self, model: str) -> None:
        """Raise `ConfigurationError` unless a built-in model takes such examples."""
        if model not in self.models:
            raise ConfigurationError(f"model '{model}' does not fit {self.name}; use {', '.join(self.models)}")

    def validate_images(self, what: str) -> None:
        """Raise `ConfigurationError`, which begins with what needs them, unless the examples are images."""
        if len(self.shape) != 3:
            raise ConfigurationError(f"{what} is for images, which {self.name} has not")

    def validate_sources(self) -> None:
        """Raise `ConfigurationError` unless the files say which source an example is from."""
        if not self.sources:
            known = ", ".join(name for name, other in DATASETS.items() if other.sources)
            found = f"{self.name} does not say where its examples come from, as {known} do"
            raise ConfigurationError(f"partition is by-source, but {found}")


CLASSES_MIN = 2
"""With fewer classes there is nothing to tell apart."""

_FROZEN = ("frozen-2", "frozen-3")

FROZEN_MODELS = frozenset(_FROZEN)
"""Models that train nothing but a head."""

_POOLED = ("plain-cnn", "resnet18-plain", "resnet18-plain-16")

POOLED_MODELS = frozenset(_POOLED)
"""Models that end with a mean over the pixels, and can be cut before it."""

_LIKE_CNN = ("cnn-narrow", "cnn-wide", "mlp-50", "mlp-bn-50")
"""Networks for 28x28 images whose embeddings are as wide as those of cnn: they can exchange prototypes with it."""

_SPLIT = ("resnet2-56", "resnet4-56", "resnet8-56", "resnet10-56", "resnet12-56")
"""Networks for images, cut behind their first layer."""

_SPLIT_MLPS = ("split-mlp-1", "split-mlp-2", "split-mlp-3")
"""Networks for 64 numbers, cut behind their first layer."""

SPLIT_MODELS = frozenset((*_SPLIT, *_SPLIT_MLPS))
"""Models that are cut behind their first layer."""

_FOR_32X32 = ("resnet18", "resnet18-200", "vit-tiny", "fixup-resnet9", "logistic", *_POOLED, *_SPLIT, *_FROZEN)
"""Networks of the papers for small colour images, and the model that takes all there is."""

_IDX = "fedchain.learning.datasets.idx:read"
_EMNIST = "fedchain.learning.datasets.idx:read_emnist"
_CIFAR = "fedchain.learning.datasets.cifar:read"

_DIGITS = DatasetInfo(
    name="digits",
    title="handwritten digits of 8x8 pixels, which come with scikit-learn",
    shape=(1, 8, 8),
    classes=10,
    train_size=1_442,
    test_size=355,
    models=("digits-mlp", "digits-mlp-bn", "plain-cnn", *_SPLIT, *_SPLIT_MLPS, "logistic", *_FROZEN),
    reader="fedchain.learning.datasets.digits:read",
    pixel_max=16,
    mean=(0.3053,),
    std=(0.3760,),
)


def _idx_files(address: str, checksums: tuple[str, str, str, str]) -> tuple[PublishedFile, ...]:
    names = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
    return tuple(
        PublishedFile(f"{name}.gz", f"{address}{name}.gz", md5) for name, md5 in zip(names, checksums, strict=True)
    )


_MNIST = DatasetInfo(
    name="mnist",
    title="handwritten digits",
    shape=(1, 28, 28),
    classes=10,
    train_size=60_000,
    test_size=10_000,
    models=("cnn", "fedreg-cnn", "logistic", "mlp", "mlp-bn", "mlp-linear", *_LIKE_CNN, *_POOLED, *_SPLIT, *_FROZEN),
    reader=_IDX,
    mean=(0.1307,),
    std=(0.3081,),
    files=_idx_files(  # its authors' own server does not give them out any more
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        (
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "d53e105ee54ea40749a09fcbcd1e9432",
            "9fb629c4189551a2d022fa330f9573f3",
            "ec29112dd5afa0611ce80d1b7f02629c",
        ),
    ),
    page="http://yann.lecun.com/exdb/mnist/",
)

_FASHION = replace(
    _MNIST,
    name="fashion-mnist",
    title="pictures of clothes",
    mean=(0.2860,),
    std=(0.3530,),
    files=_idx_files(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        (
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "25c81989df183df01b3e8a0aad5dffbe",
            "bef4ecab320f06d8554ea6380940ec79",
            "bb300cfdad3c16e7a12a480ee83cd310",
        ),
    ),
    page="https://github.com/zalandoresearch/fashion-mnist",
)


def _emnist_archive(split: str) -> tuple[PublishedFile]:
    """The archive of all splits, of which one is read."""
    kinds = ("train-images-idx3", "train-labels-idx1", "test-images-idx3", "test-labels-idx1")
    address = "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip"
    unpacked = tuple(f"gzip/emnist-{split}-{kind}-ubyte.gz" for kind in kinds)
    return (PublishedFile("gzip.zip", address, "58c8d27c78d21e728a6bc7b3cc06412e", unpacked),)


_EMNIST_DIGITS = replace(
    _MNIST,
    name="emnist-digits",
    title="EMNIST: more handwritten digits",
    train_size=240_000,
    test_size=40_000,
    reader=_EMNIST,
    mean=(0.1733,),
    std=(0.3317,),
    files=_emnist_archive("digits"),
    page="https://www.nist.gov/itl/products-and-services/emnist-dataset",
    folder="emnist",
)

_EMNIST_LETTERS = replace(
    _EMNIST_DIGITS,
    name="emnist-letters",
    files=_emnist_archive("letters"),
    title="EMNIST: handwritten letters, upper and lower case as one class",
    classes=26,
    train_size=124_800,
    test_size=20_800,
    mean=(0.1722,),
    std=(0.3309,),
)

_EMNIST_BALANCED = replace(
    _EMNIST_DIGITS,
    name="emnist-balanced",
    files=_emnist_archive("balanced"),
    title="EMNIST: digits and letters, as many of each",
    classes=47,
    train_size=112_800,
    test_size=18_800,
    mean=(0.1751,),
    std=(0.3332,),
)

_EMNIST_BYCLASS = replace(
    _EMNIST_DIGITS,
    name="emnist-byclass",
    files=_emnist_archive("byclass"),
    title="EMNIST: digits, upper-case and lower-case letters, as often as they were written",
    classes=62,
    train_size=697_932,
    test_size=116_323,
    mean=(0.1736,),
    std=(0.3317,),
)

_EMNIST_BYMERGE = replace(
    _EMNIST_BYCLASS,
    name="emnist-bymerge",
    files=_emnist_archive("bymerge"),
    title="EMNIST: the same, upper and lower case as one class where they look alike",
    classes=47,
)

_CIFAR10 = DatasetInfo(
    name="cifar10",
    title="colour photographs of animals and vehicles",
    shape=(3, 32, 32),
    classes=10,
    train_size=50_000,
    test_size=10_000,
    models=("cnn", *_FOR_32X32),
    reader=_CIFAR,
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2023, 0.1994, 0.2010),
    files=(
        PublishedFile(
            "cifar-10-binary.tar.gz",
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            "c32a1d4ab5d03f1284b67883e8d87530",
            (*(f"cifar-10-batches-bin/data_batch_{n}.bin" for n in range(1, 6)), "cifar-10-batches-bin/test_batch.bin"),
        ),
    ),
    other_files=(
        PublishedFile(
            "cifar-10-python.tar.gz",
            "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
            "c58f30108f718f92721af3b95e74349a",
            (*(f"cifar-10-batches-py/data_batch_{n}" for n in range(1, 6)), "cifar-10-batches-py/test_batch"),
        ),
    ),
    page="https://www.cs.toronto.edu/~kriz/cifar.html",
)

_CIFAR100 = replace(
    _CIFAR10,
    name="cifar100",
    title="colour photographs of 100 kinds of things",
    classes=100,
    mean=(0.5071, 0.4865, 0.4409),
    std=(0.2673, 0.2564, 0.2762),
    files=(
        PublishedFile(
            "cifar-100-binary.tar.gz",
            "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
            "03b5dce01913d631647c71ecec9e9cb8",
            ("cifar-100-binary/train.bin", "cifar-100-binary/test.bin"),
        ),
    ),
    other_files=(
        PublishedFile(
            "cifar-100-python.tar.gz",
            "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
            "eb9058c3a382ffc7106e4002c42a8d85",
            ("cifar-100-python/train", "cifar-100-python/test"),
        ),
    ),
)

_SVHN = DatasetInfo(
    name="svhn",
    title="house numbers on photographs, one digit each",
    shape=(3, 32, 32),
    classes=10,
    train_size=73_257,
    test_size=26_032,
    models=("cnn", *_FOR_32X32),
    reader="fedchain.learning.datasets.svhn:read",
    mean=(0.4377, 0.4438, 0.4728),
    std=(0.1980, 0.2010, 0.1970),
    files=(
        PublishedFile(
            "train_32x32.mat",
            "http://ufldl.stanford.edu/housenumbers/train_32x32.mat",
            "e26dedcc434d2e4c54c9b2d4a06d8373",
        ),
        PublishedFile(
            "test_32x32.mat",
            "http://ufldl.stanford.edu/housenumbers/test_32x32.mat",
            "eb5a983be6a315427106f1b164d9cef3",
        ),
    ),
    page="http://ufldl.stanford.edu/housenumbers/",
)

_COVID_CT = DatasetInfo(
    name="covid-ct",
    title="CT images of lungs, with COVID-19 or without",
    shape=(1, 224, 224),
    classes=2,
    train_size=425,
    test_size=203,
    models=("cnn", "covid-cnn", "plain-cnn", "logistic", *_FROZEN),
    reader="fedchain.learning.datasets.covid_ct:read",
    mean=(0.5969,),
    std=(0.3189,),
    files=(PublishedFile("covidct_gray224.npz", ""),),
    page="https://github.com/UCSD-AI4H/COVID-CT",
    sources="patients",
)

_TMD = DatasetInfo(
    name="tmd",
    title="how somebody travels, from 64 features of a telephone's sensors over 5 s",
    shape=(64,),
    classes=5,
    train_size=4_729,
    test_size=1_164,
    models=("digits-mlp", *_SPLIT_MLPS, "logistic"),
    reader="fedchain.learning.datasets.tmd:read",
    pixel_max=1,
    files=(PublishedFile("dataset_5secondWindow.csv.gz", ""),),
    page="http://cs.unibo.it/projects/us-tm2017/",
    sources="users",
)

DATASETS: Mapping[str, DatasetInfo] = MappingProxyType(
    {
        info.name: info
        for info in (
            _CIFAR10,
            _CIFAR100,
            _COVID_CT,
            _DIGITS,
            _EMNIST_BALANCED,
            _EMNIST_BYCLASS,
            _EMNIST_BYMERGE,
            _EMNIST_DIGITS,
            _EMNIST_LETTERS,
            _FASHION,
            _MNIST,
            _SVHN,
            _TMD,
        )
    }
)
"""Every built-in data set by its name."""
