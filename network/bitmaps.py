"""Bitmaps: sets of members in one bit each, in the order of the members."""

from collections.abc import Iterable, Iterator

from fedchain.network.messages import Bitmap


def to_bitmap(places: Iterable[int], size: int) -> Bitmap:
    """Mark ``places`` among ``size`` members."""
    bits = bytearray((size + 7) // 8)
    for place in places:
        bits[place >> 3] |= 1 << (place & 7)
    return bytes(bits)


def from_bitmap(bitmap: Bitmap, size: int) -> Iterator[int]:
    """Marked places below ``size``; what lies beyond is not looked at."""
    marked = int.from_bytes(bitmap[: (size + 7) // 8], "little") & (1 << size) - 1
    while marked:  # costs as much as is marked, which often is nothing
        lowest = marked & -marked
        yield lowest.bit_length() - 1
        marked ^= lowest
