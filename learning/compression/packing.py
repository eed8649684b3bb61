"""A post of which some tensors are packed: what is counted from the knowledge in force, and back to plain tensors."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedchain.files.spool import MAPPED_SIZE, InMemory, Spools, write_pieces
from fedchain.learning.aggregation.mean import round_once
from fedchain.learning.compression.compressor import BLOCK, Compressor
from fedchain.learning.exceptions import InvalidPayload
from fedchain.learning.method import Method
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.models.parameters import PREFIX
from fedchain.learning.payload.codec import canonical, decode, entry_pieces, pieces
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

    def pack(
        self,
        posted: Tensors,
        known: Tensors,
        generator: np.random.Generator,
        owed: NDArray[np.float32] | None = None,
        spools: Spools = InMemory,
    ) -> bytes:
        """Return the packed form of a plain post, tensor by tensor.

        Args:
            posted: the post.
            known: the knowledge in force.
            generator: for what the compressor draws.
            owed: (N,), what earlier posts have left out; as far as it is kept, it is added to the changes.
            spools: begins the post, and the tensors in it.
        """
        stated = self._stated(posted)
        changes = self._changes(posted, self._bases(known, stated), owed)
        packed = self.compressor.pack(changes, self._sizes, generator, spools)
        return write_pieces(pieces(canonical({**stated, **packed})), spools)

    def missed(
        self, posted: Tensors, plain: Tensors, known: Tensors, owed: NDArray[np.float32] | None = None
    ) -> Iterator[NDArray[np.float32]]:
        """Yield by how much a packed post misses each of N numbers that were to be said, part by part.

        `plain` is what others unpack, and all else as in `pack`.
        """
        before = 0
        for spec, base in zip(self.changed, self._bases(known, self._stated(posted)), strict=True):
            flat, heard = posted[spec.name].reshape(-1), plain[spec.name].reshape(-1)
            for part in _parts(base.size):
                here = slice(before + part.start, before + part.stop)
                to_say = self._change(flat[part], base[part], None if owed is None else owed[here])
                yield to_say - self._change(heard[part], base[part])
            before += base.size

    def unpack(self, payload: Buffer, known: Tensors, spools: Spools = InMemory) -> Tensors:
        """Return the tensors of a plain post, read-only, within the bounds of their specs. Raises `InvalidPayload`.

        Large ones are put together by `spools`, tensor by tensor, and then those that follow from them.
        """
        packed = decode(payload, self.specs)
        found = {spec.name: packed[spec.name] for spec in self.whole}
        moved = self._moved(packed, self._bases(known, found))
        is_large = 4 * self.count > MAPPED_SIZE
        if is_large:
            names = sorted([*found, *(spec.name for spec in self.changed)])
            entries = ((name, found[name]) if name in found else next(moved) for name in names)
            found = decode(write_pieces(entry_pieces(len(names), entries), spools), (*self.whole, *self.changed))
        else:
            found |= dict(moved)
        if self.implied:
            followed = self.method.complete(known, found, self.info)
            within = {spec.name: _within(spec, followed[spec.name]) for spec in self.implied}
            found |= decode(write_pieces(pieces(within), spools), self.implied) if is_large else within
        return {name: found[name] for name in sorted(found)}

    @property
    def count(self) -> int:
        """N."""
        return sum(self._sizes)

    def _moved(self, packed: Tensors, bases: Iterator[NDArray[np.float32]]) -> Iterator[tuple[str, NDArray[Any]]]:
        """The packed tensors, in ascending order of name."""
        changes = self.compressor.unpack(packed, self._sizes)
        for spec, base, parts in zip(self.changed, bases, changes, strict=True):
            moved = base.copy()
            for where, moves in parts:
                moved[where] = round_once(moved[where] + moves)
            yield spec.name, _within(spec, moved)

    def _stated(self, posted: Tensors) -> Tensors:
        return {spec.name: posted[spec.name] for spec in self.whole}

    def _changes(
        self, posted: Tensors, bases: Iterator[NDArray[np.float32]], owed: NDArray[np.float32] | None = None
    ) -> Iterator[NDArray[np.float32]]:
        """The changes that a post says, by tensor, and what is owed to them."""
        before = 0
        for spec, base in zip(self.changed, bases, strict=True):
            flat, found = posted[spec.name].reshape(-1), np.empty(base.size, dtype=np.float32)
            for part in _parts(base.size):
                here = None if owed is None else owed[before + part.start : before + part.stop]
                found[part] = self._change(flat[part], base[part], here)
            yield found
            before += base.size

    def _change(
        self, numbers: NDArray[Any], base: NDArray[np.float32], owed: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        change = numbers - base.astype(np.float64)
        return round_once(change if owed is None else change + owed * np.float32(self.compressor.kept))

    @property
    def _sizes(self) -> list[int]:
        return [math.prod(spec.shape) for spec in self.changed]

    def _bases(self, known: Tensors, stated: Tensors) -> Iterator[NDArray[np.float32]]:
        """The numbers that each tensor's changes are counted from, flat."""
        expected = self.method.expected(known, stated, self.info)
        for spec in self.changed:
            yield np.ascontiguousarray(expected[spec.name], dtype=np.float32).reshape(-1)


def _parts(size: int) -> Iterator[slice]:
    """Cut so many numbers into blocks."""
    return (slice(begin, min(begin + BLOCK, size)) for begin in range(0, size, BLOCK))


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
