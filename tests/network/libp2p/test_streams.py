"""Frames, windows and outboxes of a stream."""

import pytest
import trio

from fedchain.network.libp2p.streams import KEEPALIVE, WINDOW_SIZE, FrameReader, FrameTooLarge, NewestStream, Outbox
from fedchain.network.limits import Limits
from fedchain.network.messages import CHUNK_SIZE, Chunk, GetContent, Status, encode_message
from tests.support.network.real import on_trio
from tests.support.network.streamed import LIMITS, FakeStream, reader


@pytest.mark.parametrize("step", [1, 3, 7, 100])
@on_trio
async def test_frames_arrive_however_they_are_cut(step: int) -> None:
    data = b"\0\0\0\5hello\0\0\0\0\0\0\0\x01!"
    frames = reader(*(data[place : place + step] for place in range(0, len(data), step)))
    assert [await frames.frame() for _ in range(3)] == [b"hello", b"", b"!"]


@pytest.mark.parametrize("step", [1, 3, 100])
@on_trio
async def test_varint_frames_arrive_however_they_are_cut(step: int) -> None:
    data = b"\5hello\0\x96\1" + bytes(150)
    frames = reader(*(data[place : place + step] for place in range(0, len(data), step)), size_max=150)
    assert [await frames.varint_frame() for _ in range(3)] == [b"hello", b"", bytes(150)]


@pytest.mark.parametrize("data", [b"\0\0\0\x65", b"\xff\xff\xff\xff"])
@on_trio
async def test_a_frame_that_is_too_large_is_not_read(data: bytes) -> None:
    with pytest.raises(FrameTooLarge):
        await reader(data).frame()


@pytest.mark.parametrize("data", [b"\x65", b"\xff\xff\xff\xff", b"\x80\x80\x80\x80\x80\x80\x80"])
@on_trio
async def test_a_varint_frame_that_is_too_large_is_not_read(data: bytes) -> None:
    with pytest.raises(FrameTooLarge):
        await reader(data).varint_frame()


@pytest.mark.parametrize("data", [b"\0", b"\0\0\0\5hell"])
@on_trio
async def test_a_frame_whose_rest_does_not_come_is_given_up(data: bytes) -> None:
    with pytest.raises(trio.TooSlowError):
        await reader(data).frame()


@on_trio
async def test_the_window_is_widened_once_and_given_back_in_halves() -> None:
    frame = (2**18).to_bytes(4, "big") + bytes(2**18)
    stream = FakeStream(*([frame] * 8))
    frames = FrameReader(stream, 2**20, LIMITS)
    await frames.open()
    assert stream.updates == [WINDOW_SIZE - 2**18]
    for _ in range(8):
        await frames.frame()
    assert len(stream.updates) == 5
    assert sum(stream.updates) == WINDOW_SIZE - 2**18 + 8 * len(frame)


@on_trio
async def test_whoever_has_ended_its_side_is_given_no_window() -> None:
    frame = (2**20 - 4).to_bytes(4, "big") + bytes(2**20 - 4)
    stream = FakeStream(frame)
    frames = FrameReader(stream, 2**20, LIMITS)
    stream.recv_closed = True
    assert await frames.frame() == frame[4:]
    assert stream.updates == []


@on_trio
async def test_an_outbox_gives_what_was_put_in_order() -> None:
    outbox = Outbox(LIMITS)
    messages = [GetContent(bytes(32), number) for number in range(3)]
    assert all(outbox.put(message) for message in messages)
    assert len(outbox) == 3
    data, count = await outbox.take()
    frames = reader(data, size_max=1000)
    assert [await frames.frame() for _ in range(3)] == [encode_message(message) for message in messages]
    assert (count, len(outbox)) == (3, 0)
    assert await outbox.take() == (KEEPALIVE, 0)


@on_trio
async def test_an_outbox_keeps_the_newest_status_and_gives_it_first() -> None:
    outbox = Outbox(Limits(outbox_messages_max=1))
    statuses = [Status(height, bytes(32), b"", (), (), None) for height in range(3)]
    assert outbox.put(GetContent(bytes(32), 1))
    assert not outbox.put(GetContent(bytes(32), 2))
    assert all(outbox.put(status) for status in statuses)
    data, count = await outbox.take()
    frames = reader(data, size_max=1000)
    assert [await frames.frame() for _ in range(count)] == [
        encode_message(statuses[-1]),
        encode_message(GetContent(bytes(32), 1)),
    ]


@on_trio
async def test_an_outbox_is_bounded_in_bytes_and_written_in_parts() -> None:
    outbox = Outbox(Limits(outbox_bytes_max=3 * CHUNK_SIZE))
    chunk = Chunk(bytes(32), 0, bytes(CHUNK_SIZE))
    size = 4 + len(encode_message(chunk))
    assert [outbox.put(chunk) for _ in range(4)] == [size, size, 0, 0]
    assert outbox.put(Chunk(bytes(32), 0, bytes(CHUNK_SIZE // 2)))
    with trio.fail_after(Limits().keepalive_s / 2):
        counts = [(await outbox.take())[1] for _ in range(3)]
    assert counts == [1, 1, 1]
    assert outbox.put(chunk)


@on_trio
async def test_a_stream_that_ends_after_the_newer_one_ends_in_peace() -> None:
    newest, begun, is_over = NewestStream(), trio.Event(), trio.Event()

    async def read() -> None:
        with newest.of("peer"):
            begun.set()
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await is_over.wait()

    async with trio.open_nursery() as tasks:
        tasks.start_soon(read)
        await begun.wait()
        with newest.of("peer"):
            pass
        is_over.set()
