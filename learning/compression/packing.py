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
from fedchain.learning.method import Method
from fedchain.learning.models.model_info import ModelInfo
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

    whole: tuple[TensorSpec, ...]
    """Tensors of a post that are posted as they are."""

    implied: tuple[TensorSpec, ...]
    """Tensors of a plain post that follow from the others."""

    method: Method
    """Says what changes are counted from, and what follows."""

    info: ModelInfo
    """The sender's model."""

    @property
    def specs(self) -> tuple[TensorSpec, ...]:
        """The tensors of a packed post."""
        return (*self.whole, *self.compressor.spec(self._sizes))

    def fits(self, known: Tensors | None) -> bool:
        """Whether the knowledge in force has all that changes are counted from; if not, posts are whole."""
        return known is not None and all(
            spec.name in known and known[spec.name].shape == spec.shape for spec in self.changed
        )

    def pack(self, posted: Tensors, known: Tensors, generator: np.random.Generator) -> bytes:
        """Return the packed form of a plain post."""
        stated = self._stated(posted)
        return self._encode(stated, self._changes(posted, self._bases(known, stated)), generator)

    def pack_and_read(
        self,
        posted: Tensors,
        known: Tensors,
        generator: np.random.Generator,
        owed: NDArray[np.float32] | None = None,
    ) -> tuple[bytes, Tensors, NDArray[np.float32]]:
        """Return the packed form of a plain post, what others unpack, and how far it misses what was to be said, (N,).

        `owed` (N,) is added to the changes.
        """
        stated = self._stated(posted)
        bases = self._bases(known, stated)
        changes = self._changes(posted, bases, owed)
        payload = self._encode(stated, changes, generator)
        plain = self.unpack(payload, known)  # what the members get, with their rounding
        return payload, plain, np.concatenate(changes) - np.concatenate(self._changes(plain, bases))

    def unpack(self, payload: Buffer, known: Tensors) -> dict[str, NDArray[Any]]:
        """Return the tensors of a plain post, read-only, within the bounds of their specs. Raises `InvalidPayload`."""
        packed = decode(payload, self.specs)
        found = {spec.name: packed[spec.name] for spec in self.whole}
        changes = self.compressor.unpack(packed, self._sizes)
        for spec, base, (where, moves) in zip(self.changed, self._bases(known, found), changes, strict=True):
            moved = base.copy()
            moved[where] = round_once(moved[where] + moves)
            found[spec.name] = _within(spec, moved)
        followed = self.method.complete(known, found, self.info) if self.implied else {}
        found |= {spec.name: _within(spec, followed[spec.name]) for spec in self.implied}
        return {name: found[name] for name in sorted(found)}

    def _stated(self, posted: Tensors) -> Tensors:
        return {spec.name: posted[spec.name] for spec in self.whole}

    def _changes(
        self, posted: Tensors, bases: list[NDArray[np.float32]], owed: NDArray[np.float32] | None = None
    ) -> list[NDArray[np.float32]]:
        """The changes that a post says, by tensor, and what is owed to them."""
        parts = [None] * len(bases) if owed is None else np.split(owed, np.cumsum(self._sizes)[:-1])
        found = []
        for spec, base, part in zip(self.changed, bases, parts, strict=True):
            change = posted[spec.name].reshape(-1) - base.astype(np.float64)
            found.append(round_once(change if part is None else change + part))
        return found

    def _encode(self, stated: Tensors, changes: list[NDArray[np.float32]], generator: np.random.Generator) -> bytes:
        return encode({**stated, **canonical(self.compressor.pack(changes, generator))})

    @property
    def _sizes(self) -> list[int]:
        return [math.prod(spec.shape) for spec in self.changed]

    def _bases(self, known: Tensors, stated: Tensors) -> list[NDArray[np.float32]]:
        """The numbers that each tensor's changes are counted from, flat."""
        expected = self.method.expected(known, stated, self.info)
        return [np.ascontiguousarray(expected[spec.name], dtype=np.float32).reshape(-1) for spec in self.changed]


def find_packing(
    method: Method, info: ModelInfo, posted: Sequence[TensorSpec], left: Sequence[TensorSpec]
) -> Packing | None:
    """Return the packed form of posts, or None if nothing in them can be packed.

    Packed are a model's parameters, as far as the phase leaves parameters of the same names and shapes. Integers,
    buffers and numbers with bounds of their own stay whole.

    Args:
        method: says how posts are compressed.
        info: the senders' model.
        posted: what the phase's posts are made of.
        left: what it leaves behind.
    """
    shapes, compressor = {spec.name: spec.shape for spec in left}, method.compressor
    fitting = [spec for spec in posted if shapes.get(spec.name) == spec.shape and _is_plain(spec)]
    changed = tuple(sorted(fitting, key=lambda spec: spec.name))
    if compressor is None or not changed:
        return None
    left_out = {spec.name for spec in changed} | method.implied
    return Packing(
        compressor,
        changed,
        whole=tuple(spec for spec in posted if spec.name not in left_out),
        implied=tuple(spec for spec in posted if spec.name in method.implied),
        method=method,
        info=info,
    )


def _is_plain(spec: TensorSpec) -> bool:
    is_free = -1 not in spec.shape and spec.minimum is None and spec.maximum is None
    return spec.name.startswith(PREFIX) and spec.dtype == "float32" and is_free


def _within(spec: TensorSpec, flat: NDArray[np.float32]) -> NDArray[np.float32]:
    """Numbers as a tensor, read-only, moved into its bounds."""
    try:
        validate_elements(spec, flat)
    except InvalidPayload:
        flat = clip_elements(spec, flat)
    flat.flags.writeable = False
    return flat.reshape(spec.shape)
