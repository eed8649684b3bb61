"""Parts of the real network by themselves: frames, outboxes, bounded containers, names and log lines."""

import hashlib
import logging
from types import SimpleNamespace

import pytest
import trio
from libp2p.peer.id import ID
from libp2p.pubsub.pb import rpc_pb2

from fedchain.crypto.address import address
from fedchain.network.libp2p.bounds import (
    CACHE_BYTES_MAX,
    ID_SIZE,
    IGNORED_MAX,
    JUDGEMENTS_MAX,
    QUEUE_BYTES_MAX,
    QUEUE_FRAMES_MAX,
    SETTLED_MAX,
    BoundedQueue,
    Judged,
    RecentMessages,
    message_id,
)
from fedchain.network.libp2p.identity import _public_key_of, key_pair, peer_id, public_key_of
from fedchain.network.libp2p.log import LEFT_OUT, LINES_PER_MINUTE, Limit
from fedchain.network.libp2p.streams import KEEPALIVE, WINDOW_SIZE, FrameReader, FrameTooLarge, Outbox
from fedchain.network.limits import Limits
from fedchain.network.messages import CHUNK_SIZE, Chunk, GetContent, Status, encode_message
from tests.support.chain.builders import keys
from tests.support.network.real import meshed, on_trio, peer

KEY = keys(1)[0]
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
    counts = [(await outbox.take())[1] for _ in range(3)]
    assert counts == [1, 1, 1]
    assert outbox.put(chunk)


@on_trio
async def test_gossip_that_waits_is_bounded_in_number_and_bytes() -> None:
    queue, small, large = BoundedQueue(), rpc_pb2.RPC(), rpc_pb2.RPC()
    small.publish.add(data=b"x")
    large.publish.add(data=bytes(2**20 - 100))
    assert [queue.push(small) for _ in range(QUEUE_FRAMES_MAX + 1)].count(True) == QUEUE_FRAMES_MAX
    for _ in range(QUEUE_FRAMES_MAX):
        await queue.pop()
    held = [queue.push(large) for _ in range(20)].count(True)
    assert held == QUEUE_BYTES_MAX // large.ByteSize()
    await queue.pop()
    assert queue.push(large)
    queue.close()


def kept(number: int, size: int = 8) -> rpc_pb2.Message:
    return rpc_pb2.Message(data=number.to_bytes(size, "big"), topicIDs=["t"])


def test_messages_kept_for_others_are_bounded_in_bytes() -> None:
    cache, size = RecentMessages(3, 5), 2**20
    for number in range(2 * CACHE_BYTES_MAX // size):
        cache.put(kept(number, size))
        cache.put(kept(0, size))
    assert len(cache.msgs) == CACHE_BYTES_MAX // size
    for _ in range(5):
        cache.shift()
    assert not cache.msgs
    cache.put(kept(0, size))
    assert len(cache.msgs) == 1


def test_a_message_is_named_by_what_it_says() -> None:
    name = message_id(b"hello")
    assert name.hex() == hashlib.sha256(b"fedchain/gossip/2hello").hexdigest()[: 2 * ID_SIZE]
    cache = RecentMessages(3, 5)
    cache.put(rpc_pb2.Message(data=b"hello", topicIDs=["t"]))
    cache.put(rpc_pb2.Message(data=b"hello", topicIDs=["t"]))
    assert cache.window("t") == [name]
    assert cache.get(name) == rpc_pb2.Message(data=b"hello", topicIDs=["t"])


def test_what_was_settled_is_remembered_up_to_a_bound() -> None:
    judged, one, two = Judged(), peer_id(bytes(32)), peer_id(KEY.public_key)
    judged.settle(b"first")
    judged.settle(b"second")
    assert not judged.may_judge(b"first", one)
    for number in range(SETTLED_MAX - 2):
        judged.settle(number.to_bytes(8, "big"))
    judged.settle(b"first")  # heard of again
    judged.settle(b"third")
    assert not judged.may_judge(b"first", two)
    assert judged.may_judge(b"second", two)
    assert not judged.may_judge(bytes(8), two)


def test_what_was_ignored_is_judged_again_until_a_neighbour_has_used_up_its_turns() -> None:
    judged, one, two = Judged(), peer_id(bytes(32)), peer_id(KEY.public_key)
    for _ in range(JUDGEMENTS_MAX):
        assert judged.may_judge(b"message", one)
        judged.ignore(b"message", one)
    assert not judged.may_judge(b"message", one)
    assert judged.may_judge(b"message", two)
    for number in range(IGNORED_MAX - 1):
        judged.ignore(number.to_bytes(8, "big"), two)
    assert not judged.may_judge(b"message", one)
    judged.ignore(b"another", two)
    assert judged.may_judge(b"message", one), "forgotten, as the oldest"
    judged.ignore(b"another", two)
    judged.settle(b"another")
    assert not judged.may_judge(b"another", one)


def test_a_key_has_one_name_here_and_there() -> None:
    assert key_pair(KEY).public_key.to_bytes() == KEY.public_key
    assert ID.from_pubkey(key_pair(KEY).public_key) == peer_id(KEY.public_key)
    assert peer_id(KEY.public_key).to_base58() == address(KEY.public_key)
    assert public_key_of(peer_id(KEY.public_key)) == KEY.public_key


@pytest.mark.parametrize("data", [b"", b"\x12\x20" + bytes(32), bytes(38), b"\x00\x24" + bytes(2**20)])
def test_other_names_have_no_key(data: bytes) -> None:
    assert public_key_of(ID(data)) is None


def test_names_too_long_to_be_a_keys_are_not_remembered() -> None:
    before = _public_key_of.cache_info()
    for number in range(10):
        public_key_of(ID(number.to_bytes(1_000, "big")))
    assert _public_key_of.cache_info() == before


def test_who_was_given_a_message_is_remembered_as_long_as_the_message() -> None:
    cache = RecentMessages(1, 2)
    cache.put(kept(0))
    cache.given[message_id(kept(0).data)].add(peer_id(KEY.public_key))
    cache.shift()
    assert cache.given
    cache.shift()
    assert not cache.given


def test_lines_of_one_kind_are_limited(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("fedchain.network.libp2p.log.time", SimpleNamespace(monotonic=lambda: now[0]))
    log = logging.getLogger("fedchain.network")
    monkeypatch.setattr(log, "filters", [Limit()])
    caplog.set_level(logging.DEBUG, "fedchain.network")
    for number in range(100):
        log.warning("line %d", number)
    log.info("another kind")
    assert caplog.messages == [*(f"line {number}" for number in range(LINES_PER_MINUTE)), "another kind"]
    now[0] = 61.0
    log.warning("line %d", 100)
    assert caplog.messages[-2:] == [LEFT_OUT % (100 - LINES_PER_MINUTE), "line 100"]


def test_lines_of_peers_are_limited() -> None:
    assert any(isinstance(item, Limit) for item in logging.getLogger("fedchain.network").filters)


def test_the_library_does_not_log(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("libp2p"), "propagate", True)
    logging.getLogger("libp2p").setLevel(logging.DEBUG)

    @on_trio
    async def run() -> None:
        async with peer(0) as one, peer(1, one) as two:
            await meshed(one, two)

    run()
    logging.getLogger().handle(logging.LogRecord("root", logging.ERROR, "/x/libp2p/y.py", 1, "to the root", (), None))
    logging.getLogger().handle(logging.LogRecord("root", logging.ERROR, "/x/other/y.py", 1, "of others", (), None))
    assert [record.message for record in caplog.records if not record.name.startswith("fedchain")] == ["of others"]
