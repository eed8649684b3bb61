"""The real network: libp2p over TCP with noise and yamux, gossipsub for what all should hear, a stream per peer for the rest.

It runs on trio. Everything here is called from the loop's own thread, and the receiver is called from it too.
"""

import errno
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio
from libp2p.abc import INetStream
from libp2p.custom_types import TProtocol
from libp2p.peer.id import ID
from libp2p.tools.anyio_service import background_trio_service
from multiaddr import Multiaddr

from fedchain.chain.exceptions import InvalidEncoding
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.network.gate import Gate
from fedchain.network.gossip import Verdict
from fedchain.network.identity import peer_id, public_key_of
from fedchain.network.libp2p_gossip import GuardedPubsub, GuardedRouter
from fedchain.network.libp2p_log import log, quieten_library
from fedchain.network.libp2p_peers import (
    EXCHANGE_SIZE_MAX,
    AddressBook,
    decode_entries,
    encode_entries,
    parse_bootstrap,
)
from fedchain.network.libp2p_streams import LENGTH_SIZE, FrameReader, FrameTooLarge, Outbox
from fedchain.network.libp2p_swarm import ConnectionWatch, GuardedHost, build_host, reset_quietly
from fedchain.network.limits import BLAME_MALFORMED, BLAME_REJECTED, Limits
from fedchain.network.messages import (
    MESSAGE_SIZE_MAX,
    BlockMessage,
    GossipMessage,
    Message,
    PostMessage,
    VoteMessage,
    decode_message,
    encode_message,
)
from fedchain.network.network import Receiver

DIALS_MAX = 8
"""Attempts to connect at a time."""

OPEN_TIMEOUT_S = 10.0
"""How long opening a stream may take."""

QUEUE_ROOM = 512
"""Frames that may wait for a mesh neighbour before publishing pauses."""

PACE_TIMEOUT_S = 1.0
"""Longest pause for a neighbour that does not read."""

DEFAULT_LISTEN = "/ip4/127.0.0.1/tcp/0"


class ListenError(Exception):
    """The address to listen on cannot be used; the message says why."""


@dataclass(slots=True)
class Counters:
    """What went through, for metrics."""

    messages_in: int = 0
    messages_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    dropped: int = 0
    """Messages that did not fit into a queue, or came over a peer's budget."""
    rejected: int = 0
    """Messages for which a peer was blamed."""


@asynccontextmanager
async def open_network(
    key: PrivateKey,
    chain_id: Hash,
    members: Collection[PublicKey],
    *,
    listen: str = DEFAULT_LISTEN,
    bootstrap: Iterable[str] = (),
    announce: Iterable[str] = (),
    folder: Path | None = None,
    limits: Limits | None = None,
) -> AsyncIterator["Libp2pNetwork"]:
    """Join the network of a chain for as long as the context lasts.

    Args:
        key: who we are.
        chain_id: 32 bytes; networks of different chains do not hear each other.
        members: public keys of all that may connect.
        listen: where to listen, as a multiaddr; port 0 lets the system choose.
        bootstrap: members to start from, as multiaddrs that end with /p2p/ and a peer id.
        announce: addresses to tell others instead of the one we listen on.
        folder: where the ban list is kept; None: nowhere.
        limits: of everything.

    Raises:
        ListenError: the port is in use, or the address is not ours.
        InvalidBootstrap: a bootstrap address is malformed, or not a member's.
    """
    quieten_library()
    limits = limits or Limits()
    starts = [parse_bootstrap(text, members) for text in bootstrap]
    _check_free(listen)
    network = Libp2pNetwork(key, chain_id, members, limits, folder)
    for peer, place in starts:
        network.book.add_fixed(peer, place)
    async with (
        network.host.run([Multiaddr(listen)]),
        background_trio_service(network.pubsub),
        background_trio_service(network.router),
        trio.open_nursery() as nursery,
    ):
        await network.start(nursery, list(announce))
        try:
            yield network
        finally:
            network.stop()
            nursery.cancel_scope.cancel()


class Libp2pNetwork:
    """A peer's :class:`fedchain.network.network.Network` on real sockets."""

    def __init__(
        self, key: PrivateKey, chain_id: Hash, members: Collection[PublicKey], limits: Limits, folder: Path | None
    ) -> None:
        self.counters = Counters()
        self.gate = Gate(members, limits, folder)
        self.book = AddressBook(key.public_key, self.gate.members, limits)
        self.host: GuardedHost = build_host(key, self._admits, limits)
        self._limits = limits
        self._topic = f"/fedchain/{chain_id.hex()}/gossip/1"
        self._messages = TProtocol(f"/fedchain/{chain_id.hex()}/messages/1")
        self._addresses = TProtocol(f"/fedchain/{chain_id.hex()}/addresses/1")
        self.router = GuardedRouter(self._topic, limits)
        self.pubsub = GuardedPubsub(
            self.host, self.router, self._topic, gate=self.gate, judge=self._judge, blame=self.blame, limits=limits
        )
        self.host.set_stream_handler(self._messages, self._read_messages)
        self.host.set_stream_handler(self._addresses, self._answer_addresses)
        self.host.get_network().register_notifee(ConnectionWatch(self._on_connected, self._on_disconnected))
        self._receiver: Receiver = lambda peer, message: Verdict.IGNORE
        self._on_peer: Callable[[PublicKey, bool], None] = lambda peer, connected: None
        self._peers: dict[PublicKey, tuple[Outbox, trio.CancelScope]] = {}
        self._dialling: set[PublicKey] = set()
        self._publications: deque[bytes] = deque()
        self._published = trio.Event()
        self._nursery: trio.Nursery | None = None
        self._announced: list[str] = []

    # the interface

    def attach(self, receiver: Receiver) -> None:
        """Hand every incoming message to ``receiver``."""
        self._receiver = receiver

    def publish(self, message: GossipMessage) -> None:
        """Spread a message to every peer. What is larger than ``Limits.gossip_size_max`` is not sent."""
        data = encode_message(message)
        if len(data) > self._limits.gossip_size_max:
            log.warning("size", "a message of %d bytes is too large for gossip", len(data))
            self.counters.dropped += 1
        elif len(self._publications) >= self._limits.publish_queue_max:
            log.warning("publish", "%d messages wait to be published; one more is dropped", len(self._publications))
            self.counters.dropped += 1
        else:
            self._publications.append(data)
            self._published.set()

    def send(self, peer: PublicKey, message: Message) -> None:
        """Send a message to a connected peer; nothing happens if it is not connected, or too much waits for it."""
        known = self._peers.get(peer)
        if known is None or not known[0].put(message):
            self.counters.dropped += 1

    # beyond the interface

    def watch(self, on_peer: Callable[[PublicKey, bool], None]) -> None:
        """Call ``on_peer(peer, connected)`` for each peer that comes or goes, and now for those that are here."""
        self._on_peer = on_peer
        for peer in list(self._peers):
            on_peer(peer, True)

    def peers(self) -> list[PublicKey]:
        """Connected peers."""
        return list(self._peers)

    def listen_addresses(self) -> list[str]:
        """Where this peer can be reached, each with its peer id at the end."""
        return [str(address) for address in self.host.get_addrs()]

    def blame(self, peer: PublicKey, amount: float, reason: str) -> None:
        """Hold something against a peer; too much of it disconnects and bans it."""
        now_s = time.time()
        if amount:
            self.counters.rejected += 1
            log.info("blame", "%s: %s", peer_id(peer), reason)
            self.gate.blame(peer, amount, now_s)
        if not self.gate.admits(peer, now_s):
            log.warning("ban", "%s is banned for %.0f s: %s", peer_id(peer), self._limits.ban_s, reason)
            self.disconnect(peer)

    def disconnect(self, peer: PublicKey) -> None:
        """Close the connections to a peer."""
        if self._nursery is not None:
            self._nursery.start_soon(self._close_peer, peer_id(peer))

    # life

    async def start(self, nursery: trio.Nursery, announce: list[str]) -> None:
        """Begin to gossip, to dial and to publish; called once, when the host listens."""
        if not self.host.get_transport_addrs():
            raise ListenError("the address to listen on cannot be used")
        self._announced = announce or [str(address) for address in self.host.get_transport_addrs()]
        await self.pubsub.wait_until_ready()
        await self.pubsub.subscribe(self._topic)
        self._nursery = nursery
        for peer in list(self._peers):  # connected while we were starting
            nursery.start_soon(self._write_messages, peer)
        nursery.start_soon(self._publish_all)
        nursery.start_soon(self._find_peers)

    def stop(self) -> None:
        """Take and send nothing any more."""
        self._nursery = None
        self._receiver = lambda peer, message: Verdict.IGNORE
        self._on_peer = lambda peer, connected: None

    # connections

    def _admits(self, peer: ID) -> bool:
        key = public_key_of(peer)
        return key is not None and peer != self.host.get_id() and self.gate.admits(key, time.time())

    def _on_connected(self, peer: ID) -> None:
        key = public_key_of(peer)
        if key is None or key in self._peers:
            return
        self._peers[key] = Outbox(self._limits), trio.CancelScope()
        self.book.on_connected(key)
        log.debug("connected", "%s is connected", peer)
        if self._nursery is not None:
            self._nursery.start_soon(self._write_messages, key)
        self._on_peer(key, True)

    def _on_disconnected(self, peer: ID) -> None:
        key = public_key_of(peer)
        if key is None or key not in self._peers:
            return
        _, scope = self._peers.pop(key)
        scope.cancel()
        self.book.on_disconnected(key, trio.current_time())
        log.debug("disconnected", "%s is gone", peer)
        self._on_peer(key, False)

    async def _close_peer(self, peer: ID) -> None:
        with trio.move_on_after(OPEN_TIMEOUT_S):
            await self.host.get_network().close_peer(peer)

    async def _find_peers(self) -> None:
        """Dial who should be connected, and ask neighbours where others are."""
        next_exchange_s = trio.current_time() + self._limits.redial_min_s
        while self._nursery is not None:
            now_s = trio.current_time()
            for peer, place in self.book.due(self._peers, now_s):
                if peer not in self._dialling and len(self._dialling) < DIALS_MAX:
                    self._dialling.add(peer)
                    self._nursery.start_soon(self._dial, peer, place)
            if now_s >= next_exchange_s and self._peers:
                wanting = len(self._peers) < self._limits.peers_wanted
                next_exchange_s = now_s + self._limits.exchange_interval_s / (6 if wanting else 1)
                for peer in list(self._peers)[: 2 if wanting else 1]:
                    self._peers[peer] = self._peers.pop(peer)  # the next one is asked the next time
                    self._nursery.start_soon(self._ask_addresses, peer)
            await trio.sleep(0.25 * self._limits.redial_min_s)

    async def _dial(self, peer: PublicKey, place: str) -> None:
        try:
            pause_s = self.book.on_dial(peer, trio.current_time())
            if not self.gate.admits(peer, time.time()):
                return
            with trio.fail_after(2 * self._limits.handshake_timeout_s):
                swarm: Any = self.host.get_network()
                await swarm.dial_addr(Multiaddr(place), peer_id(peer))
        except Exception as error:
            log.warning(
                "dial", "%s cannot be reached at %s (next attempt in %.0f s): %s", peer_id(peer), place, pause_s, error
            )
        finally:
            self._dialling.discard(peer)

    # gossip

    async def _publish_all(self) -> None:
        """Publish what waits, and pause while a neighbour's queue is long, lest a burst overflow it."""
        while True:
            await self._published.wait()
            while self._publications:
                with trio.move_on_after(PACE_TIMEOUT_S):
                    while self.router.waiting_max() > QUEUE_ROOM:
                        await trio.sleep(0.005)
                data = self._publications.popleft()
                self.counters.messages_out += 1
                self.counters.bytes_out += len(data)
                await self.pubsub.publish(self._topic, data)
            self._published = trio.Event()

    def _judge(self, peer: PublicKey, data: bytes) -> Verdict:
        try:
            message = decode_message(data)
        except InvalidEncoding as error:
            log.info("encoding", "gossip of %s: %s", peer_id(peer), error)
            return Verdict.REJECT
        if not isinstance(message, PostMessage | BlockMessage | VoteMessage):
            return Verdict.REJECT
        return self._receive(peer, message, len(data))

    def _receive(self, peer: PublicKey, message: Message, size: int) -> Verdict:
        self.counters.messages_in += 1
        self.counters.bytes_in += size
        try:
            return self._receiver(peer, message)
        except Exception:
            # A fault of ours, which a message of a peer's must not turn into the end of the process.
            log.exception("receiver", "a message of %s could not be handled", peer_id(peer))
            return Verdict.IGNORE

    # messages to one peer

    async def _write_messages(self, peer: PublicKey) -> None:
        """Write what waits for a peer while it is connected; a stream that breaks is opened again."""
        outbox, scope = self._peers[peer]
        pause_s = self._limits.redial_min_s
        with scope:
            while True:
                stream: Any = None
                try:
                    with trio.fail_after(OPEN_TIMEOUT_S):
                        stream = await self.host.new_stream(peer_id(peer), [self._messages])
                    while True:
                        data = await outbox.take()
                        with trio.fail_after(self._limits.frame_timeout_s):
                            await stream.write(data)
                        self.counters.messages_out += 1
                        self.counters.bytes_out += len(data)
                except Exception as error:
                    log.debug("write", "writing to %s failed: %r", peer_id(peer), error)
                finally:
                    if stream is not None:
                        await reset_quietly(stream)
                await trio.sleep(pause_s)

    async def _read_messages(self, stream: INetStream) -> None:
        peer = public_key_of(stream.muxed_conn.peer_id)
        assert peer is not None, "only members are admitted"
        try:
            reader = FrameReader(stream, MESSAGE_SIZE_MAX, self._limits)
            await reader.open()
            while True:
                data = await reader.frame()
                if not self._take(peer, data):
                    return
                await trio.lowlevel.checkpoint()  # frames that are there already would keep others waiting
        except FrameTooLarge as error:
            self.blame(peer, BLAME_MALFORMED, str(error))
        except trio.TooSlowError:
            log.info("slow", "%s was silent for too long", peer_id(peer))
            self.disconnect(peer)
        except Exception as error:
            log.debug("read", "messages of %s ended: %r", peer_id(peer), error)
        finally:
            await reset_quietly(stream)

    def _take(self, peer: PublicKey, data: bytes) -> bool:
        """Take a frame; False: its sender is not wanted any more."""
        now_s = time.time()
        if not self.gate.pays(peer, len(data), now_s):
            self.counters.dropped += 1
            if not self.gate.admits(peer, now_s):
                self.blame(peer, 0.0, "over its budget")
                return False
            return True
        if not data:
            return True
        try:
            message = decode_message(data)
        except InvalidEncoding as error:
            self.blame(peer, BLAME_MALFORMED, str(error))
        else:
            if self._receive(peer, message, len(data)) is Verdict.REJECT:
                self.blame(peer, BLAME_REJECTED, f"rejected {type(message).__name__}")
        return self.gate.admits(peer, now_s)

    # addresses

    async def _ask_addresses(self, peer: PublicKey) -> None:
        """Tell a peer where we are, and learn where others are."""
        stream: Any = None
        try:
            with trio.fail_after(OPEN_TIMEOUT_S):
                stream = await self.host.new_stream(peer_id(peer), [self._addresses])
                await _write_frame(stream, encode_entries([(b"", self._announced)]))
                reader = FrameReader(stream, EXCHANGE_SIZE_MAX, self._limits)
                for other, addresses in decode_entries(await reader.frame()):
                    self.book.add_told(other, addresses, by_itself=other == peer)
        except InvalidEncoding as error:
            self.blame(peer, BLAME_MALFORMED, str(error))
        except Exception as error:
            log.debug("exchange", "asking %s for addresses failed: %r", peer_id(peer), error)
        finally:
            if stream is not None:
                await reset_quietly(stream)

    async def _answer_addresses(self, stream: INetStream) -> None:
        peer = public_key_of(stream.muxed_conn.peer_id)
        assert peer is not None, "only members are admitted"
        try:
            if not self.gate.pays(peer, EXCHANGE_SIZE_MAX, time.time()):
                return
            with trio.fail_after(OPEN_TIMEOUT_S):
                for _, addresses in decode_entries(await FrameReader(stream, EXCHANGE_SIZE_MAX, self._limits).frame()):
                    self.book.add_told(peer, addresses, by_itself=True)
                entries = self.book.sample(peer)
                await _write_frame(stream, encode_entries(entries))
                await stream.close()
        except (InvalidEncoding, FrameTooLarge) as error:
            self.blame(peer, BLAME_MALFORMED, str(error))
        except Exception as error:
            log.debug("answer", "telling %s addresses failed: %r", peer_id(peer), error)
        finally:
            await reset_quietly(stream)


async def _write_frame(stream: Any, data: bytes) -> None:
    await stream.write(len(data).to_bytes(LENGTH_SIZE, "big") + data)


def _check_free(listen: str) -> None:
    """libp2p listens beside another process on one port without a word; find out before."""
    address = Multiaddr(listen)
    names = [protocol.name for protocol in address.protocols()]
    if len(names) != 2 or names[0] not in ("ip4", "ip6") or names[1] != "tcp":
        raise ListenError(f"{listen} is not of the form /ip4/…/tcp/…")
    host, port = str(address.value_for_protocol(names[0])), int(str(address.value_for_protocol("tcp")))
    with socket.socket(socket.AF_INET if names[0] == "ip4" else socket.AF_INET6) as probe:
        try:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
        except OSError as error:
            reason = "the port is in use" if error.errno == errno.EADDRINUSE else error.strerror
            raise ListenError(f"cannot listen on {listen}: {reason}") from None
