"""The user's choices about learning: one frozen value, whose field docstrings are the command line's help."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated

from fedchain.files.effects import Needs
from fedchain.learning.datasets.catalogue import DATASETS, FROZEN_MODELS, POOLED_MODELS, SPLIT_MODELS, DatasetInfo
from fedchain.learning.exceptions import ConfigurationError, UnknownName
from fedchain.learning.registry import METHODS, HyperparameterValue, build_method, load_method, locate_method

if TYPE_CHECKING:
    from fedchain.learning.models.model_info import ModelInfo

CLIENTS_MAX = 100_000
"""More clients than this in one federation is taken for a typing error."""

SHOTS_MAX = max(info.train_size for info in DATASETS.values())
"""No data set here has more examples than this."""

CLASSES_MAX = max(info.classes for info in DATASETS.values())
"""No data set here has more classes than this."""

CLASSES_AVG = 3
"""Nominal number of classes of a client, unless something else is asked for."""

OWN = "own"
"""Name of the data set where every client has its own, and the model with it; see `fedchain.learning.task.custom`."""

PARTITIONS = ("by-class", "by-class-equal", "by-source", "dirichlet", "dirichlet-hsu", "iid", "n-way", "n-way-exact")
"""How the examples can be spread over the clients."""

SCALINGS = ("channel", "pixel")
"""How the pixels of a built-in data set can be standardised: by channel, or each pixel by itself."""

AUGMENTATIONS = ("crop-flip", "none")
"""Changes that can be made to training images each time that they are looked at."""

HEADS = ("file", "new")
"""Where the weights of a model's last layer come from, beside those of a file."""

FEATURE_SHIFTS = ("none", "weather")
"""How one client's images can differ from another's."""

_DIVIDED = Needs("is_divided", why="the members' own data are not divided")

_N_WAY = Needs("partition", ("n-way", "n-way-exact"))

_MODELS = ("auto", *sorted({model for info in DATASETS.values() for model in info.models}))


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningConfig:
    """A federation's learning task: method, data, model and how the data are spread over the clients.

    Building it checks nothing; `validate` does.
    """

    method: str = "dfpl"
    """Learning method: dfpl, fedavg, blade-fl, solo, any other of docs/methods.md, one that an installed package
    registers, or FILE.py:Class or module:Class for one of your own."""

    hyperparameters: Mapping[str, HyperparameterValue] | tuple[tuple[str, HyperparameterValue], ...] = ()
    """Hyper-parameters of the method that differ from its defaults, as name=value."""

    dataset: str = "digits"
    """Data set: digits (built in), one that is read from the data folder (`fedchain data` lists them), or own."""

    data_dir: str = ""
    """Folder with the data set's files, or its parent folder; empty means the variable FEDCHAIN_DATA."""

    task: str = ""
    """For own data: the function that returns a client's (model, train set, test set), as FILE.py:function or
    module:function."""

    shapes: "ModelInfo | None" = None
    """The shapes of everybody's model, where they are known; for own data they must be."""

    more_shapes: "tuple[ModelInfo, ...]" = ()
    """Where members have different models: the shapes of the others, in the order in which clients take them."""

    model: str = "auto"
    """Model: one that takes the data set's examples (`fedchain data` lists them), auto for the first of them that the
    method takes, or several joined by +, which clients take in turn, for methods that exchange no parameters."""

    weights: str = ""
    """Safetensors file with the weights that all models begin with, by the model's own names; empty: random ones."""

    weights_hash: str = ""
    """SHA-256 of that file, in hexadecimal, on which members agree; each has a copy of its own."""

    weights_head: str = "file"
    """Weights of the last layer: those of the file, or new (random), where its classes are others."""

    classes: int = 0
    """Classes that take part: the data set's first so many; 0: all of them."""

    clients: int = 20
    """Number of clients K among whom the data are spread; a dedicated aggregator is none of them."""

    dataless: int = -1
    """Place of the founder without data, which follows from the founding document; -1: none, or behind all parts."""

    partition: Annotated[str, _DIVIDED] = "n-way"
    """Spread of the data: n-way (few classes each), n-way-exact (normally distributed), dirichlet (each class in
    proportions), dirichlet-hsu (each client a mixture of classes), by-class (classes_per_client each, log-normal
    sizes), by-class-equal (equal sizes), by-source (whole users or patients) or iid."""

    classes_avg: Annotated[int, _DIVIDED, _N_WAY] = CLASSES_AVG
    """n-way: nominal mean number of classes of a client (DFPL: Avg); all of them where the data set has fewer."""

    classes_std: Annotated[int, _DIVIDED, _N_WAY] = 1
    """n-way: nominal spread of that number (DFPL: Std)."""

    shots: Annotated[int, _DIVIDED, _N_WAY] = 100
    """n-way: training examples of each class of a client; fewer where the data set is too small."""

    test_shots: Annotated[int, _DIVIDED, _N_WAY] = 40
    """n-way: test examples of each class of a client; fewer where the data set is too small."""

    dirichlet_alpha: Annotated[float, _DIVIDED, Needs("partition", ("dirichlet", "dirichlet-hsu"))] = 0.5
    """dirichlet: concentration; the smaller, the more clients differ."""

    classes_per_client: Annotated[int, _DIVIDED, Needs("partition", ("by-class", "by-class-equal"))] = 1
    """by-class: number of classes of a client."""

    train_examples: int = 0
    """Training examples that are spread over the clients, drawn at random; 0: all of the data set."""

    scaling: str = "channel"
    """Standardisation of pixels: channel (mean and deviation of each channel) or pixel (of each place in the image)."""

    augmentation: str = "none"
    """Change of training images: none, or crop-flip (shift by up to four pixels, mirror half of them)."""

    feature_shift: str = "none"
    """Difference between clients' images, training and test alike: none, or weather (those of one client are as they
    are, of the others bright, blurred, noisy and foggy, in turn)."""

    material: Mapping[str, bytes] | tuple[tuple[str, bytes], ...] = ()
    """Public material of the method, by name: keys that a dealer published when the federation was founded."""

    seed: int = 0
    """Root of all randomness in learning: partition, initial models, batches and dropout."""

    def __post_init__(self) -> None:
        for name in ("hyperparameters", "material"):
            pairs = getattr(self, name)
            items = pairs.items() if isinstance(pairs, Mapping) else pairs
            object.__setattr__(self, name, tuple(sorted((key, value) for key, value in items)))

    def validate(self, *, is_described: bool = True) -> None:
        """Raise `ConfigurationError` for the first value that cannot work.

        Whether the data set has enough examples is only known once it is loaded (`partition.split`). A task on own data
        lacks the shapes of its model until its function was called; before that it is not described.
        """
        for field in fields(self):
            if field.name not in ("hyperparameters", "material", "shapes", "more_shapes"):
                _validate_type(field.name, getattr(self, field.name), type(field.default))
        if self.dataset == OWN:
            self._validate_own(is_described)
        else:
            self._validate_built_in()
        _validate_choice("partition", self.partition, PARTITIONS)
        _validate_choice("scaling", self.scaling, SCALINGS)
        _validate_choice("augmentation", self.augmentation, AUGMENTATIONS)
        _validate_choice("feature shift", self.feature_shift, FEATURE_SHIFTS)
        self._validate_weights()
        _validate_range("clients", self.clients, 1, CLIENTS_MAX)
        _validate_range("classes_avg", self.classes_avg, 1, max(CLASSES_AVG, self._classes_max("n-way")))
        _validate_range("classes_std", self.classes_std, 0, self._classes_max("n-way"))
        _validate_range("classes_per_client", self.classes_per_client, 1, self._classes_max("by-class"))
        _validate_range("shots", self.shots, 1, SHOTS_MAX)
        _validate_range("test_shots", self.test_shots, 1, SHOTS_MAX)
        _validate_range("train_examples", self.train_examples, 0, self._train_examples_max())
        _validate_range("seed", self.seed, 0, 2**63 - 1)
        if not (math.isfinite(self.dirichlet_alpha) and self.dirichlet_alpha > 0):
            raise ConfigurationError(f"dirichlet_alpha must be a positive number, not {self.dirichlet_alpha}")
        if not all(isinstance(name, str) and isinstance(value, bytes) for name, value in dict(self.material).items()):
            raise ConfigurationError("material must be bytes by name")
        locate_method(self.method)
        if self.hyperparameters or self.method not in METHODS:
            build_method(self.method, dict(self.hyperparameters))

    def _validate_weights(self) -> None:
        _validate_choice("head of the weights", self.weights_head, HEADS)
        if self.weights_hash and re.fullmatch("[0-9a-f]{64}", self.weights_hash) is None:
            raise ConfigurationError(f"weights_hash must be a SHA-256 in hexadecimal, not {self.weights_hash!r}")
        if self.weights_head != "file" and not (self.weights or self.weights_hash):
            raise ConfigurationError(f"weights_head is {self.weights_head}, but no file of weights is named")

    def _validate_built_in(self) -> None:
        _validate_choice("data set", self.dataset, DATASETS)
        info, models = self.dataset_info, self.model.split("+")
        for name in models:
            _validate_choice("model", name, _MODELS)
            if name != "auto":
                info.validate_model(name)
        if len(models) > 1 and not load_method(self.method).mixes_models:
            raise ConfigurationError(f"{self.method} averages parameters, which {self.model} do not have in common")
        if self.partition == "by-source":
            info.validate_sources()
        self._validate_changes(info)
        self._validate_shapes(info, len(models))

    def _validate_shapes(self, info: DatasetInfo, models: int) -> None:
        """Raise `ConfigurationError` for stated shapes that are not those of so many models on the data set."""
        for shapes in () if self.shapes is None else (self.shapes, *self.more_shapes):
            if (shapes.classes, shapes.input_shape) != (info.classes, None):
                found = f"{shapes.classes} classes and examples of shape {shapes.input_shape}"
                raise ConfigurationError(f"shapes are of {found}, but {self.dataset} has {info.classes} and its own")
        stated = 1 + len(self.more_shapes)
        if self.more_shapes and (self.shapes is None or stated != models):
            raise ConfigurationError(f"more_shapes are of {stated - 1} models beside the first, but there are {models}")

    def _validate_changes(self, info: DatasetInfo) -> None:
        """Raise `ConfigurationError` for a change of images that data set, model or scaling do not allow."""
        if self.augmentation != "none" and not FROZEN_MODELS.isdisjoint(self.model.split("+")):
            raise ConfigurationError(
                f"augmentation {self.augmentation} is not for {self.model}: its backbone looks once"
            )
        if self.augmentation != "none" and self.scaling == "pixel":
            raise ConfigurationError(
                f"augmentation {self.augmentation} moves pixels, which scaling pixel cannot follow"
            )
        for name, change in self._changes_of_images:
            info.validate_images(f"{name} {change}")
        if self.feature_shift != "none" and self.scaling == "pixel":
            raise ConfigurationError(
                f"feature_shift {self.feature_shift} changes pixels that are always black: not with scaling pixel"
            )

    def _validate_own(self, is_described: bool) -> None:
        if self.shapes is None and is_described:
            raise ConfigurationError(
                f"data set '{OWN}' lacks the shapes of its model; found the federation with --task"
            )
        if self.more_shapes and not load_method(self.method).mixes_models:
            raise ConfigurationError(f"{self.method} averages parameters, which members' models do not have in common")
        if 1 + len(self.more_shapes) > self.clients:
            raise ConfigurationError(f"{1 + len(self.more_shapes)} models are stated for {self.clients} clients")
        if self.model != "auto":
            raise ConfigurationError(f"model '{self.model}' cannot be chosen: data set '{OWN}' brings its own")
        if self.scaling != "channel":
            raise ConfigurationError(f"scaling {self.scaling} is for built-in data sets, not for '{OWN}'")
        for name, change in self._changes_of_images:
            raise ConfigurationError(f"{name} {change} is for built-in data sets, not for '{OWN}'")
        if self.classes:
            raise ConfigurationError(f"classes must be 0, not {self.classes}: data set '{OWN}' has its model's")

    def validate_pooling(self) -> None:
        """Raise `ConfigurationError` for a model without pooling, where the method, which this loads, needs one.

        A user's own model is not known to have it.
        """
        if not load_method(self.method).needs_pooling:
            return
        names = ("of your own",) if self.dataset == OWN else self.model_names
        for name in names:
            if name not in POOLED_MODELS:
                fitting = " or ".join(sorted(POOLED_MODELS))
                raise ConfigurationError(f"{self.method} needs a model that ends with a pooling: {fitting}, not {name}")

    @property
    def _changes_of_images(self) -> list[tuple[str, str]]:
        """Changes that are made to images, each with its field's name."""
        changes = (("augmentation", self.augmentation), ("feature_shift", self.feature_shift))
        return [(name, change) for name, change in changes if change != "none"]

    def _classes_max(self, kind: str) -> int:
        """The data set's number of classes, where a partition of this kind is chosen."""
        is_chosen = self.partition.startswith(kind) and self.dataset != OWN
        return self.dataset_info.classes if is_chosen else CLASSES_MAX

    def _train_examples_max(self) -> int:
        """How many training examples the data set has; for own data sets 0, which means all that they have."""
        return 0 if self.dataset == OWN else DATASETS[self.dataset].train_size

    @property
    def is_divided(self) -> bool:
        """Whether a built-in data set is divided among the clients."""
        return self.dataset != OWN

    @property
    def dataset_info(self) -> DatasetInfo:
        """The built-in data set's entry in the catalogue, with the classes that take part."""
        return DATASETS[self.dataset].with_classes(self.classes)

    @property
    def model_names(self) -> tuple[str, ...]:
        """The models in use, with 'auto' resolved; `architecture_of` says which client takes which."""
        return tuple(self._usual_model() if name == "auto" else name for name in self.model.split("+"))

    def _usual_model(self) -> str:
        method, models = load_method(self.method), DATASETS[self.dataset].models
        if method.needs_split or method.needs_pooling:
            fitting = SPLIT_MODELS if method.needs_split else POOLED_MODELS
            return next((name for name in models if name in fitting), models[0])
        return models[0]

    def part_of(self, place: int) -> int:
        """Return which part of the data the member at a place has: newcomers' follow the founders'.

        K stands for no part, which the founder without data has.
        """
        if self.dataless < 0 or place < self.dataless:
            return place
        return self.clients if place == self.dataless else place - 1

    @property
    def places_with_data(self) -> tuple[int, ...]:
        """The places of the members with data, in the order of its parts."""
        return tuple(place for place in range(self.clients + 1) if self.part_of(place) < self.clients)

    def model_of(self, part: int) -> str:
        """Return the name of the model of a member with this part of the data."""
        return self.model_names[self.architecture_of(part, len(self.model_names))]

    def architecture_of(self, part: int, count: int) -> int:
        """Return which of so many models a member with this part of the data has: clients take them in turn, a founder
        without data the first."""
        return part % count if part < self.clients else 0


def _validate_type(name: str, value: object, expected: type) -> None:
    if type(value) is not expected and not (expected is float and type(value) is int):
        raise ConfigurationError(f"{name} must be {expected.__name__}, not {type(value).__name__} ({value!r})")


def _validate_choice(kind: str, value: str, known: Mapping[str, object] | tuple[str, ...]) -> None:
    if value not in known:
        raise UnknownName(kind, value, known)


def _validate_range(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ConfigurationError(f"{name} must be between {low} and {high}, not {value}")
