"""A method's state of a client, as tensors: a dataclass of its own becomes part of a checkpoint, and comes back.

A field is a tensor, an int, a float, a bool, a tuple of tensors or a dict of them by name, or None in place of any.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, fields
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
import torch

from fedchain.learning.exceptions import OwnCodeFailed

Record = TypeVar("Record")

_SCALARS = {int: torch.int64, float: torch.float64, bool: torch.bool}

DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""How a safetensors file names the types that a model, or a method's memory, may have."""


NONE, EMPTY = ":none", ":empty"
"""Behind the name of a field that is None, or holds no tensor, and may be otherwise in a new record."""


def validate_kind(kind: type) -> None:
    """Raise `TypeError` for a class of records that no checkpoint can hold."""
    _kinds(kind)


def write_record(record: Any) -> dict[str, torch.Tensor]:
    """Return a record's fields as tensors; those that are None, or hold no tensor, are left out, or noted as such where
    a new record's may be otherwise.

    Tensors are the record's own. Raises `TypeError` for a field of a type that none of them has, and `OwnCodeFailed`
    for one that holds something else than it says.
    """
    written: dict[str, torch.Tensor] = {}
    items = {item.name: item for item in fields(record)}
    for name, kind in _kinds(type(record)).items():
        value = getattr(record, name)
        if value is None:
            if items[name].default is not None:
                written[name + NONE] = torch.tensor(True)
            continue
        if kind in _SCALARS:
            value = value.item() if isinstance(value, np.generic) else value
            _validate(record, name, value, int | float | np.floating)  # a long double stays NumPy's
            if not _is_kept(value, kind):
                what = f"{type(record).__name__}.{name} is {value!s:.40}"
                stated = "bool" if kind is bool else f"{kind.__name__}, of 64 bits"
                raise OwnCodeFailed(f"{what}, which would come back as another number: it is stated as {stated}")
            written[name] = torch.tensor(kind(value), dtype=_SCALARS[kind])
        elif kind is torch.Tensor:
            _validate_tensor(record, name, value)
            written[name] = value.detach()
        else:
            _validate(record, name, value, kind)
            if not value and not _begins_empty(items[name]):
                written[name + EMPTY] = torch.tensor(True)
            for key, item in value.items() if kind is dict else enumerate(value):
                _validate_tensor(record, f"{name}[{key!r}]", item)
                if kind is dict and not isinstance(key, str):
                    raise OwnCodeFailed(f"{type(record).__name__}.{name} has the key {key!r}, which must be a text")
                written[f"{name}.{key}"] = item.detach()
    return written


def _is_kept(value: Any, kind: Any) -> bool:
    """Whether a number stays the same when it is written as a ``kind`` of 64 bits."""
    if value != value:  # not a number
        return kind is float
    try:
        return bool(kind(value) == value) and (kind is float or -(2**63) <= value < 2**63)
    except OverflowError:
        return False


def _validate(record: Any, place: str, value: Any, kind: Any) -> None:
    if not isinstance(value, kind):
        expected = kind.__name__ if isinstance(kind, type) else "number"
        raise OwnCodeFailed(f"{type(record).__name__}.{place} holds {type(value).__name__}, not {expected}")


def _validate_tensor(record: Any, place: str, value: Any) -> None:
    _validate(record, place, value, torch.Tensor)
    if value.dtype not in DTYPES or value.layout is not torch.strided or value.is_meta:
        found = f"{value.dtype}, {value.layout}, on {value.device}"
        raise OwnCodeFailed(f"{type(record).__name__}.{place} is of {found}: no checkpoint can hold that")


def record_size(record: Any) -> int:
    """Return the bytes of a record's tensors."""
    size = 0
    for item in fields(record):
        value = getattr(record, item.name)
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else (value,)
        size += sum(part.numel() * part.element_size() for part in parts if isinstance(part, torch.Tensor))
    return size


def read_record(kind: type[Record], written: Mapping[str, torch.Tensor]) -> Record:
    """Return the record that `write_record` wrote."""
    values: dict[str, Any] = {}
    for name, field_kind in _kinds(kind).items():
        if name + NONE in written:
            values[name] = None
        elif name + EMPTY in written:
            values[name] = field_kind()
        elif field_kind in (tuple, dict):
            prefix = name + "."
            found = {key.removeprefix(prefix): value for key, value in written.items() if key.startswith(prefix)}
            if found:
                values[name] = found if field_kind is dict else tuple(found[str(place)] for place in range(len(found)))
        elif name in written:
            values[name] = written[name] if field_kind is torch.Tensor else written[name].item()
    return kind(**values)


def _begins_empty(item: Field[Any]) -> bool:
    """Whether a dict or tuple of a new record holds no tensor. A factory is not asked: it may draw numbers."""
    return item.default_factory in (dict, tuple) or item.default == ()


def _kinds(record: type) -> dict[str, Any]:
    """Name of each field -> torch.Tensor, int, float, bool, tuple or dict."""
    hints = get_type_hints(record, localns={"torch": torch})  # a method imports it only where it computes
    kinds = {}
    for item in fields(record):
        hint = hints[item.name]
        choices = [choice for choice in get_args(hint) if choice is not type(None)]
        chosen = choices[0] if type(None) in get_args(hint) and len(choices) == 1 else hint
        kind = get_origin(chosen) or chosen
        if kind not in (torch.Tensor, tuple, dict, *_SCALARS):
            raise TypeError(f"{record.__name__}.{item.name} is {hint}, which no checkpoint can hold")
        kinds[item.name] = kind
    return kinds
