"""Payloads by reference: a post lists parts, by hash, and only the readers of a part fetch its bytes.

The post is a manifest, a small payload that everybody checks and aggregates. A part is an encoded document, as a
payload is, compressed where that pays; each reader checks its form. Its reader is the place of a member, or one of the
three below. n parts.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

from fedchain.crypto.hashing import HASH_SIZE
from fedchain.learning.exceptions import InvalidPayload
from fedchain.learning.payload.codec import decode, size_bytes_max
from fedchain.learning.payload.spec import TensorSpec, byte_strings

EVERYBODY, AGGREGATOR, NEXT_AGGREGATOR = -1, -2, -3
"""Readers that are no member's place: all members, the aggregator of the round, and that of the next round."""

PART_SIZE_MAX = 16 * 2**20
"""Largest part, in bytes. A process that works on parts holds one at a time, so this bounds their memory."""

PARTS_MAX = 4_096
"""Parts that one post lists."""

MEDIANS_MAX = 64
"""How many times what the median sender lists a reader takes from one sender. A whole part it takes from anybody."""

COMPRESSION_LEVEL = 1
"""Level of zstd: it halves the size of features behind a ReLU, at 250 MB/s; higher levels gain a few per cent."""

COMPRESSED_MAX = 0.9
"""A part is sent compressed if that takes at most this share of its bytes; noise does not shrink."""

_PLAIN, _COMPRESSED = b"\0", b"\1"
_HASHES, _SIZES, _UNPACKED, _KINDS, _READERS, _SENDERS = (
    f"parts.{name}" for name in ("hash", "size", "unpacked", "kind", "reader", "sender")
)
_COLUMNS = (_HASHES, _SIZES, _UNPACKED, _KINDS, _READERS)


@dataclass(frozen=True, slots=True)
class PartRef:
    """One part as a post lists it."""

    hash: bytes
    """32 bytes: SHA-256 of its bytes."""

    size: int
    """How many bytes it has."""

    kind: str
    """Which of the phase's kinds it is of (`Method.parts`)."""

    reader: int
    """Its reader: the place of a member, `EVERYBODY`, `AGGREGATOR` or `NEXT_AGGREGATOR`."""

    sender: int = -1
    """Place of the member that posted it; -1 in a post itself, which has one sender."""

    unpacked: int = 0
    """Bytes of its document, which compression may have made short."""


Tensors = Mapping[str, NDArray[Any]]
"""Named arrays."""

Kinds = Mapping[str, tuple[TensorSpec, ...]]
"""Name of each kind of part that a phase's posts may list -> the tensors in it."""


def manifest_spec(kinds: Kinds, members: int) -> tuple[TensorSpec, ...]:
    """State the tensors with which a post lists its parts; none for a phase whose posts are whole."""
    return _listing_spec(kinds, members, PARTS_MAX) if kinds else ()


def left_behind_spec(kinds: Kinds, members: int) -> tuple[TensorSpec, ...]:
    """State the tensors that `join_lists` returns."""
    if not kinds:
        return ()
    parts_max = PARTS_MAX * members
    senders = TensorSpec(_SENDERS, (-1,), "int64", parts_max, minimum=0, maximum=members - 1)
    return (*_listing_spec(kinds, members, parts_max), senders)


def manifest(refs: Sequence[PartRef], kinds: Kinds) -> Tensors:
    """Return the tensors with which a post lists at least one part."""
    assert 1 <= len(refs) <= PARTS_MAX, f"a post lists from 1 to {PARTS_MAX} parts, not {len(refs)}"
    order = list(kinds)
    return {
        _HASHES: np.frombuffer(b"".join(ref.hash for ref in refs), np.uint8).reshape(-1, HASH_SIZE),
        _SIZES: np.array([ref.size for ref in refs], np.int64),
        _UNPACKED: np.array([ref.unpacked for ref in refs], np.int64),
        _KINDS: np.array([order.index(ref.kind) for ref in refs], np.int64),
        _READERS: np.array([ref.reader for ref in refs], np.int64),
    }


def listed(tensors: Tensors, kinds: Kinds) -> tuple[PartRef, ...]:
    """Return the parts that a post, or a phase's knowledge, lists, in their order; none if it lists none."""
    if _HASHES not in tensors:
        return ()
    order, count = list(kinds), len(tensors[_SIZES])
    senders = tensors[_SENDERS].tolist() if _SENDERS in tensors else [-1] * count
    columns = (tensors[name].tolist() for name in (_SIZES, _KINDS, _READERS, _UNPACKED))
    return tuple(
        PartRef(row.tobytes(), size, order[kind], reader, sender, unpacked)
        for row, size, kind, reader, unpacked, sender in zip(tensors[_HASHES], *columns, senders, strict=True)
    )


def listed_as(tensors: Tensors, kinds: Kinds, part_hash: bytes) -> tuple[PartRef, ...]:
    """Return the parts that a post lists under one hash: the same bytes may have several readers."""
    rows = (tensors[_HASHES] == np.frombuffer(part_hash, np.uint8)).all(axis=1)  # (n,)
    return listed({name: tensors[name][rows] for name in _COLUMNS}, kinds)


def check_manifest(tensors: Tensors, kinds: Kinds, bytes_max: int) -> None:
    """Raise `InvalidPayload` unless the tensors, which fit their specs, list parts that a reader could fetch and hold.

    All together have at most `bytes_max` bytes when they are unpacked, one that is listed twice counted twice: it takes
    no more than a few hundred bytes to say zero a million times.
    """
    if not kinds:
        return
    counts = {name: len(tensors[name]) for name in _COLUMNS}
    if len(set(counts.values())) > 1:
        raise InvalidPayload(f"parts: as many hashes as sizes, kinds and readers expected, found {counts}")
    refs = listed(tensors, kinds)
    for place, ref in enumerate(refs):
        most = part_size_max(kinds[ref.kind])
        if ref.unpacked >= most:
            found = f"found {ref.unpacked}"
            raise InvalidPayload(f"parts[{place}]: fewer than {most} bytes expected of kind {ref.kind}, {found}")
        if ref.size > ref.unpacked + len(_PLAIN):
            raise InvalidPayload(f"parts[{place}]: {ref.size} bytes of a document that has {ref.unpacked}")
    if (total := sum(ref.unpacked for ref in refs)) > bytes_max:
        raise InvalidPayload(f"parts: at most {bytes_max} bytes expected together, found {total}")


def oversized(sizes: Mapping[int, int]) -> dict[int, str]:
    """Return the senders that list more than a reader takes from one, with the reason.

    A few hundred bytes say zero a million times, so it costs a liar nothing to list what takes its readers minutes and
    gigabytes. A minority of liars cannot make the median large.

    Args:
        sizes: by sender, the bytes of its parts when they are unpacked.
    """
    bound = max(PART_SIZE_MAX, MEDIANS_MAX * statistics.median_low(sizes.values())) if sizes else 0
    return {
        sender: f"it lists parts of {size} bytes unpacked, and at most {bound} are taken from one member"
        for sender, size in sizes.items()
        if size > bound
    }


def join_lists(lists: Sequence[tuple[int, Tensors]]) -> Tensors:
    """Return the lists of several posts, each with its sender's place, one after the other and with the senders."""
    columns = {name: np.concatenate([tensors[name] for _, tensors in lists]) for name in _COLUMNS}
    places = np.array([place for place, _ in lists], np.int64)
    return columns | {_SENDERS: np.repeat(places, [len(tensors[_SIZES]) for _, tensors in lists])}


def part_size_max(specs: Iterable[TensorSpec]) -> int:
    """Return the bytes that no part of this kind exceeds."""
    return min(size_bytes_max(tuple(specs)), PART_SIZE_MAX) + len(_PLAIN)


def pack_part(document: bytes) -> bytes:
    """Return a part: one byte that says how the document follows, and the document."""
    assert len(document) <= PART_SIZE_MAX, f"a part of {len(document)} bytes; write several of fewer rows"
    compressed = zstandard.ZstdCompressor(level=COMPRESSION_LEVEL).compress(document)
    if len(compressed) <= COMPRESSED_MAX * len(document):
        return _COMPRESSED + compressed
    return _PLAIN + document


def unpacked_size(data: bytes) -> int:
    """Return the bytes that a part has when it is unpacked, as it says itself: none is unpacked to more, or fewer.

    -1 where it does not say so.
    """
    if data[:1] == _PLAIN:
        return len(data) - len(_PLAIN)
    try:
        return zstandard.frame_content_size(memoryview(data)[len(_COMPRESSED) :])
    except zstandard.ZstdError:
        return -1


def decode_part(data: bytes, specs: Sequence[TensorSpec]) -> Tensors:
    """Return a part's tensors, read-only, or raise `InvalidPayload` if it breaks any rule. It is never unpacked to more
    than a part of its kind can have."""
    how, body = data[:1], memoryview(data)[1:]
    if how == _PLAIN:
        return decode(body, specs)
    if how != _COMPRESSED:
        raise InvalidPayload(f"part: its first byte must be 0 or 1, found {how.hex() or 'nothing'}")
    limit = part_size_max(specs)
    try:
        size = zstandard.frame_content_size(body)
        if not 0 <= size <= limit:
            raise InvalidPayload(f"part: at most {limit} bytes expected when unpacked, found {size}")
        unpacked = zstandard.ZstdDecompressor().decompress(body, max_output_size=limit, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise InvalidPayload(f"part: it cannot be unpacked: {error}") from None
    return decode(unpacked, specs)


def _listing_spec(kinds: Kinds, members: int, parts_max: int) -> tuple[TensorSpec, ...]:
    return (
        byte_strings(_HASHES, HASH_SIZE, -1, count_max=parts_max),
        TensorSpec(_SIZES, (-1,), "int64", parts_max, minimum=1, maximum=PART_SIZE_MAX + len(_PLAIN)),
        TensorSpec(_UNPACKED, (-1,), "int64", parts_max, minimum=1, maximum=PART_SIZE_MAX),
        TensorSpec(_KINDS, (-1,), "int64", parts_max, minimum=0, maximum=len(kinds) - 1),
        TensorSpec(_READERS, (-1,), "int64", parts_max, minimum=NEXT_AGGREGATOR, maximum=members - 1),
    )
