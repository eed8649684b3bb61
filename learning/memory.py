"""What a process that trains holds of the machine's memory."""

import ctypes

LARGE_BLOCK = 1 << 24
"""Bytes of a block of memory from which on it is mapped by itself: 256 images of 32x32 with 16 channels."""

_MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD of <malloc.h>


def return_large_blocks() -> None:
    """Have large blocks of memory go back to the system as soon as they are freed.

    Left to itself, glibc moves its bound up to 32 MiB when such a block is first freed, and carves the next ones from
    a heap that soon has gaps of the wrong sizes: a network that trains with 0.8 GB held 1.7 after two batches. With
    any other C library nothing happens. See mallopt(3).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, LARGE_BLOCK)
