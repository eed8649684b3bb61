"""Bitmaps: sets of members in one bit each, in the order of the members."""

from collections.abc import Iterable, Iterator

from fedchain.network.messages import Bitmap


def to_bitmap(places: Iterable[int], size: int, marked: Bitmap = b"") -> Bitmap:
    """Mark ``places`` among ``size`` members, in addition to those that are marked in a bitmap of that size."""
    bits = bytearray(marked or (size + 7) // 8)
    for place in places:
        bits[place >> 3] |= 1 << (place & 7)
    return bytes(bits)


def difference(marked: Bitmap, others: Iterable[Bitmap], size: int) -> Bitmap | None:
    """The members marked in one bitmap and in none of ``others``, without bits beyond ``size`` members; None if there
    are none, as most often."""
    found = _read(marked, size)
    for other in others:
        found &= ~_read(other, size)
    return found.to_bytes((size + 7) // 8, "little") if found else None


def from_bitmap(bitmap: Bitmap, size: int) -> Iterator[int]:
    """Marked places below ``size``; bits beyond are not looked at."""
    marked = _read(bitmap, size)
    while marked:  # costs as much as is marked, which often is nothing
        lowest = marked & -marked
        yield lowest.bit_length() - 1
        marked ^= lowest


def _read(bitmap: Bitmap, size: int) -> int:
    return int.from_bytes(bitmap[: (size + 7) // 8], "little") & (1 << size) - 1
