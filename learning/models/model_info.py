"""The shapes of a model, by which payloads are judged. As a genesis document has them: read, bounded, compared."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import zip_longest
from types import MappingProxyType
from typing import Any, NamedTuple

from fedchain.learning.exceptions import ConfigurationError

PARAMETERS_MAX = 1 << 29
"""Scalars of a model, at most: as float32 they fill the largest payload that a genesis document can allow."""

PARAMETER_NAME_BYTES_MAX = 150
"""Payloads bound their names, and methods write their own words before them."""

DIMENSIONS_MAX = 16
"""Dimensions of one tensor."""

RESIDUAL_PREFIX = "residual."
"""Before the name of a frozen tensor in the knowledge: the sum that members add to it (`families/adapters.py`)."""

SCALE_MAX = 1e6
"""Largest factor of a low-rank adapter."""

NAME_SETS = ("trainable", "normalization", "frozen")
"""Fields of :class:`ModelInfo` that a document holds as sorted lists."""

OPTIONAL: Mapping[str, Any] = MappingProxyType(
    {"feature_shape": None, "input_type": "float32", "input_fields": ()}
    | {"frozen": frozenset(), "frozen_hash": "", "low_rank": (), "tied": ()}
)
"""Fields that a document holds only where they say something else than this."""

INPUT_TYPES = ("float32", "int64")
"""Types that inputs may have: numbers, or tokens and the like."""


class InputField(NamedTuple):
    """One of several inputs of a model that takes them by name. In `ModelInfo` they lie side by side."""

    name: str
    """Name of the parameter of `forward`."""

    shape: tuple[int, ...]
    """Shape of one example."""

    type: str
    """One of `INPUT_TYPES`."""


class LowRank(NamedTuple):
    """A layer with a low-rank adapter: its weight is W + scale B A, in LoRA's letters."""

    base: str
    """Name of W, (out, in), which is frozen."""

    down: str
    """Name of A, (r, in)."""

    up: str
    """Name of B, (out, r)."""

    scale: float
    """Factor of their product."""

    is_transposed: bool
    """Whether W is stored as (in, out)."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The shapes of a model, as the specs of payloads need them."""

    parameters: tuple[tuple[str, tuple[int, ...]], ...]
    """Name and shape of every tensor of the model's state, in the model's order."""

    embedding_size: int
    """Width D of the embedding."""

    classes: int
    """Number of classes C."""

    trainable: frozenset[str]
    """Names of the tensors that training moves; the others are frozen, or buffers such as running means."""

    normalization: frozenset[str]
    """Names of the tensors of batch normalization, trainable or not."""

    input_shape: tuple[int, ...] | None = None
    """Shape of one example; None: as the built-in data set has it."""

    feature_shape: tuple[int, ...] | None = None
    """Shape of one example's features where the model can be split, see `Model.split`; None: it cannot."""

    input_type: str = "float32"
    """Type of one example's numbers, one of `INPUT_TYPES`."""

    input_fields: tuple[InputField, ...] = ()
    """Where a model takes several inputs by name: which, and how they lie side by side in `input_shape`."""

    frozen: frozenset[str] = frozenset()
    """Names of the parameters that no post holds: nobody trains them, and every member has the same. Empty in documents
    of methods that exchange no parameters, and in older ones, whose members post them among the buffers."""

    frozen_hash: str = ""
    """SHA-256 of their values, in hexadecimal; empty where all are those of the file of `weights_hash`."""

    low_rank: tuple[LowRank, ...] = ()
    """The layers with adapters, where more is done with these than to average them (`families/adapters.py`)."""

    tied: tuple[tuple[str, str], ...] = ()
    """Other names of trained parameters, by which no post holds them: each, and the name under which it is trained.
    Empty in documents of methods that exchange no parameters, and in older ones, whose members post them by these names
    as buffers."""

    @property
    def unposted(self) -> frozenset[str]:
        """Names of the tensors that no post of a method that averages models holds."""
        return self.frozen | {name for name, _ in self.tied}

    @property
    def stored(self) -> frozenset[str]:
        """Names of the tensors that a member's own model differs in: all but the frozen ones, of which those of
        adapters, and those that residuals are added to, count as its own."""
        kept = {name for layer in self.low_rank for name in (layer.down, layer.up)}
        kept |= {layer.base for layer in self.low_rank if layer.down in self.trainable}
        return frozenset(name for name, _ in self.parameters if name not in self.frozen or name in kept)

    @property
    def parameter_count(self) -> int:
        """Number of scalars that training moves, P."""
        return sum(math.prod(shape) for name, shape in self.parameters if name in self.trainable)


def write_model_info(info: ModelInfo) -> dict[str, Any]:
    """Return the shapes as plain values, as a genesis document has them."""
    values = {item.name: getattr(info, item.name) for item in fields(info)}
    for name, unsaid in OPTIONAL.items():
        if values[name] == unsaid:
            del values[name]
    return values | {name: sorted(values[name]) for name in NAME_SETS if name in values}


def read_model_info(value: Any) -> ModelInfo:
    """Read a genesis document's entry about a model. Raises `ConfigurationError`, TypeError or ValueError."""
    expected = [item.name for item in fields(ModelInfo) if item.name not in OPTIONAL]
    if not isinstance(value, dict) or sorted(value.keys() - OPTIONAL.keys()) != sorted(expected):
        raise ConfigurationError(f"shapes must hold {', '.join(expected)}, and may hold {', '.join(OPTIONAL)}")
    parameters = tuple((name, tuple(shape)) for name, shape in value["parameters"])
    names = {name: frozenset(value[name]) for name in NAME_SETS if name in value}
    if any(sorted(names[name]) != value[name] for name in names):
        raise ConfigurationError(f"{' and '.join(NAME_SETS)} must be sorted and without repetition")
    input_shape = None if value["input_shape"] is None else tuple(value["input_shape"])
    shapes: dict[str, Any] = {"parameters": parameters, "input_shape": input_shape}
    if "feature_shape" in value:
        shapes["feature_shape"] = tuple(value["feature_shape"])
    if "input_fields" in value:
        shapes["input_fields"] = tuple(
            InputField(name, tuple(shape), kind) for name, shape, kind in value["input_fields"]
        )
    if "tied" in value:
        shapes["tied"] = tuple((name, first) for name, first in value["tied"])
    if "low_rank" in value:
        shapes["low_rank"] = tuple(LowRank(*layer) for layer in value["low_rank"])
    info = ModelInfo(**(value | names | shapes))
    validate_bounds(info)
    return info


def validate_same(info: ModelInfo, agreed: ModelInfo) -> None:
    """Raise `ConfigurationError`, which names the first difference, unless the model is the one agreed on."""
    for place, (ours, theirs) in enumerate(zip_longest(info.parameters, agreed.parameters, fillvalue=("nothing", ""))):
        if ours != theirs:
            found, expected = (f"{name} {shape}".strip() for name, shape in (ours, theirs))
            raise ConfigurationError(f"tensor {place} of the model is {found}, but in the genesis it is {expected}")
    is_older = bool(info.frozen) and not agreed.frozen  # and has them posted
    for name in NAME_SETS[:2] if is_older else NAME_SETS:
        if different := getattr(info, name) ^ getattr(agreed, name):
            raise ConfigurationError(f"{min(different)} is {name} in the model or in the genesis, but not in both")
    if agreed.frozen and info.frozen_hash != agreed.frozen_hash:
        raise ConfigurationError(
            f"the model's {len(info.frozen)} frozen tensors have SHA-256 {info.frozen_hash or '(that of weights)'}, "
            f"but in the genesis it is {agreed.frozen_hash or '(that of weights)'}: nobody posts them, so all members "
            "need the same; load them from one file"
        )
    if agreed.tied and info.tied != agreed.tied:  # an older document has them posted
        found, expected = (", ".join(map(" is ".join, tied)) or "nothing" for tied in (info.tied, agreed.tied))
        raise ConfigurationError(f"in the model {found}, but in the genesis {expected}")
    for name in ("embedding_size", "classes", "input_shape", "feature_shape", "input_type", "input_fields", "low_rank"):
        found, expected = getattr(info, name), getattr(agreed, name)
        if found != expected:
            raise ConfigurationError(f"{name} of the model is {found}, but in the genesis it is {expected}")


def validate_bounds(info: ModelInfo) -> None:
    """Raise `ConfigurationError` for shapes that no payload could have; they may come from a document."""
    names = [name for name, _ in info.parameters]
    if not all(isinstance(name, str) and len(name.encode()) <= PARAMETER_NAME_BYTES_MAX for name in names):
        raise ConfigurationError(f"a tensor's name must be text of at most {PARAMETER_NAME_BYTES_MAX} bytes")
    if len(set(names)) < len(names):
        raise ConfigurationError(f"{len(names)} tensors have {len(set(names))} different names")
    fields = (field.shape for field in info.input_fields)
    shapes = (*(shape for _, shape in info.parameters), *fields, info.input_shape or (), info.feature_shape or ())
    if any(len(shape) > DIMENSIONS_MAX for shape in shapes):
        raise ConfigurationError(f"a tensor must have at most {DIMENSIONS_MAX} dimensions")
    sizes = (info.embedding_size, info.classes, *(size for shape in shapes for size in shape))
    if not all(type(size) is int and 0 <= size <= PARAMETERS_MAX for size in sizes):
        raise ConfigurationError(f"a tensor's sizes must be integers from 0 to {PARAMETERS_MAX}")
    bases = {layer.base for layer in info.low_rank}  # a federation may keep what is added to them
    total = sum(math.prod(shape) for name, shape in info.parameters if name not in info.unposted or name in bases)
    largest = max(total, info.embedding_size * info.classes, math.prod(info.feature_shape or ()))
    if largest > PARAMETERS_MAX:
        raise ConfigurationError(f"the model has {largest:,} scalars, at most {PARAMETERS_MAX:,} can be exchanged")
    _validate_inputs(info)
    if info.embedding_size < 1 or info.classes < 1:
        raise ConfigurationError(f"embedding_size is {info.embedding_size}, classes is {info.classes}, less than 1")
    if not (info.trainable | info.normalization | info.frozen) <= {*names}:
        raise ConfigurationError("a name is trainable, of normalization or frozen, but there is no such tensor")
    if both := info.trainable & info.frozen:
        raise ConfigurationError(f"{min(both)} is trainable and frozen")
    if info.frozen_hash and (not info.frozen or re.fullmatch("[0-9a-f]{64}", info.frozen_hash) is None):
        raise ConfigurationError(f"frozen_hash must be the SHA-256 of frozen tensors, not {info.frozen_hash!r}")
    for layer in info.low_rank:
        _validate_low_rank(layer, info)
    _validate_tied(info)
    if len(bases) < len(info.low_rank):
        raise ConfigurationError(f"{len(info.low_rank)} adapters are of {len(bases)} layers")


def _validate_tied(info: ModelInfo) -> None:
    shapes, others = dict(info.parameters), [name for name, _ in info.tied]
    if others != sorted(set(others)):
        raise ConfigurationError("tied must be sorted and without repetition")
    for name, first in info.tied:
        is_other = name in shapes and name not in info.trainable | info.frozen
        if not is_other or first not in info.trainable or shapes[name] != shapes[first]:
            raise ConfigurationError(
                f"{name} is tied to {first}, but is no other name of a trained tensor of its shape"
            )


def _validate_low_rank(layer: LowRank, info: ModelInfo) -> None:
    shapes = dict(info.parameters)
    down, up, base = (shapes.get(name, ()) for name in (layer.down, layer.up, layer.base))
    product = (up[:1] + down[1:])[:: -1 if layer.is_transposed else 1]
    fits = len(down) == len(up) == 2 and down[0] == up[1] and base == product
    if not fits or layer.base not in info.frozen or {layer.down, layer.up} - info.trainable - info.frozen:
        raise ConfigurationError(
            f"adapter {layer.down} {down}, {layer.up} {up} is none of the frozen {layer.base} {base}"
        )
    if type(layer.is_transposed) is not bool or type(layer.scale) is not float or not abs(layer.scale) <= SCALE_MAX:
        found = f"has scale {layer.scale} and is_transposed {layer.is_transposed}"
        raise ConfigurationError(f"adapter {layer.down} {found}; a number and a truth value were expected")


def _validate_inputs(info: ModelInfo) -> None:
    kinds = {info.input_type, *(field.type for field in info.input_fields)}
    if not kinds <= {*INPUT_TYPES}:
        raise ConfigurationError(f"inputs must be {' or '.join(INPUT_TYPES)}, not {', '.join(sorted(map(str, kinds)))}")
    if not info.input_fields:
        return
    names = [field.name for field in info.input_fields]
    if len(set(names)) < len(names) or not all(
        isinstance(name, str) and len(name.encode()) <= PARAMETER_NAME_BYTES_MAX for name in names
    ):
        raise ConfigurationError(f"inputs must have different names of at most {PARAMETER_NAME_BYTES_MAX} bytes")
    size = sum(math.prod(field.shape) for field in info.input_fields)
    if info.input_shape != (size,):
        raise ConfigurationError(f"the inputs have {size} numbers together, but input_shape is {info.input_shape}")
