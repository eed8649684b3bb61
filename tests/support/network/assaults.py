"""Attacks on a node by an attacker with a member's key, or with none, for as long as it is let: one coroutine each.

Each uses the strongest form of its idea that the rules of the protocol do not punish at once; what is punished at
once is in ``test_libp2p_attacks.py``.
"""

import struct
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count, cycle, islice
from typing import Any

import trio
from libp2p.abc import INetStream
from libp2p.custom_types import TProtocol
from libp2p.pubsub.pb import rpc_pb2
from libp2p.stream_muxer.yamux.yamux import (
    FLAG_SYN,
    TYPE_DATA,
    TYPE_PING,
    TYPE_WINDOW_UPDATE,
    YAMUX_HEADER_FORMAT,
)
from libp2p.utils import encode_varint_prefixed
from multiaddr import Multiaddr

from fedchain.chain.block import Block, Header, evidence_root, transactions_root
from fedchain.chain.certificate import certificate_root
from fedchain.chain.genesis import Genesis
from fedchain.chain.post import Post, sign_post
from fedchain.chain.vote import VoteKind, sign_vote
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import PrivateKey
from fedchain.network.libp2p.addresses import encode_exchange
from fedchain.network.libp2p.bounds import message_id
from fedchain.network.messages import (
    MESSAGE_SIZE_MAX,
    CandidateMessage,
    GetCandidate,
    GetContent,
    GetFinal,
    GetPosts,
    GetVotes,
    Message,
    PostMessage,
    Status,
    VoteMessage,
    encode_message,
)
from tests.support.chain.builders import EASY_BITS, seal
from tests.support.network.real import GOSSIP, Attacker, attacker

RETRY_S = 0.5
"""Pause before a disconnected attacker comes back."""

DISTINCT = 400
"""Different messages that are made before a flood begins."""

BATCH_SIZE = 2**16


@dataclass(slots=True)
class Offender:
    """An attacker, its target, and the result."""

    place: str
    """Multiaddr of the node, with its peer id."""
    genesis: Genesis
    key: PrivateKey
    """A member's, or a stranger's."""
    head: Hash
    """The node's head."""
    height: int
    content: Hash
    """A content that the node holds."""
    sent: int = 0
    """Messages, frames or connections, as the attack has it."""
    connections: int = 0
    disconnects: int = 0
    refused: int = 0
    """Attempts to come back that failed."""
    begun: trio.Event = field(default_factory=trio.Event)
    """Set when what is sent is made, and the sending begins."""

    @property
    def messages(self) -> TProtocol:
        return TProtocol(f"/fedchain/{self.genesis.chain_id.hex()}/messages/2")

    @property
    def addresses(self) -> TProtocol:
        return TProtocol(f"/fedchain/{self.genesis.chain_id.hex()}/addresses/2")

    @property
    def topic(self) -> str:
        return f"/fedchain/{self.genesis.chain_id.hex()}/gossip/2"

    async def insist(self, act: Callable[[Attacker], Awaitable[None]], *, reads: bool = True) -> None:
        """Connect and act; whenever that ends, come back and do it again."""
        self.begun.set()
        while True:
            try:
                async with attacker(self.place, self.key) as bad:
                    self.connections += 1
                    for protocol in (self.messages, GOSSIP):
                        bad.host.set_stream_handler(protocol, _drain if reads else _hold)
                    try:
                        while bad.is_connected():
                            try:
                                await act(bad)
                            except Exception:
                                await trio.sleep(0.01)  # the stream was reset: a new one is opened
                    finally:
                        self.disconnects += not bad.is_connected()
            except Exception:
                self.refused += 1
            await trio.sleep(RETRY_S)

    async def flood(self, bad: Attacker, protocol: TProtocol, frames: Iterable[bytes]) -> None:
        """Write ``frames`` as fast as they are taken."""
        stream, batch, number = await bad.open(protocol), bytearray(), 0
        for frame in frames:
            batch, number = batch + frame, number + 1
            if len(batch) >= BATCH_SIZE:
                await stream.write(bytes(batch))
                self.sent += number
                batch, number = bytearray(), 0
        await stream.write(bytes(batch))
        self.sent += number

    async def flood_messages(self, messages: Iterable[Message], *, reads: bool = True) -> None:
        frames = [framed(encode_message(message)) for message in messages]
        await self.insist(lambda bad: self.flood(bad, self.messages, cycle(frames)), reads=reads)

    def gossip(self, data: bytes) -> rpc_pb2.Message:
        """Gossip."""
        return rpc_pb2.Message(data=data, topicIDs=[self.topic])

    def post(self, number: int, size: int = 100) -> Post:
        """A post of ours whose payload nobody has."""
        round_number = self.height + 1
        payload = number.to_bytes(size, "big")
        return sign_post(self.key, self.genesis.chain_id, round_number, 0, payload)

    def block(self, number: int, parent: Hash | None = None, bits: int = EASY_BITS) -> Block:
        """A block with a post of ours, with next to no work unless ``bits`` say otherwise."""
        posts = (self.post(number),)
        header = Header(
            version=self.genesis.version,
            parent_hash=parent or sha256(b"unknown %d" % number),
            height=self.height + 1,
            round=self.height + 1,
            phase=0,
            transactions_root=transactions_root(posts),
            certificate_root=certificate_root(None),
            evidence_root=evidence_root(()),
            state_root=sha256(b"state %d" % number),
            knowledge_root=self.content,
            bits=bits,
            miner=self.key.public_key,
            nonce=0,
        )
        return seal(self.genesis, header, posts, None, (), self.key)


def framed(data: bytes) -> bytes:
    """A frame of the messages' and addresses' streams."""
    return len(data).to_bytes(4, "big") + data


async def _drain(stream: INetStream) -> None:
    while await stream.read(BATCH_SIZE):
        pass


async def _hold(stream: INetStream) -> None:
    """Accept a stream, and never read it."""
    await trio.sleep_forever()


# --- messages of a member


async def headers(offender: Offender) -> None:
    """Blocks without parent and with next to no work."""
    await offender.flood_messages(CandidateMessage(offender.block(number)) for number in range(DISTINCT))


async def announcements(offender: Offender) -> None:
    """Ten thousand payloads that nobody has, in posts and in blocks without parent."""
    posts = [PostMessage(offender.post(number, 10_000), None) for number in range(10_000)]
    blocks = [CandidateMessage(offender.block(number)) for number in range(200)]
    await offender.flood_messages([*posts, *blocks])


async def votes(offender: Offender) -> None:
    """Votes for blocks that do not exist."""
    key, chain_id = offender.key, offender.genesis.chain_id
    made = (
        sign_vote(key, chain_id, (offender.height + 1, 0, VoteKind.PREVOTE), sha256(b"%d" % number))
        for number in range(10_000)
    )
    await offender.flood_messages(VoteMessage(vote) for vote in made)


async def statuses(offender: Offender) -> None:
    """Statuses that tell of blocks which do not exist."""
    told = [tuple(sha256(b"candidate %d %d" % (number, place)) for place in range(16)) for number in range(DISTINCT)]
    await offender.flood_messages(
        Status(10**9, offender.head if number % 2 else sha256(b"%d" % number), b"\xff", candidates, (), None)
        for number, candidates in enumerate(told)
    )


def questions_of(offender: Offender) -> list[Message]:
    phase = offender.height + 1
    everybody = b"\xff" * 8
    return [
        GetContent(offender.content, 0),
        GetFinal(1, 16),
        GetCandidate(offender.head),
        GetPosts(phase, 0, everybody),
        GetVotes(phase, VoteKind.PREVOTE, 0, everybody),
        GetContent(sha256(b"unknown"), 0),
    ]


async def questions(offender: Offender) -> None:
    """Questions without end; the answers are read."""
    await offender.flood_messages(questions_of(offender))


async def questions_unread(offender: Offender) -> None:
    """Questions without end; nobody reads the answers."""
    await offender.flood_messages(questions_of(offender), reads=False)


async def silent_provider(offender: Offender) -> None:
    """A payload is announced, and then there is silence."""

    async def act(bad: Attacker) -> None:
        stream = await bad.open(offender.messages)
        for number in count():
            await stream.write(framed(encode_message(PostMessage(offender.post(0, 100_000), None))))
            await stream.write(framed(encode_message(CandidateMessage(offender.block(number)))))
            offender.sent += 2
            await trio.sleep(1)

    await offender.insist(act)


# --- bytes of a member


async def slow(offender: Offender) -> None:
    """Ten bytes a second of a message, and of gossip."""

    async def act(bad: Attacker) -> None:
        streams = [await bad.open(protocol) for protocol in (offender.messages, GOSSIP)]
        for byte in cycle(framed(encode_message(questions_of(offender)[0]))):
            for stream in streams:
                await stream.write(bytes([byte]))
                offender.sent += 1
            await trio.sleep(0.1)

    await offender.insist(act)


async def half_frames(offender: Offender) -> None:
    """The largest frames, on as many streams as there may be, all but their last byte."""
    frame = (MESSAGE_SIZE_MAX).to_bytes(4, "big") + bytes(MESSAGE_SIZE_MAX - 1)

    async def act(bad: Attacker) -> None:
        async def send_one() -> None:
            stream = await bad.open(offender.messages)
            offender.sent += 1
            await stream.write(frame)
            await stream.read(1)

        async with trio.open_nursery() as nursery:
            for _ in range(24):
                nursery.start_soon(send_one)

    await offender.insist(act)


async def oversize(offender: Offender) -> None:
    """Lengths that are too large."""

    async def act(bad: Attacker) -> None:
        for protocol in cycle((offender.messages, GOSSIP, offender.addresses)):
            await bad.send(protocol, b"\xff" * 64)
            offender.sent += 1

    await offender.insist(act)


async def addresses(offender: Offender) -> None:
    """Questions for addresses, each with as many addresses as fit."""
    texts = [f"/dns4/{'a' * 100}.example/tcp/{number}" for number in range(4)]
    question = framed(encode_exchange("1.0", [(offender.key.public_key, texts)] * 16))

    async def act(bad: Attacker) -> None:
        async def ask() -> None:
            while bad.is_connected():
                stream = await bad.send(offender.addresses, question)
                offender.sent += 1
                await stream.read(BATCH_SIZE)
                await stream.reset()

        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(ask)

    await offender.insist(act)


def muxed_of(bad: Attacker) -> Any:
    """The multiplexer below the streams."""
    (connection,) = bad.host.get_network().get_connections(bad.target)
    return connection.muxed_conn


async def _flood_frames(offender: Offender, frames: Callable[[], Iterator[bytes]]) -> None:
    """Frames of the multiplexer, below every stream."""

    async def act(bad: Attacker) -> None:
        made, muxed = frames(), muxed_of(bad)
        while batch := list(islice(made, 50)):  # more at once would keep our own answers waiting, and so theirs
            await muxed._write_frame(b"".join(batch))
            offender.sent += len(batch)
            await trio.sleep(0)

    await offender.insist(act)


async def streams(offender: Offender) -> None:
    """New streams, nothing else, as fast as they can be named."""
    await _flood_frames(
        offender,
        lambda: (struct.pack(YAMUX_HEADER_FORMAT, 0, TYPE_WINDOW_UPDATE, FLAG_SYN, 2 * n + 1, 0) for n in count(1_000)),
    )


async def unknown_names(offender: Offender) -> None:
    """Names of protocols that nobody knows, without end, on as many streams as there may be; each is answered."""
    named = encode_varint_prefixed(b"/multistream/1.0.0\n") + encode_varint_prefixed(b"x\n") * 20_000

    async def act(bad: Attacker) -> None:
        async def name() -> None:
            while bad.is_connected():
                stream = await muxed_of(bad).open_stream()
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_drain, stream)
                    while True:
                        await stream.write(named)
                        offender.sent += 20_000

        async with trio.open_nursery() as nursery:
            for _ in range(24):
                nursery.start_soon(name)

    await offender.insist(act)


async def pings(offender: Offender) -> None:
    """Pings of the multiplexer, each of which is answered."""
    await _flood_frames(
        offender, lambda: (struct.pack(YAMUX_HEADER_FORMAT, 0, TYPE_PING, FLAG_SYN, 0, n) for n in count())
    )


async def empty_data(offender: Offender) -> None:
    """Data for a stream that does not exist."""
    frame = struct.pack(YAMUX_HEADER_FORMAT, 0, TYPE_DATA, 0, 77, 0)
    await _flood_frames(offender, lambda: iter(lambda: frame, b""))


# --- gossip of a member


async def _flood_gossip(offender: Offender, frames: Iterable[rpc_pb2.RPC]) -> None:
    encoded = [encode_varint_prefixed(frame.SerializeToString()) for frame in frames]
    await offender.insist(lambda bad: offender.flood(bad, GOSSIP, cycle(encoded)))


async def empty_gossip(offender: Offender) -> None:
    """A frame of half a million empty messages now and then, and as many as a frame may have otherwise."""
    frames = [rpc_pb2.RPC(publish=[rpc_pb2.Message()] * number) for number in (500_000, *[1_000] * 20)]
    await _flood_gossip(offender, frames)


async def replayed_gossip(offender: Offender) -> None:
    """Posts whose payloads nobody has, again and again."""
    posts = [encode_message(PostMessage(offender.post(number), None)) for number in range(DISTINCT)]
    frames = [rpc_pb2.RPC(publish=[offender.gossip(post)] * 100) for post in posts]
    await _flood_gossip(offender, frames)


async def many_ids(offender: Offender) -> None:
    """Control messages with as many ids as fit."""
    ids = [number.to_bytes(20, "big") for number in range(20_000)]
    control = rpc_pb2.ControlMessage()
    control.ihave.add(topicID=offender.topic, messageIDs=ids)
    control.graft.add(topicID=offender.topic)
    control.prune.add(topicID=offender.topic, backoff=1)
    await _flood_gossip(offender, [rpc_pb2.RPC(control=control)])


async def wanted_again(offender: Offender) -> None:
    """A post is published and then asked for again and again, a thousand times in each question."""
    published = offender.gossip(encode_message(PostMessage(offender.post(0), None)))
    ids = [message_id(published.data)] * 128
    control = rpc_pb2.ControlMessage()
    for _ in range(8):
        control.iwant.add(messageIDs=ids)
    hello = rpc_pb2.RPC.SubOpts(subscribe=True, topicid=offender.topic)
    first = rpc_pb2.RPC(publish=[published], subscriptions=[hello])
    await _flood_gossip(offender, [first, *[rpc_pb2.RPC(control=control)] * 50])


# --- connections


async def comings_and_goings(offender: Offender) -> None:
    """A member that connects and leaves without end."""
    offender.begun.set()
    while True:
        try:
            async with attacker(offender.place, offender.key):
                offender.sent += 1
        except Exception:
            offender.refused += 1
            await trio.sleep(0.01)


async def strangers(offender: Offender) -> None:
    """Handshakes of somebody who is no member, several at a time."""
    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(comings_and_goings, offender)


async def half_open(offender: Offender) -> None:
    """Connections that never shake hands, as many as the system lets through."""
    port = int(str(Multiaddr(offender.place.rpartition("/p2p/")[0]).value_for_protocol("tcp")))

    offender.begun.set()

    async def hold_one() -> None:
        while True:
            try:
                stream = await trio.open_tcp_stream("127.0.0.1", port)
                offender.sent += 1
                await stream.send_all(b"\x13/multistream/1.0.0\n")
                while await stream.receive_some():
                    pass
            except OSError:
                offender.refused += 1
            await trio.sleep(0.2)

    async with trio.open_nursery() as nursery:
        for _ in range(300):
            nursery.start_soon(hold_one)


async def unknown_transports(offender: Offender) -> None:
    """Names of ways to encrypt that nobody knows, without end, on many connections; each is answered."""
    port = int(str(Multiaddr(offender.place.rpartition("/p2p/")[0]).value_for_protocol("tcp")))
    named = encode_varint_prefixed(b"/multistream/1.0.0\n") + encode_varint_prefixed(b"x\n") * 20_000
    offender.begun.set()

    async def name() -> None:
        while True:
            try:
                async with await trio.open_tcp_stream("127.0.0.1", port) as stream, trio.open_nursery() as nursery:
                    nursery.start_soon(_drain_socket, stream)
                    while True:
                        await stream.send_all(named)
                        offender.sent += 20_000
            except* (OSError, trio.BrokenResourceError):
                offender.refused += 1
            await trio.sleep(0.2)

    async with trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(name)


async def _drain_socket(stream: trio.SocketStream) -> None:
    while await stream.receive_some(BATCH_SIZE):
        pass


ASSAULTS: dict[str, Callable[[Offender], Awaitable[None]]] = {
    assault.__name__: assault
    for assault in (
        *(headers, announcements, votes, statuses, questions, questions_unread, silent_provider),
        *(slow, half_frames, oversize, addresses, streams, unknown_names, pings, empty_data),
        *(empty_gossip, replayed_gossip, many_ids, wanted_again),
        *(comings_and_goings, strangers, half_open, unknown_transports),
    )
}
"""By name."""

STRANGERS = ("strangers", "half_open", "unknown_transports")
"""Attacks that need no member's key."""
