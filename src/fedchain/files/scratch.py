"""Temporary folders: those of a process that was killed go when another one begins.

A lock on a folder lasts as long as its process, or one that it forked, and goes with the last of them, also by SIGKILL.
So a folder without one is nobody's any more. Where the file system has no such locks, nothing is deleted.
"""

import fcntl
import os
import platform
import shutil
import tempfile
import weakref
from collections.abc import Callable
from contextlib import suppress


class Scratch(tempfile.TemporaryDirectory[str]):
    """A temporary folder of this process; the ones that dead processes of this user left are deleted before.

    Raises OSError if there is no place for one.
    """

    def __init__(self) -> None:
        # Machines that share a folder need not see each other's locks. Folders of other programs have other names.
        prefix = f"fedchain.{platform.node()}."
        _delete_left(tempfile.gettempdir(), prefix)
        self._unlock: Callable[[], object] = lambda: None
        while True:
            super().__init__(prefix=prefix, ignore_cleanup_errors=True)
            with suppress(FileNotFoundError):
                file = _open(self.name)
                self._unlock = weakref.finalize(self, os.close, file)
                with suppress(OSError):  # a file system without locks: nobody else gets one there either
                    fcntl.flock(file, fcntl.LOCK_EX)
                if os.path.samestat(os.stat(self.name), os.fstat(file)):
                    return
            self.cleanup()  # another process took it for a dead one's before it was locked

    def cleanup(self) -> None:
        """Delete it."""
        super().cleanup()
        self._unlock()


def _open(folder: str) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _delete_left(place: str, prefix: str) -> None:
    """Delete folders of this user whose processes are dead; what the system refuses stays."""
    found = list[str]()
    with suppress(OSError):
        # A machine's name may begin another one's; what follows a prefix of ours has no dot.
        found = [name for name in os.listdir(place) if name[: name.rfind(".") + 1] == prefix]
    for path in (os.path.join(place, name) for name in found):
        with suppress(OSError):
            file = _open(path)
            try:
                if os.fstat(file).st_uid == os.geteuid():
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(file)
