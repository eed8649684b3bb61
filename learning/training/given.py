"""The inputs of a loss besides the batch, of several at once: stacked, so that `torch.func.vmap` gives each its own."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

Stack = Callable[[list[torch.Tensor]], torch.Tensor]
"""N tensors (...) -> (N, ...)."""


class Stacked(NamedTuple):
    """The fields of several tuples of one type, N of them."""

    rebuild: Callable[[tuple[Any, ...]], Any]
    """(fields of one) -> the tuple."""

    fields: tuple[Any, ...]
    """Tensors (N, ...), and whatever is the same in all of them."""

    dimensions: tuple[int | None, ...]
    """The dimension of N in each field; None for what is the same in all."""


def stack_given(given: Sequence[Any] | None, stack: Stack) -> Stacked:
    """Stack tuples of one type; nothing, or None in their place, remains None. Numbers that differ become a tensor."""
    if not given or given[0] is None:
        return Stacked(lambda fields: None, (), ())
    fields = [_stack_field(values, stack) for values in zip(*given, strict=True)]
    dimensions = tuple(0 if isinstance(field, torch.Tensor) else None for field in fields)
    return Stacked(type(given[0])._make, tuple(fields), dimensions)


def _stack_field(values: Sequence[Any], stack: Stack) -> Any:
    if isinstance(values[0], torch.Tensor):
        return stack(list(values))
    if all(value == values[0] for value in values):
        return values[0]
    return stack([torch.tensor(value) for value in values])
