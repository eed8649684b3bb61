"""A user's examples as tensors: from any torch data set, or from tensors; inputs may be dicts of several. N examples.

Inputs of several fields become one tensor: each example's fields lie side by side in one row (`models/model_info.py`
says which), and the model gets them back by name (`task/adapter.py`).
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fedchain.learning.device import DEVICE
from fedchain.learning.exceptions import OWN_CODE_ERRORS, ConfigurationError, one_line
from fedchain.learning.models.model_info import InputField
from fedchain.learning.task.lazy_inputs import LazyInputs

LABEL_NAMES = ("labels", "label")
"""Under which of its keys an example that is a dict has its label."""

LAZY_SIZE = 256 * 2**20
"""Bytes of a data set's inputs from which on they are not held: each is read whenever it is needed."""

INTEGER_MAX = 2**24
"""Integers beside floats in one example are held as float32, which has all up to this one."""

_FLOAT, _INTEGER = "float32", "int64"
_TYPES = {_FLOAT: torch.float32, _INTEGER: torch.int64}


@dataclass(frozen=True, slots=True, eq=False)
class Examples:
    """Examples that a client trains on or is measured on."""

    inputs: torch.Tensor
    """(N, ...), float32 or int64; of several fields (N, F), the fields of each example side by side."""

    labels: torch.Tensor
    """(N,), int64."""

    fields: tuple[InputField, ...] = ()
    """Where the inputs are dicts: their fields, in the order in which they lie side by side."""


def read_examples(name: str, data: Any) -> Examples:
    """Read the set that messages call `name`.

    `data` is a pair (x, y), where x is what `torch.as_tensor` takes, or a dict of such by name; or one dict that has
    the labels beside the inputs (`LABEL_NAMES`); or it has a length and items (x, y) or such dicts, each read once,
    unless they are large. Inputs are floating-point numbers or integers. Raises `ConfigurationError` for anything else,
    and for no examples.
    """
    if isinstance(data, tuple | Mapping):
        examples = _read_whole(name, data)
    elif hasattr(data, "__len__") and hasattr(data, "__getitem__"):
        examples = _read_items(name, data)
    else:
        found = type(data).__name__
        raise ConfigurationError(f"the {name} must be a torch Dataset with a length, or tensors (x, y), not {found}")
    inputs, labels = examples.inputs, examples.labels
    if labels.shape != inputs.shape[:1]:
        raise ConfigurationError(
            f"the {name} must have one label for each input, not inputs of shape {tuple(inputs.shape)} and labels of "
            f"shape {tuple(labels.shape)}"
        )
    if not isinstance(inputs, LazyInputs):
        _validate_finite(name, inputs)
    return examples


def validate_labels(name: str, labels: torch.Tensor, classes: int) -> None:
    """Raise `ConfigurationError` for a label (N,) that the model has no output for."""
    wrong = labels[(labels < 0) | (labels >= classes)]
    if len(wrong):
        raise ConfigurationError(
            f"label {int(wrong[0])} in the {name}: a model with {classes} outputs has 0 to {classes - 1}"
        )


def type_named(name: str) -> torch.dtype:
    """Return the type of inputs that a model's shapes state."""
    return _TYPES[name]


def name_of_type(inputs: torch.Tensor) -> str:
    """Return the type that a model's shapes state for these inputs."""
    return _FLOAT if inputs.dtype == torch.float32 else _INTEGER


def _read_whole(name: str, data: tuple[Any, ...] | Mapping[str, Any]) -> Examples:
    """Read a pair of tensors, or a dict of them."""
    if isinstance(data, Mapping):
        x, y = _without_label(f"the {name}", data)
    elif len(data) == 2:
        x, y = data
    else:
        raise ConfigurationError(f"the {name} must be a pair of tensors (x, y), not {len(data)} things")
    try:
        labels = _tensor_of(f"the labels of the {name}", y).detach()
        given, inputs = None, torch.empty(0)
        if isinstance(x, Mapping):
            given = {key: _tensor_of(f"field '{key}' of the {name}", value) for key, value in x.items()}
        else:
            inputs = _tensor_of(f"the inputs of the {name}", x)
    except ConfigurationError:
        raise
    except OWN_CODE_ERRORS as error:
        raise ConfigurationError(f"the {name} cannot be made tensors: {one_line(error)}") from error
    if labels.is_floating_point() or labels.is_complex():
        raise ConfigurationError(f"the labels of the {name} must be integers, not {labels.dtype}")
    if given is None:
        inputs, fields = _as_numbers(f"the inputs of the {name}", inputs), ()
    else:
        sizes = {key: tuple(value.shape[:1]) for key, value in given.items()}
        if len(set(sizes.values())) != 1 or () in sizes.values():
            raise ConfigurationError(f"the fields of the {name} must have one row for each label, not {sizes}")
        inputs, fields = _side_by_side(f"the {name}", given)
    if inputs.ndim == 0 or len(inputs) == 0:
        raise ConfigurationError(f"the {name} is empty")
    return Examples(inputs.contiguous(), labels.to(DEVICE, torch.int64), fields)


@dataclass(frozen=True, slots=True, eq=False)
class _Item:
    """An example of a map-style data set."""

    row: torch.Tensor
    """(...): the inputs as one tensor."""

    label: int

    fields: tuple[InputField, ...]
    """Empty for inputs without names."""


Read = Callable[[int, Sequence[str]], _Item]
"""read(place, names) -> that item, its fields in the order of these names, if they are its own."""


def _read_items(name: str, data: Any) -> Examples:
    """Read a map-style data set: at once, or, where that would take much memory, whenever an item is needed."""
    try:
        count = len(data)
    except OWN_CODE_ERRORS as error:
        raise ConfigurationError(f"the {name} has no length: {one_line(error)}") from error
    if count == 0:
        raise ConfigurationError(f"the {name} is empty")
    read = _reader(name, data)
    first = read(0, ())
    row, names = first.row, [field.name for field in first.fields]

    if count * row.numel() * row.element_size() <= LAZY_SIZE:
        inputs, labels = torch.empty((count, *row.shape), dtype=row.dtype), torch.empty(count, dtype=torch.int64)
        for place in range(count):
            item = first if place == 0 else read(place, names)
            inputs[place], labels[place] = _validated_like(name, place, item, first), item.label
        return Examples(inputs, labels, first.fields)
    stated = _stated_labels(data)
    # where none are stated, each item is read once for its label alone
    known = [first.label, *(read(place, names).label for place in range(1, count))] if stated is None else stated
    before = "it had {} when it was read before" if stated is None else "its `targets` say {}"

    def read_rows(places: Sequence[int]) -> torch.Tensor:
        return _checked_rows(name, places, read, first, known, before)

    return Examples(LazyInputs(read_rows, range(count), row), torch.tensor(known, dtype=torch.int64), first.fields)


def _reader(name: str, data: Any) -> Read:
    """Return what reads one item of a map-style data set."""

    def read(place: int, names: Sequence[str]) -> _Item:
        what = f"item {place} of the {name}"
        try:
            item = data[place]
            x, y = _without_label(what, item) if isinstance(item, Mapping) else item
            label = operator.index(y)
            if not isinstance(x, Mapping):
                return _Item(_as_numbers(what, _tensor_of(what, x)), label, ())
            order = names if {*names} == {*x} else x
            given = {key: _as_tensor(f"field '{key}' of {what}", x[key])[None] for key in order}
        except ConfigurationError:
            raise
        except OWN_CODE_ERRORS as error:
            raise ConfigurationError(f"{what} is no (x, y): {one_line(error)}") from error
        row, fields = _side_by_side(what, given)
        return _Item(row[0], label, fields)

    return read


def _checked_rows(
    name: str, places: Sequence[int], read: Read, first: _Item, labels: Sequence[int], before: str
) -> torch.Tensor:
    """Read items of a large set now. They have to have these labels; `before` says who told them."""
    rows = []
    for place in places:
        item = read(place, [field.name for field in first.fields])
        rows.append(_validated_like(name, place, item, first))
        if item.label != labels[place]:
            told = before.format(labels[place])
            raise ConfigurationError(f"item {place} of the {name} has label {item.label}, but {told}")
    inputs = torch.stack(rows) if rows else first.row.new_empty((0, *first.row.shape))
    _validate_finite(name, inputs)
    return inputs


def _validated_like(name: str, place: int, item: _Item, first: _Item) -> torch.Tensor:
    row = item.row
    if item.fields != first.fields:
        found, wanted = ([tuple(field) for field in one.fields] for one in (item, first))
        raise ConfigurationError(f"item {place} of the {name} has the fields {found}, but item 0 has {wanted}")
    if row.shape != first.row.shape:
        shapes = tuple(row.shape), tuple(first.row.shape)
        raise ConfigurationError(f"item {place} of the {name} has shape {shapes[0]}, but item 0 has {shapes[1]}")
    if row.dtype != first.row.dtype:
        raise ConfigurationError(f"item {place} of the {name} is {row.dtype}, but item 0 is {first.row.dtype}")
    return row


def _stated_labels(data: Any) -> list[int] | None:
    """Return all labels where a data set tells them without its items: torchvision's `targets`, a Subset of such.

    Where they are transformed, or no integers, the items alone have them.
    """
    try:
        if hasattr(data, "dataset") and hasattr(data, "indices"):  # torch.utils.data.Subset
            of_all = _stated_labels(data.dataset)
            return None if of_all is None else [of_all[place] for place in data.indices]
        targets = getattr(data, "targets", None)
        if targets is None or len(targets) != len(data) or getattr(data, "target_transform", None) is not None:
            return None
        return [operator.index(label) for label in targets]
    except (TypeError, IndexError):  # names of files, say
        return None


def _without_label(what: str, item: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """Take an example apart that is a dict."""
    names = [name for name in LABEL_NAMES if name in item]
    if len(names) != 1 or len(item) < 2:
        found = ", ".join(map(str, item)) or "nothing"
        raise ConfigurationError(f"{what} must have inputs by name and {' or '.join(LABEL_NAMES)}, not {found}")
    return {key: value for key, value in item.items() if key != names[0]}, item[names[0]]


def _side_by_side(what: str, given: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, tuple[InputField, ...]]:
    """Return fields (N, ...) as one tensor (N, F); float32 if any field is."""
    numbers = {key: _as_numbers(f"field '{key}' of {what}", value) for key, value in given.items()}
    fields = tuple(InputField(key, tuple(value.shape[1:]), name_of_type(value)) for key, value in numbers.items())
    kinds = {field.type for field in fields}
    if kinds == {_FLOAT, _INTEGER}:
        for key, value in numbers.items():
            if value.dtype == torch.int64 and value.numel() and int(value.abs().max()) > INTEGER_MAX:
                raise ConfigurationError(f"field '{key}' of {what} has integers above {INTEGER_MAX} beside floats")
    kind = torch.float32 if _FLOAT in kinds else torch.int64
    count = len(next(iter(numbers.values())))
    flat = [value.reshape(count, math.prod(value.shape[1:])).to(kind) for value in numbers.values()]  # (N, …) each
    return torch.cat(flat, dim=1), fields


def _tensor_of(what: str, value: Any) -> torch.Tensor:
    """Return numbers as a tensor: those of a pandas table row by row, which torch would look up by its rows' names, and
    copied, since pandas lends its memory for reading alone; one that was made in inference mode copied, too, since no
    gradient is computed from such.

    Raises `ConfigurationError` for masked values, below which lie numbers that nobody means, and for tensors that are
    stored in another way than number by number.
    """
    if isinstance(value, np.ma.MaskedArray) and (masked := int(np.sum(value.mask))):
        raise ConfigurationError(f"{what} must be without masked values, not with {masked} of them")
    is_table = not isinstance(value, torch.Tensor | np.ndarray) and hasattr(value, "__array__")
    found = torch.as_tensor(np.array(value) if is_table else value)
    kinds = {"nested": found.is_nested, "quantized": found.is_quantized, "without data": found.is_meta}
    kinds["sparse"] = found.layout != torch.strided
    if stored := [kind for kind, is_so in kinds.items() if is_so]:
        raise ConfigurationError(f"{what} must be a plain tensor, not one that is {stored[0]}")
    return found.clone() if found.is_inference() else found


def _as_tensor(what: str, value: Any) -> torch.Tensor:
    try:
        return _tensor_of(what, value)
    except ConfigurationError:
        raise
    except Exception:
        raise ConfigurationError(f"{what} is {type(value).__name__}, not numbers; leave it out") from None


def _as_numbers(what: str, value: torch.Tensor) -> torch.Tensor:
    """Return floating-point numbers as float32, and integers as int64."""
    if value.is_complex():
        raise ConfigurationError(f"{what} must be floating-point numbers or integers, not {value.dtype}")
    return value.detach().to(DEVICE, torch.float32 if value.is_floating_point() else torch.int64)


def _validate_finite(name: str, inputs: torch.Tensor) -> None:
    if inputs.is_floating_point() and not torch.isfinite(inputs).all():
        raise ConfigurationError(f"the inputs of the {name} are not all finite numbers")
