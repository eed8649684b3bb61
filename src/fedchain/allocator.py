"""Memory that is given back: glibc keeps freed blocks as large as a post in its heap, between others that still live.

A node gets and frees posts all the time, so that heap would grow for many rounds. glibc maps blocks above a threshold
for themselves, and returns them to the system when they are freed, but raises the threshold with the first of them. It
is the same with the blocks of a network that learns: one that trains with 0.8 GB held 1.7 after two batches.
"""

import ctypes

MAPPED_SIZE = 2**20
"""Bytes from which on a block is mapped for itself."""

TRAINING_MAPPED_SIZE = 2**23
"""The same where networks learn, which take and free blocks all the time: each that is mapped costs time."""

_M_MMAP_THRESHOLD = -3


def return_large_blocks(size: int = MAPPED_SIZE) -> bool:
    """Fix the threshold for this process; False where the C library has none."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # musl, macOS
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, size))
