"""Memory and the system: freed blocks are returned to it, and a large heap is kept in large pages.

glibc keeps freed blocks as large as a post in its heap, between others that still live.

A node gets and frees posts all the time, so that heap would grow for many rounds. glibc maps blocks above a threshold
separately, and returns them to the system when they are freed, but the first of them raises the threshold. The same
holds for the blocks of a model in training: one that needs 0.8 GB held 1.7 GB after two batches.
"""

import ctypes
import mmap
from contextlib import suppress
from pathlib import Path

MAPPED_SIZE = 2**20
"""Size in bytes from which a block is mapped separately."""

TRAINING_MAPPED_SIZE = 2**23
"""The same in training processes, which get and free blocks all the time: each mapping costs time."""

TRAINING_KEPT_SIZE = 2**26
"""Free bytes at the end of the heap that training processes keep. A threshold that is fixed fixes this one, too, at
128 KiB: each step of a small network would return its blocks and get them again, page by page, for a tenth of its
time."""

GROWTH_SIZE = 2**27
"""Bytes by which a process has to grow before its heap is gathered into huge pages again. Gathering takes 2 ms a MiB:
a run that grows by less ends before it pays."""

HUGE_SIZE = 2**21
"""Bytes of a huge page."""

_MADV_COLLAPSE = 25
_MAPS, _STATM = Path("/proc/self/maps"), Path("/proc/self/statm")

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def return_large_blocks(size: int = MAPPED_SIZE, kept_size: int | None = None) -> bool:
    """Fix the threshold for this process; returns False if the C library has none.

    Args:
        size: bytes from which a block is mapped separately.
        kept_size: free bytes that the end of the heap may have before it is returned; None: the C library's 128 KiB.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # musl, macOS
        return False
    is_kept = kept_size is None or mallopt(_M_TRIM_THRESHOLD, kept_size)
    return bool(is_kept and mallopt(_M_MMAP_THRESHOLD, size))


class HugePages:
    """Keeps the heap of a process in huge pages, as it grows.

    A simulation of many peers reads a little here and there in gigabytes of small objects. In pages of 4 KiB nearly
    each read misses the processor's table of pages, for a sixth of the time. A system other than Linux from 6.1 on
    changes nothing.
    """

    def __init__(self) -> None:
        self._gathered_size = _resident_size()

    def look(self) -> None:
        """Gather the heap, if it has grown by much."""
        size = _resident_size()
        if size >= self._gathered_size + GROWTH_SIZE:
            self._gathered_size = size
            with suppress(OSError):  # a system may hide where the heap is
                _gather()


def gather(address: int, size: int) -> bool:
    """Have the kernel put huge pages in place of the small ones of some memory; returns False if it does not.

    Args:
        address: where it begins, a multiple of `HUGE_SIZE`.
        size: bytes, a multiple of `HUGE_SIZE`.
    """
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    return not madvise(address, size, _MADV_COLLAPSE)


def _resident_size() -> int:
    """Bytes of this process that are in memory; 0 if the system does not say it so."""
    try:
        return int(_STATM.read_bytes().split()[1]) * mmap.PAGESIZE
    except OSError:
        return 0


def _gather() -> None:
    """Gather all private memory that is no file's."""
    for line in _MAPS.read_text().splitlines():
        span, rights, _, _, inode, *name = line.split()
        if rights == "rw-p" and inode == "0" and name in ([], ["[heap]"]):
            start, end = (int(address, 16) for address in span.split("-"))
            start, end = -(-start // HUGE_SIZE) * HUGE_SIZE, end // HUGE_SIZE * HUGE_SIZE
            if start < end:
                gather(start, end - start)  # where there is no room for one, small ones stay
