"""Inputs of a large data set: a tensor of which nothing is in memory until some of its rows are needed. N examples."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map

ReadRows = Callable[[Sequence[int]], torch.Tensor]
"""read(places) -> the inputs of these examples, (len(places), ...)."""

_aten: Any = torch.ops.aten


class LazyInputs(torch.Tensor):
    """Stands for a tensor (N, ...). Picking rows reads those, slices and splits along dim 0 read nothing yet, and any
    other operation reads all that is left.

    Args:
        read: reads rows.
        places: the examples that this is of.
        like: one example's inputs: shape and type of each.
    """

    _read: ReadRows
    _places: Sequence[int]
    _like: torch.Tensor

    # torch asks for the operations alone, not for the functions that call them
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    def __new__(cls, read: ReadRows, places: Sequence[int], like: torch.Tensor) -> "LazyInputs":
        """Make the tensor that has the shape and nothing behind it."""
        made: LazyInputs = torch.Tensor._make_wrapper_subclass(cls, (len(places), *like.shape), dtype=like.dtype)
        made._read, made._places, made._like = read, places, like
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        """Do what a torch operation does, reading as little as it takes."""
        first = args[0] if args else None
        if isinstance(first, LazyInputs):
            done = first._do(func, args[1:], kwargs or {})
            if done is not None:
                return done
        args, kwargs = tree_map(_in_memory, (args, kwargs or {}))
        return func(*args, **kwargs)

    def _do(self, func: Any, rest: Any, kwargs: Any) -> Any:
        """The result of an operation that picks rows; None for any other."""
        if kwargs:
            return None
        places = self._places
        match func.overloadpacket, rest:
            case (_aten.detach | _aten.alias, ()):
                return self._of(places)
            case (_aten.index_select, (0, index)):
                return self._read([places[place] for place in index.tolist()])
            case (_aten.index, ([index],)) if index.ndim == 1:
                chosen = index.nonzero().squeeze(1) if index.dtype == torch.bool else index
                return self._read([places[place] for place in chosen.tolist()])
        return None

    def __getitem__(self, index: Any) -> torch.Tensor:
        if isinstance(index, slice):
            return self._of(self._places[index])
        if isinstance(index, int):
            return self._read([self._places[index]])[0]
        picked: torch.Tensor = super().__getitem__(index)
        return picked

    def split(self, split_size: Any, dim: int = 0) -> tuple[torch.Tensor, ...]:
        """See `torch.split`, which calls this: in inference mode torch itself makes no views of such a tensor."""
        if dim != 0 or not isinstance(split_size, int):
            return super().split(split_size, dim)  # type: ignore[no-any-return, no-untyped-call]
        starts = range(0, len(self._places), split_size)
        return tuple(self._of(self._places[start : start + split_size]) for start in starts)

    def _of(self, places: Sequence[int]) -> "LazyInputs":
        return LazyInputs(self._read, places, self._like)

    def __repr__(self, **unused: Any) -> str:  # type: ignore[override]
        return f"LazyInputs(shape={tuple(self.shape)}, dtype={self.dtype})"


def _in_memory(value: Any) -> Any:
    return value._read(value._places) if isinstance(value, LazyInputs) else value
