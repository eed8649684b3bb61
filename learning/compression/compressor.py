"""The interface of a compression: from vectors of changes to tensors of few bytes, and back."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedchain.files.spool import InMemory, Spools
from fedchain.learning.payload.spec import MAGNITUDE_MAX, TensorSpec
from fedchain.learning.round import Tensors

CHANGE_MAX = 2 * MAGNITUDE_MAX
"""Largest absolute value of a change that a post can say: from one end of a parameter's range to the other."""

NAME = "packed."
"""Before the names of the tensors that hold changes, so that a method's own tensors cannot clash with them."""

Change = tuple[NDArray[np.intp] | slice, NDArray[np.float64]]
"""Positions in a vector, and by how much the element at each changes; all others stay as they are."""

BLOCK = 1 << 15
"""Numbers of a vector that are looked at together: intermediate results of so many stay in the processor's cache."""


class Compressor(ABC):
    """A way to compress the changes of T tensors, each of which is one vector."""

    @property
    def kept(self) -> float:
        """Error feedback: the share of what a post left out that a client adds to the changes of its next one."""
        return 0.0

    @abstractmethod
    def spec(self, sizes: Sequence[int]) -> tuple[TensorSpec, ...]:
        """State the tensors that hold changes of vectors of these sizes."""

    @abstractmethod
    def pack(
        self,
        changes: Iterable[NDArray[np.float32]],
        sizes: Sequence[int],
        generator: np.random.Generator,
        spools: Spools = InMemory,
    ) -> dict[str, NDArray[Any]]:
        """Return the tensors that hold the changes, as nearly as the compressor can.

        Args:
            changes: by vector; each is looked at once, and not kept.
            sizes: theirs.
            generator: for what is drawn.
            spools: begins the tensors.
        """

    @abstractmethod
    def unpack(self, packed: Tensors, sizes: Sequence[int]) -> Iterator[Iterator[Change]]:
        """Yield the changes of each vector, part by part, from tensors that follow `spec`. All are looked at in order.

        Raises `InvalidPayload` for faults beyond the spec. Elementwise float64 alone: all members get the same bits.
        """
