"""The class prototypes in knowledge, as its method tells them to reports and measurements."""

from collections.abc import Mapping

import numpy as np

from fedchain.learning.exceptions import OWN_CODE_ERRORS, OwnCodeFailed, raise_told
from fedchain.learning.method import Method
from fedchain.learning.round import Tensors

_FORMS = {"labels": ("iu", 1), "prototypes": ("f", 2), "holders": ("iu", 1)}
"""Kinds of numbers that each of the arrays may have, and how many axes it has; the first axis is the same, n."""


def class_prototypes(method: Method, knowledge: Tensors) -> Tensors | None:
    """Return the method's answer: labels (n,), prototypes (n, D), holders (n,); None without any.

    Raises `OwnCodeFailed` where a user's own method fails, or answers with anything else.
    """
    try:
        found = method.prototypes(knowledge)
    except OWN_CODE_ERRORS as error:
        raise_told(error, "prototypes", type(method))
    if found is not None and (wrong := _fault_of(found)):
        form = "None, or labels (n,), prototypes (n, D) and holders (n,) by name"
        raise OwnCodeFailed(f"prototypes of {type(method).__name__} must return {form}, as arrays: {wrong}")
    return found


def _fault_of(found: object) -> str:
    if not isinstance(found, Mapping):
        return f"this is {type(found).__name__}"
    for name, (kinds, axes) in _FORMS.items():
        if name not in found:
            return f"{name} is missing"
        array = found[name]
        if not isinstance(array, np.ndarray):
            return f"{name} is {type(array).__name__}"
        if array.dtype.kind not in kinds or array.ndim != axes:
            return f"{name} is {array.dtype} {array.shape}"
    rows = {name: len(found[name]) for name in _FORMS}
    return "" if len(set(rows.values())) == 1 else f"they have {', '.join(f'{n} {name}' for name, n in rows.items())}"
