"""Return of freed memory: glibc keeps freed blocks as large as a post in its heap, between others that still live.

A node gets and frees posts all the time, so that heap would grow for many rounds. glibc maps blocks above a threshold
separately, and returns them to the system when they are freed, but the first of them raises the threshold. The same
holds for the blocks of a model in training: one that needs 0.8 GB held 1.7 GB after two batches.
"""

import ctypes

MAPPED_SIZE = 2**20
"""Size in bytes from which a block is mapped separately."""

TRAINING_MAPPED_SIZE = 2**23
"""The same in training processes, which get and free blocks all the time: each mapping costs time."""

_M_MMAP_THRESHOLD = -3


def return_large_blocks(size: int = MAPPED_SIZE) -> bool:
    """Fix the threshold for this process; returns False if the C library has none."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # musl, macOS
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, size))
