"""The terminal that closes while a command writes to it."""

import errno
import os
import stat
import sys
from collections.abc import Iterator


def is_hung_up(error: OSError) -> bool:
    """Whether a write failed because the terminal is gone: a command may hear of that so, before SIGHUP or after it."""
    return error.errno == errno.EIO and error.filename is None and any(_on_devices())


def drop_output() -> None:
    """Let what was written to a terminal that is gone, and still will be, go nowhere.

    Python would write it at its end, and report an error.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in _on_devices():
        os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _on_devices() -> Iterator[int]:
    """Descriptors of standard output and standard error that are no file and no pipe."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stat.S_ISCHR(os.fstat(stream.fileno()).st_mode):
                yield stream.fileno()
        except (OSError, ValueError, AttributeError):  # it is closed, or none of the system's
            continue
