"""Snapshots of a running simulation: all that its peers, its network and its observers are between two moments.

A run that goes on begins at the newest and has little to repeat. Nothing depends on there being one: it holds what
repeating the run from its record would lead to. It is Python's own pickle, which is a program. So it is signed with a
secret of this user on this machine, and what was not signed with that, or by another version, is not looked into.
"""

import asyncio
import hashlib
import hmac
import io
import logging
import os
import pickle  # noqa: TID251 - of what this user wrote and signed, and no other
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import fedchain
from fedchain.crypto.hashing import HASH_SIZE, Hash

log = logging.getLogger("fedchain.simulator")

FIRST_S = 2.0
"""Seconds of processor time after which the first snapshot is taken."""

COST_SHARE = 0.03
"""Of the processor time, at most so much goes into snapshots."""

SIZE_MAX = 256 * 2**20
"""A run whose snapshots would be larger takes none: its models are large, and so its training is the work."""

KEY_SIZE = 32
"""Bytes of the secret."""

_NEVER = float("inf")

_HANDLE_STATE = ("_when", "_callback", "_args", "_cancelled", "_scheduled")


class Memory(Protocol):
    """Whoever is no part of a snapshot, but has to know how far it was."""

    def memory(self) -> Any:
        """What it knows now, in plain values."""

    def adopt(self, memory: Any) -> bool:
        """Go on from there; False: it cannot, and stays as it is."""


class SnapshotTooLarge(Exception):
    """A snapshot would have more than `SIZE_MAX` bytes."""


class Snapshots:
    """Takes snapshots now and then, as seldom as their cost wants it.

    Args:
        path: of the file, which is replaced by each.
        beside: whose memory goes with them.
    """

    def __init__(self, path: Path, beside: Memory) -> None:
        self._path, self._beside, self._key = path, beside, _own_key()
        self._due_s = _NEVER if self._key is None else time.process_time() + FIRST_S

    def is_due(self) -> bool:
        """Whether it is time for the next."""
        return time.process_time() >= self._due_s

    def take(self, state: object, given: Mapping[str, object]) -> None:
        """Write a snapshot. Where that is impossible there will be none, and the run would be repeated from its record.

        Args:
            state: what is kept.
            given: what it refers to and whoever reads it has by the same names.
        """
        assert self._key is not None, "without it none is due"
        begun_s = time.process_time()
        try:
            data = write_state((self._beside.memory(), state), given)
        except (SnapshotTooLarge, pickle.PicklingError, TypeError, AttributeError, RecursionError) as error:
            log.warning("no snapshots are taken of this run: %s", error)
            self._due_s = _NEVER
            return
        temporary = self._path.with_suffix(".part")
        with temporary.open("wb") as file:
            file.write(_signature(self._key, data))
            file.write(data)
        temporary.replace(self._path)
        now_s = time.process_time()
        self._due_s = now_s + (now_s - begun_s) / COST_SHARE

    def read(self, given: Mapping[str, object], is_usable: Callable[[Any], bool]) -> Any:
        """Return the state in the newest snapshot.

        Args:
            given: see :meth:`take`.
            is_usable: whether one can be gone on from.

        Returns:
            The state; None: there is none, or it is damaged, another program's or user's, or not usable.
        """
        try:
            with self._path.open("rb") as file:
                signature, data = file.read(HASH_SIZE), file.read()
        except FileNotFoundError:
            return None
        if self._key is None or not hmac.compare_digest(signature, _signature(self._key, data)):
            return None
        found = read_state(data, given)
        if found is None:
            return None
        memory, state = found
        return state if is_usable(state) and self._beside.adopt(memory) else None


def write_state(state: object, given: Mapping[str, object]) -> bytes:
    """A state as bytes; see :meth:`Snapshots.take`. Raises SnapshotTooLarge, with no more in memory than is allowed."""
    buffer = _BoundedBuffer()
    buffer.write(program())
    _Pickler(buffer, given).dump(state)
    return buffer.getvalue()


def read_state(data: bytes, given: Mapping[str, object]) -> Any:
    """What :func:`write_state` wrote; None if it was another program's."""
    if data[:HASH_SIZE] != program():
        return None
    return _Unpickler(io.BytesIO(data[HASH_SIZE:]), given).load()


@lru_cache(maxsize=1)
def program() -> Hash:
    """Hash over the interpreter's version, and names, sizes and times of all files of this package."""
    found = hashlib.sha256(sys.version.encode())
    for folder, folders, files in os.walk(Path(fedchain.__file__).parent, followlinks=True):
        folders.sort()
        for name in sorted(files):
            if name.endswith(".py"):
                entry = os.stat(Path(folder) / name)
                found.update(f"{folder}/{name} {entry.st_size} {entry.st_mtime_ns}\n".encode())
    return found.digest()


def _own_key() -> bytes | None:
    """This user's secret on this machine, which is made when it is first wanted; None where it cannot be kept."""
    try:
        home = os.environ.get("XDG_STATE_HOME")
        path = (Path(home) if home else Path.home() / ".local" / "state") / "fedchain" / "snapshots.key"
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=path.parent)  # which nobody else may read
            with os.fdopen(descriptor, "wb") as file:
                file.write(secrets.token_bytes(KEY_SIZE))
            with suppress(FileExistsError):  # another process was faster
                os.link(name, path)
            os.unlink(name)
        entry = path.stat()
        if entry.st_uid != os.getuid() or entry.st_mode & 0o077:
            raise PermissionError(0, "others may read or write it", str(path))
        return path.read_bytes()
    except (OSError, RuntimeError) as error:
        log.warning("no snapshots are taken of this run: %s", error)
        return None


def _signature(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


class _BoundedBuffer(io.BytesIO):
    def write(self, data: Any, /) -> int:
        """As any buffer, up to `SIZE_MAX` bytes."""
        if self.tell() + memoryview(data).nbytes > SIZE_MAX:
            raise SnapshotTooLarge(f"they would have more than {SIZE_MAX // 2**20} MiB; --resume repeats it instead")
        return super().write(data)


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, given: Mapping[str, object]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._names = {id(item): name for name, item in given.items()}

    def persistent_id(self, item: Any) -> str | None:
        """The name of what is given to who reads."""
        return self._names.get(id(item))

    def reducer_override(self, item: Any) -> Any:
        """What pickle cannot do by itself: the loop's timers, and views of contents."""
        if isinstance(item, asyncio.TimerHandle):
            loop, *state = (getattr(item, name) for name in ("_loop", *_HANDLE_STATE))
            return _new_handle, (loop,), state, None, None, _set_handle
        if isinstance(item, memoryview):
            return bytes, (bytes(item),)
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, given: Mapping[str, object]) -> None:
        super().__init__(file)
        self._given = given

    def persistent_load(self, name: str) -> object:
        """What is given under a name."""
        return self._given[name]


def _new_handle(loop: asyncio.AbstractEventLoop) -> asyncio.TimerHandle:
    """A timer that is still nothing: what it calls may refer to it."""
    return asyncio.TimerHandle(0.0, print, (), loop)


def _set_handle(handle: asyncio.TimerHandle, state: Sequence[Any]) -> None:
    for name, value in zip(_HANDLE_STATE, state, strict=True):
        setattr(handle, name, value)
