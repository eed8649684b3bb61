"""Frames between a node and its worker processes: four bytes of length, then one canonical value."""

from typing import Any, BinaryIO

from anyio.abc import ByteSendStream
from anyio.streams.buffered import BufferedByteReceiveStream

from fedchain.chain.encoding import decode, encode

LENGTH_SIZE = 4
FRAME_SIZE_MAX = 2**30
"""Bytes of one frame; both ends are ours, so this only catches a broken pipe's garbage."""


def to_frame(value: Any) -> bytes:
    """Write one value as a frame."""
    data = encode(value)
    return len(data).to_bytes(LENGTH_SIZE, "big") + data


def read_frame(file: BinaryIO) -> Any:
    """Read one value in a worker process; raises EOFError when the node has closed the pipe."""
    head = file.read(LENGTH_SIZE)
    size = int.from_bytes(head, "big")
    data = file.read(size) if len(head) == LENGTH_SIZE else b""
    if len(head) < LENGTH_SIZE or len(data) < size:
        raise EOFError
    return decode(data, FRAME_SIZE_MAX)


def write_frame(file: BinaryIO, value: Any) -> None:
    """Write one value in a worker process."""
    file.write(to_frame(value))
    file.flush()


async def receive_frame(stream: BufferedByteReceiveStream) -> Any:
    """Read one value from a worker process; raises anyio.IncompleteRead when it is gone."""
    size = int.from_bytes(await stream.receive_exactly(LENGTH_SIZE), "big")
    return decode(await stream.receive_exactly(size), FRAME_SIZE_MAX)


async def send_frame(stream: ByteSendStream, value: Any) -> None:
    """Write one value to a worker process."""
    await stream.send(to_frame(value))
