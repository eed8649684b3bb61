"""Frames between a node and its worker processes: four bytes of length, then one canonical value."""

from pathlib import Path
from typing import Any, BinaryIO, cast

import anyio
from anyio.abc import ByteSendStream
from anyio.streams.buffered import BufferedByteReceiveStream

from fedchain.chain.encoding import decode, encode
from fedchain.chain.exceptions import InvalidEncoding
from fedchain.crypto.hashing import sha256
from fedchain.files.spool import map_file, path_of

LENGTH_SIZE = 4
FRAME_SIZE_MAX = 2**30
"""Most bytes of one frame. Both ends are ours, so the limit only catches a broken pipe's garbage.

Bytes that are read in place from a file are not in frames: the frame names the file, and the other process reads it.
"""


class PipeBroken(Exception):
    """The other process is gone, or did not write a frame."""


def hand_over(data: bytes) -> bytes | list[bytes | str]:
    """Bytes for a frame: themselves, or the file and the hash of those that are read in place."""
    path = path_of(data)
    return data if path is None else [str(path.absolute()), sha256(data)]


def take_over(handed: Any) -> bytes:
    """The bytes that a frame has, or names: their hash is what the other process, which is ours, says it is.

    Bytes that were taken over before are themselves. Raises PipeBroken: it names no file that is here.
    """
    if not isinstance(handed, list):
        return cast("bytes", handed)
    path, digest = handed
    try:
        return map_file(Path(path), digest)
    except (OSError, ValueError) as error:
        raise PipeBroken(f"{path} was handed over, but cannot be read: {error}") from None


def to_frame(value: Any) -> bytes:
    """The frame of one value."""
    data = encode(value)
    return len(data).to_bytes(LENGTH_SIZE, "big") + data


def read_frame(file: BinaryIO) -> Any:
    """Read one value in a worker process; raises PipeBroken when the node has closed the pipe."""
    head = file.read(LENGTH_SIZE)
    size = int.from_bytes(head, "big")
    data = file.read(size) if len(head) == LENGTH_SIZE and size <= FRAME_SIZE_MAX else b""
    if len(head) < LENGTH_SIZE or len(data) < size:
        raise PipeBroken(f"{len(head) + len(data)} of {LENGTH_SIZE + size} bytes could be read")
    return _decode(data)


def write_frame(file: BinaryIO, value: Any) -> None:
    """Write one value in a worker process."""
    file.write(to_frame(value))
    file.flush()


async def receive_frame(stream: BufferedByteReceiveStream) -> Any:
    """Read one value from a worker process; raises PipeBroken when it is gone."""
    try:
        size = int.from_bytes(await stream.receive_exactly(LENGTH_SIZE), "big")
        if size > FRAME_SIZE_MAX:
            raise PipeBroken(f"a frame of {size} bytes was announced, at most {FRAME_SIZE_MAX} are taken")
        data = await stream.receive_exactly(size)
    except (anyio.IncompleteRead, anyio.BrokenResourceError, anyio.ClosedResourceError):
        raise PipeBroken("it has closed its output") from None
    return _decode(data)


async def send_frame(stream: ByteSendStream, value: Any) -> None:
    """Write one value to a worker process; raises PipeBroken when it is gone."""
    try:
        await stream.send(to_frame(value))
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        raise PipeBroken("it has closed its input") from None


def _decode(data: bytes) -> Any:
    try:
        return decode(data, FRAME_SIZE_MAX)
    except InvalidEncoding as error:
        raise PipeBroken(str(error)) from None
