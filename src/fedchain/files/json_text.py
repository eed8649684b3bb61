"""JSON that every parser reads: numbers that are not finite have no word of their own there, and stand as text.

They are written as ``"Infinity"``, ``"-Infinity"`` and ``"NaN"``, as in the JSON form of Protocol Buffers, which
``float()`` in Python and ``Number()`` in JavaScript take. A null would say that nothing was measured.
"""

import json
import math
from typing import Any

_FLOATS = {text: float(text) for text in ("Infinity", "-Infinity", "NaN")}
_TEXTS = {math.inf: "Infinity", -math.inf: "-Infinity"}


def to_json(value: Any, **form: Any) -> str:
    """The JSON of a plain value, in the form that `json.dumps` gives it with the same arguments."""
    try:
        return json.dumps(value, allow_nan=False, **form)
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False, **form)


def from_json(text: str | bytes) -> Any:
    """The value of a text of `to_json`, numbers that are not finite included. Raises ValueError, and RecursionError.

    They are found where an object names them. Python's own form of them, as earlier versions wrote it, is read, too.
    """
    return json.loads(text, object_hook=_numbers)


def _numbers(found: dict[str, Any]) -> dict[str, Any]:
    return {name: _FLOATS.get(value, value) if isinstance(value, str) else value for name, value in found.items()}


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return _TEXTS.get(value, "NaN") if isinstance(value, float) and not math.isfinite(value) else value
