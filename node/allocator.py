"""Memory that is given back: glibc keeps freed blocks as large as a post in its heap, between others that still live.

A node gets and frees posts all the time, so that heap would grow for many rounds. glibc maps blocks above a threshold
for themselves, and returns them to the system when they are freed, but raises the threshold with the first of them.
"""

import ctypes

MAPPED_SIZE = 2**20
"""Bytes from which on a block is mapped for itself."""

_M_MMAP_THRESHOLD = -3


def return_large_blocks() -> bool:
    """Fix the threshold for this process; False where the C library has none."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # musl, macOS
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, MAPPED_SIZE))
