"""A post of which some tensors are packed: what is counted from the knowledge in force, and back to plain tensors."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedchain.learning.aggregation.mean import round_once
from fedchain.learning.compression.compressor import Compressor
from fedchain.learning.exceptions import InvalidPayload
from fedchain.learning.models.parameters import PREFIX
from fedchain.learning.payload.codec import canonical, decode, encode
from fedchain.learning.payload.document import Buffer
from fedchain.learning.payload.numbers import clip_elements, validate_elements
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.round import Tensors


@dataclass(frozen=True, slots=True)
class Packing:
    """The packed form of a phase's posts. N numbers of all tensors that are packed."""

    compressor: Compressor
    """How."""

    changed: tuple[TensorSpec, ...]
    """Tensors that are packed, in ascending order of name."""

    based: frozenset[str]
    """Names of those that are counted from the knowledge in force. The others are changes themselves."""

    whole: tuple[TensorSpec, ...]
    """All other tensors of a post, which are posted as they are."""

    @property
    def specs(self) -> tuple[TensorSpec, ...]:
        """The tensors of a packed post."""
        return (*self.whole, *self.compressor.spec(self._sizes))

    def fits(self, known: Tensors | None) -> bool:
        """Whether the knowledge in force has all that changes are counted from; if not, posts are whole."""
        return known is not None and all(
            spec.name in known and known[spec.name].shape == spec.shape
            for spec in self.changed
            if spec.name in self.based
        )

    def pack(self, posted: Tensors, known: Tensors, generator: np.random.Generator) -> bytes:
        """Return the packed form of a plain post."""
        return self._packed(posted, self._changes(posted, known, None), generator)

    def pack_and_owe(
        self, posted: Tensors, known: Tensors, generator: np.random.Generator, owed: NDArray[np.float32] | None
    ) -> tuple[bytes, NDArray[np.float32]]:
        """Return the packed form of a plain post, and by how much it misses what was to be said, (N,).

        `owed` (N,) is added to the changes; None: nothing is owed yet.
        """
        changes = self._changes(posted, known, owed)
        payload = self._packed(posted, changes, generator)
        said = self._changes(self.unpack(payload, known), known, None)  # what the members get, with their rounding
        return payload, np.concatenate(changes) - np.concatenate(said)

    def unpack(self, payload: Buffer, known: Tensors) -> dict[str, NDArray[Any]]:
        """Return the tensors of a plain post, read-only, within the bounds of their specs. Raises `InvalidPayload`."""
        packed = decode(payload, self.specs)
        found = {spec.name: packed[spec.name] for spec in self.whole}
        changes = self.compressor.unpack(packed, self._sizes)
        for spec, (where, moves) in zip(self.changed, changes, strict=True):
            moved = self._base(spec, known).copy()
            moved[where] = round_once(moved[where] + moves)
            try:
                validate_elements(spec, moved)
            except InvalidPayload:
                moved = clip_elements(spec, moved)
            moved.flags.writeable = False
            found[spec.name] = moved.reshape(spec.shape)
        return {name: found[name] for name in sorted(found)}

    def _changes(self, posted: Tensors, known: Tensors, owed: NDArray[np.float32] | None) -> list[NDArray[np.float32]]:
        """The changes that a post says, by tensor, and what is owed to them."""
        found, begin = [], 0
        for spec, size in zip(self.changed, self._sizes, strict=True):
            change = posted[spec.name].reshape(-1) - self._base(spec, known).astype(np.float64)
            found.append(round_once(change if owed is None else change + owed[begin : begin + size]))
            begin += size
        return found

    def _packed(self, posted: Tensors, changes: list[NDArray[np.float32]], generator: np.random.Generator) -> bytes:
        packed = canonical(self.compressor.pack(changes, generator))
        return encode({spec.name: posted[spec.name] for spec in self.whole} | packed)

    @property
    def _sizes(self) -> list[int]:
        return [math.prod(spec.shape) for spec in self.changed]

    def _base(self, spec: TensorSpec, known: Tensors) -> NDArray[np.float32]:
        """The numbers that a tensor's changes are counted from, flat."""
        if spec.name in self.based:
            return np.ascontiguousarray(known[spec.name], dtype=np.float32).reshape(-1)
        return np.zeros(math.prod(spec.shape), dtype=np.float32)


def find_packing(
    compressor: Compressor, posted: Sequence[TensorSpec], left: Sequence[TensorSpec], changes: frozenset[str]
) -> Packing | None:
    """Return the packed form of posts, or None if nothing in them can be packed.

    Packed are a model's parameters, as far as the phase leaves parameters of the same names and shapes, and what the
    method calls a change. Integers, buffers and numbers with bounds of their own stay whole.

    Args:
        compressor: how.
        posted: what the phase's posts are made of.
        left: what it leaves behind.
        changes: names of posted tensors that are changes themselves.
    """
    shapes = {spec.name: spec.shape for spec in left}
    based = frozenset(
        spec.name for spec in posted if spec.name.startswith(PREFIX) and shapes.get(spec.name) == spec.shape
    )
    fitting = [spec for spec in posted if spec.name in based | changes and _is_plain(spec)]
    changed = tuple(sorted(fitting, key=lambda spec: spec.name))
    if not changed:
        return None
    names = {spec.name for spec in changed}
    return Packing(compressor, changed, based & names, tuple(spec for spec in posted if spec.name not in names))


def _is_plain(spec: TensorSpec) -> bool:
    return spec.dtype == "float32" and -1 not in spec.shape and spec.minimum is None and spec.maximum is None
