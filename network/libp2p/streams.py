"""Messages to one peer: length-prefixed frames on a stream, and the queue of frames to be sent.

Each side of a connection opens one stream, writes to it and never reads from it. A frame is its length (4 bytes,
big-endian) and one encoded message; a frame of length 0 says only that its sender is there.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import trio

from fedchain.network.libp2p.sockets import READ_SIZE
from fedchain.network.limits import Limits
from fedchain.network.messages import MESSAGE_SIZE_MAX, Message, Status, encode_message

LENGTH_SIZE = 4
WINDOW_SIZE = 2**20
"""Bytes that a peer may send ahead of what we have read."""

BATCH_SIZE = 2**18
"""Bytes written at once, if that many wait."""

KEEPALIVE = bytes(LENGTH_SIZE)


class FrameTooLarge(Exception):
    """A peer announced more bytes than a frame may have."""


class StreamEnded(Exception):
    """The other side ended the stream, between two frames or within one."""


class FrameReader:
    """Reads frames of bounded size from a stream.

    It reads past :class:`NetStream`, whose reads cost a window update each: three encrypted frames for one message.
    Here a window update is sent when half the window was used.

    Args:
        stream: where the frames come from.
        size_max: bytes of a frame.
        limits: of times.
        on_data: called with the number of bytes whenever some came, be they a part of a frame.
    """

    def __init__(
        self, stream: Any, size_max: int, limits: Limits, on_data: Callable[[int], None] = lambda size: None
    ) -> None:
        self._stream = stream.muxed_stream
        self._size_max, self._limits, self._on_data = size_max, limits, on_data
        self._buffer = bytearray()
        self._owed = 0

    async def open(self) -> None:
        """Widen the window to ``WINDOW_SIZE``."""
        self._owed = WINDOW_SIZE - self._stream.recv_window
        await self._update_window()

    async def frame(self) -> bytes:
        """The next frame behind a 4-byte length.

        Raises:
            FrameTooLarge: the frame is announced with more than ``size_max`` bytes.
            StreamEnded: there is none.
            trio.TooSlowError: its first byte came, and the rest not within ``frame_timeout_s``.
        """
        await self._fill(1)
        with trio.fail_after(self._limits.frame_timeout_s):
            await self._fill(LENGTH_SIZE)
            return await self._body(LENGTH_SIZE, int.from_bytes(self._buffer[:LENGTH_SIZE], "big"))

    async def varint_frame(self) -> bytes:
        """The next frame behind a varint, as libp2p's own protocols have it; raises as :meth:`frame` does."""
        await self._fill(1)
        with trio.fail_after(self._limits.frame_timeout_s):
            size = shift = place = 0
            while True:
                await self._fill(place + 1)
                byte = self._buffer[place]
                size |= (byte & 0x7F) << shift
                shift, place = shift + 7, place + 1
                if size > self._size_max or place > 5:
                    raise FrameTooLarge(f"a frame of at least {size} bytes, at most {self._size_max} are allowed")
                if not byte & 0x80:
                    return await self._body(place, size)

    async def end(self) -> None:
        """Wait until the other side is done with the stream."""
        try:
            await self._fill(len(self._buffer) + 1)
        except Exception:
            return

    async def _body(self, start: int, size: int) -> bytes:
        if size > self._size_max:
            raise FrameTooLarge(f"a frame of {size} bytes, at most {self._size_max} are allowed")
        await self._fill(start + size)
        data = bytes(self._buffer[start : start + size])
        del self._buffer[: start + size]
        return data

    async def _fill(self, size: int) -> None:
        """Read until ``size`` bytes are there. The buffer grows with arriving bytes, not with the announced size."""
        while len(self._buffer) < size:
            data = await self._stream.conn.read_stream(self._stream.stream_id, READ_SIZE)
            if not data:
                raise StreamEnded
            self._on_data(len(data))
            self._buffer += data
            self._owed += len(data)
            if self._owed >= WINDOW_SIZE // 2:
                await self._update_window()

    async def _update_window(self) -> None:
        owed, self._owed = self._owed, 0
        if owed > 0 and not self._stream.recv_closed:
            self._stream.recv_window += owed
            await self._stream.send_window_update(owed)


class NewestStream:
    """Lets each peer be read on one stream of a protocol: a new one ends the reading of the one before.

    An honest peer opens a new stream only after the last one broke. Otherwise a peer could leave a frame of maximum
    size, short of its last byte, waiting on every stream.
    """

    def __init__(self) -> None:
        self._reading: dict[Hashable, trio.CancelScope] = {}

    @contextmanager
    def of(self, peer: Hashable) -> Iterator[None]:
        """Read a stream of ``peer`` until the block ends, or is ended from outside by a newer stream."""
        if (before := self._reading.get(peer)) is not None:
            before.cancel()
        with trio.CancelScope() as scope:
            self._reading[peer] = scope
            try:
                yield
            finally:
                if self._reading.get(peer) is scope:
                    del self._reading[peer]


class Outbox:
    """Messages that wait to be sent to one peer, bounded in number and bytes.

    Only the newest of several statuses is of use, and it goes first. Any other message that does not fit is dropped: a
    peer that misses it asks again.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._frames: deque[bytes] = deque()
        self._status: bytes | None = None
        self._size = 0
        self._filled = trio.Event()

    def __len__(self) -> int:
        return len(self._frames) + (self._status is not None)

    def put(self, message: Message) -> int:
        """Add a message; the bytes that it takes, or 0 if it did not fit."""
        data = encode_message(message)
        frame = len(data).to_bytes(LENGTH_SIZE, "big") + data
        if isinstance(message, Status):
            self._status = frame
        elif (
            len(data) > MESSAGE_SIZE_MAX
            or len(self._frames) >= self._limits.outbox_messages_max
            or self._size + len(frame) > self._limits.outbox_bytes_max
        ):
            return 0
        else:
            self._frames.append(frame)
            self._size += len(frame)
        self._filled.set()
        return len(frame)

    async def take(self) -> tuple[bytes, int]:
        """Frames to be written now, and their number, once there are some; a keepalive if there are none for long."""
        with trio.move_on_after(self._limits.keepalive_s):
            await self._filled.wait()
        taken, size = [], 0
        if self._status is not None:
            taken.append(self._status)
            self._status = None
        while self._frames and (size == 0 or size + len(self._frames[0]) <= BATCH_SIZE):
            frame = self._frames.popleft()
            size += len(frame)
            taken.append(frame)
        self._size -= size
        if not self._frames:
            self._filled = trio.Event()
        return b"".join(taken) or KEEPALIVE, len(taken)
