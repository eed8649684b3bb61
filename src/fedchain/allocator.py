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

TRAINING_KEPT_SIZE = 2**26
"""Free bytes at the end of the heap that training processes keep. A threshold that is fixed fixes this one, too, at
128 KiB: each step of a small network would return its blocks and get them again, page by page, for a tenth of its
time."""

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
