"""Frames between a node and its workers: whatever is no frame is a broken pipe, and nothing else."""

import io
from typing import Any

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from fedchain.node.workers.frames import (
    FRAME_SIZE_MAX,
    PipeBroken,
    read_frame,
    receive_frame,
    send_frame,
    to_frame,
    write_frame,
)
from tests.support.node.shell import on_trio

VALUES: tuple[list[Any], ...] = ([], ["train", 1, b"\0" * 70_000], [[], 2**63, "é"])
BROKEN = {
    "nothing": b"",
    "half a length": b"\0\0",
    "a length and nothing": b"\0\0\0\5",
    "half a value": to_frame([1, 2, 3])[:-1],
    "no value": b"\0\0\0\1\xc1",
    "a huge length": (FRAME_SIZE_MAX + 1).to_bytes(4, "big") + b"\0",
}


class Pipe:
    """A pipe whose receiving end gives the bytes sent, in pieces of any size."""

    def __init__(self, data: bytes = b"", piece: int = 3) -> None:
        self._send, receive = anyio.create_memory_object_stream[bytes](10_000)
        self.stream = BufferedByteReceiveStream(receive)
        self._piece = piece
        self._put(data)

    async def send(self, item: bytes) -> None:
        self._put(item)

    async def send_eof(self) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        self._send.close()

    def _put(self, data: bytes) -> None:
        for start in range(0, len(data), self._piece):
            self._send.send_nowait(data[start : start + self._piece])


def test_a_worker_reads_what_was_written() -> None:
    file = io.BytesIO()
    for value in VALUES:
        write_frame(file, value)
    file.seek(0)
    assert [read_frame(file) for _ in VALUES] == list(VALUES)


@on_trio
async def test_a_node_reads_what_a_worker_wrote_however_it_is_cut() -> None:
    pipe = Pipe(piece=11)
    for value in VALUES:
        await send_frame(pipe, value)  # type: ignore[arg-type]
    for value in VALUES:
        assert await receive_frame(pipe.stream) == value


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_a_worker_sees_a_broken_pipe(data: bytes) -> None:
    with pytest.raises(PipeBroken):
        read_frame(io.BytesIO(data))


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
@on_trio
async def test_a_node_sees_a_broken_pipe(data: bytes) -> None:
    pipe = Pipe(data)
    await pipe.aclose()
    with pytest.raises(PipeBroken):
        await receive_frame(pipe.stream)


@on_trio
async def test_sending_to_one_that_is_gone_is_a_broken_pipe() -> None:
    send, receive = anyio.create_memory_object_stream[bytes](1)
    receive.close()
    with pytest.raises(PipeBroken):
        await send_frame(send, [1])  # type: ignore[arg-type]
