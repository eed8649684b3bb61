"""What the user chooses about learning: one frozen value, whose field docstrings are the command line's help."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import TYPE_CHECKING

from fedchain.learning.exceptions import ConfigurationError, unknown_name
from fedchain.learning.registry import HyperparameterValue, build_method, validate_method_name

if TYPE_CHECKING:
    from fedchain.learning.models import ModelInfo

CLIENTS_MAX = 10_000
"""More clients than this in one federation is taken for a typing error."""

SHOTS_MAX = 60_000
"""No data set here has more examples than this."""

CLASSES = 10
"""Number of classes C; every data set here has ten."""

_FOR_28X28 = ("cnn", "fedreg-cnn", "mlp", "mlp-bn", "mlp-linear")

DATASETS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"digits": ("digits-mlp", "digits-mlp-bn"), "fashion-mnist": _FOR_28X28, "mnist": _FOR_28X28}
)
"""Data sets, and the models that take images of their size; the first one is what 'auto' means."""

OWN = "own"
"""Name of the data set where every client has its own, and the model with it; see `fedchain.learning.own`."""

PARTITIONS = ("dirichlet", "iid", "n-way", "n-way-exact")
"""How the examples can be spread over the clients."""

_MODELS = ("auto", "digits-mlp", "digits-mlp-bn", *_FOR_28X28)


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningConfig:
    """A federation's learning task: method, data, model and how the data are spread over the clients.

    Building it checks nothing; `validate` does.
    """

    method: str = "dfpl"
    """Learning method: dfpl, fedavg, blade-fl, solo, any other of docs/methods.md, or module:Class for one of your
    own."""

    hyperparameters: Mapping[str, HyperparameterValue] | tuple[tuple[str, HyperparameterValue], ...] = ()
    """Hyper-parameters of the method that differ from its defaults, as name=value."""

    dataset: str = "digits"
    """Data set: digits (built in, 8x8 pixels), mnist or fashion-mnist (28x28, read from the data folder), or own."""

    data_dir: str = ""
    """Folder with the data set's files, or its parent folder; empty means the variable FEDCHAIN_DATA."""

    task: str = ""
    """For own data: the function that returns a client's (model, train set, test set), as module:function."""

    shapes: "ModelInfo | None" = None
    """For own data: the shapes of everybody's model."""

    model: str = "auto"
    """Model: cnn, fedreg-cnn, mlp, mlp-bn or mlp-linear (28x28 images), digits-mlp or digits-mlp-bn (8x8), or auto for
    the usual one of the data set."""

    clients: int = 20
    """Number of clients K among whom the data are spread."""

    partition: str = "n-way"
    """Spread of the data: n-way (few classes each), n-way-exact (normally distributed), dirichlet or iid."""

    classes_avg: int = 3
    """Nominal mean number of classes of a client (n-way partitions)."""

    classes_std: int = 1
    """Nominal spread of the number of classes of a client (n-way partitions)."""

    shots: int = 100
    """Training examples per class of a client (n-way partitions); fewer where the data set is too small."""

    test_shots: int = 40
    """Test examples per class of a client (n-way partitions); fewer where the data set is too small."""

    dirichlet_alpha: float = 0.5
    """Concentration of the dirichlet partition: the smaller, the more clients differ."""

    seed: int = 0
    """Root of all randomness in learning: partition, initial models, batches and dropout."""

    def __post_init__(self) -> None:
        pairs = self.hyperparameters
        items = pairs.items() if isinstance(pairs, Mapping) else pairs
        object.__setattr__(self, "hyperparameters", tuple(sorted((name, value) for name, value in items)))

    def validate(self) -> None:
        """Raise `ConfigurationError` for the first value that cannot work.

        Whether the data set has enough examples is only known once it is loaded (`partition.split`).
        """
        for field in fields(self):
            if field.name not in ("hyperparameters", "shapes"):
                _validate_type(field.name, getattr(self, field.name), type(field.default))
        if self.dataset == OWN or self.shapes is not None:
            self._validate_own()
        else:
            self._validate_built_in()
        _validate_choice("partition", self.partition, PARTITIONS)
        _validate_range("clients", self.clients, 1, CLIENTS_MAX)
        _validate_range("classes_avg", self.classes_avg, 1, CLASSES)
        _validate_range("classes_std", self.classes_std, 0, CLASSES)
        _validate_range("shots", self.shots, 1, SHOTS_MAX)
        _validate_range("test_shots", self.test_shots, 1, SHOTS_MAX)
        _validate_range("seed", self.seed, 0, 2**63 - 1)
        if not (math.isfinite(self.dirichlet_alpha) and self.dirichlet_alpha > 0):
            raise ConfigurationError(f"dirichlet_alpha must be a positive number, not {self.dirichlet_alpha}")
        validate_method_name(self.method)
        if self.hyperparameters or ":" in self.method:
            build_method(self.method, dict(self.hyperparameters))

    def _validate_built_in(self) -> None:
        _validate_choice("data set", self.dataset, DATASETS)
        _validate_choice("model", self.model, _MODELS)
        if self.model_name not in DATASETS[self.dataset]:
            fitting = ", ".join(DATASETS[self.dataset])
            raise ConfigurationError(f"model '{self.model}' does not fit {self.dataset} images; use {fitting}")

    def _validate_own(self) -> None:
        if self.dataset != OWN:
            raise ConfigurationError(f"shapes belong to data set '{OWN}', not to '{self.dataset}'")
        if self.shapes is None:
            raise ConfigurationError(
                f"data set '{OWN}' lacks the shapes of its model; found the federation with --task"
            )
        if self.model != "auto":
            raise ConfigurationError(f"model '{self.model}' cannot be chosen: data set '{OWN}' brings its own")

    @property
    def model_name(self) -> str:
        """The model in use, with 'auto' resolved."""
        return DATASETS[self.dataset][0] if self.model == "auto" else self.model


def _validate_type(name: str, value: object, expected: type) -> None:
    if type(value) is not expected and not (expected is float and type(value) is int):
        raise ConfigurationError(f"{name} must be {expected.__name__}, not {type(value).__name__} ({value!r})")


def _validate_choice(kind: str, value: str, known: Mapping[str, object] | tuple[str, ...]) -> None:
    if value not in known:
        raise unknown_name(kind, value, known)


def _validate_range(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ConfigurationError(f"{name} must be between {low} and {high}, not {value}")
