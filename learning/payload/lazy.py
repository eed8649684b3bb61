"""Tensors that are computed when they are looked at, so that a large aggregate is never in memory as a whole."""

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedchain.files.spool import Spools


class LazyTensors(Mapping[str, NDArray[Any]]):
    """Named tensors of which each is computed anew whenever it is asked for, and forgotten by whoever has used it.

    Args:
        compute: computes the tensor of each name; the same one each time.
    """

    def __init__(self, compute: Mapping[str, Callable[[], NDArray[Any]]]) -> None:
        self._compute = dict(compute)

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Compute a tensor."""
        return self._compute[name]()

    def __iter__(self) -> Iterator[str]:
        """Yield the names in their order."""
        return iter(self._compute)

    def __len__(self) -> int:
        """Count the tensors."""
        return len(self._compute)

    def __contains__(self, name: object) -> bool:
        """Whether there is a tensor of this name, which is not computed for that."""
        return name in self._compute

    def __or__(self, others: Mapping[str, NDArray[Any]]) -> "LazyTensors":
        """Return these tensors and others beside them, or in their places."""
        return LazyTensors({**self._compute, **_looked_up(others)})

    def __ror__(self, others: Mapping[str, NDArray[Any]]) -> "LazyTensors":
        """Return other tensors and these beside them, or in their places."""
        return LazyTensors({**_looked_up(others), **self._compute})


def _looked_up(tensors: Mapping[str, NDArray[Any]]) -> dict[str, Callable[[], NDArray[Any]]]:
    return {name: partial(tensors.__getitem__, name) for name in tensors}


def computed_once(tensors: Mapping[str, NDArray[Any]], spools: Spools) -> LazyTensors:
    """Compute tensors that are asked for several times, one after the other, and keep what came of them, read-only.

    `spools` keeps it: of large ones, the pages of a file. Raises OSError if the disk refuses.
    """
    spool, places, end = spools(), dict[str, tuple[np.dtype[Any], tuple[int, ...], int]](), 0
    for name, tensor in tensors.items():
        flat = np.ascontiguousarray(tensor).reshape(-1)
        spool.write(flat.view(np.uint8).data)
        places[name] = flat.dtype, tensor.shape, end
        end += flat.nbytes
    data = spool.content(b"")

    def view(dtype: np.dtype[Any], shape: tuple[int, ...], begin: int) -> NDArray[Any]:
        return np.frombuffer(data, dtype, math.prod(shape), begin).reshape(shape)

    return LazyTensors({name: partial(view, *place) for name, place in places.items()})
