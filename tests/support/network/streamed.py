"""A stream that a test feeds, and a reader of its frames."""

import trio

from fedchain.network.libp2p.streams import FrameReader
from fedchain.network.limits import Limits

LIMITS = Limits(frame_timeout_s=0.1, idle_timeout_s=0.1, keepalive_s=0.01)


class FakeStream:
    """The side of a stream that a frame reader uses: bytes in pieces, then silence, and window updates."""

    def __init__(self, *pieces: bytes) -> None:
        self.muxed_stream = self.conn = self
        self.stream_id, self.recv_window, self.recv_closed = 1, 2**18, False
        self.updates: list[int] = []
        self._pieces = list(pieces)

    async def read_stream(self, stream_id: int, size: int) -> bytes:
        if not self._pieces:
            await trio.sleep_forever()
        return self._pieces.pop(0)

    async def send_window_update(self, increment: int) -> None:
        self.updates.append(increment)


def reader(*pieces: bytes, size_max: int = 100) -> FrameReader:
    return FrameReader(FakeStream(*pieces), size_max, LIMITS)
