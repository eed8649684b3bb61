"""The real network: libp2p over TCP, gossip for messages to everybody, and a stream to each peer for the rest.

It runs on trio. Everything here is called from the loop's own thread, and the receiver is called from it too.
"""

import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
from libp2p.custom_types import TProtocol
from libp2p.peer.id import ID
from libp2p.tools.anyio_service import background_trio_service
from multiaddr import Multiaddr

from fedchain import __version__
from fedchain.chain.exceptions import InvalidEncoding
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.network.admission import Gate
from fedchain.network.bans import Ban
from fedchain.network.libp2p.addresses import AddressBook, check_announced, parse_bootstrap
from fedchain.network.libp2p.bounds import Judged
from fedchain.network.libp2p.finder import Finder
from fedchain.network.libp2p.gossip import GuardedPubsub
from fedchain.network.libp2p.identity import peer_id, public_key_of
from fedchain.network.libp2p.knocking import Answer, knock
from fedchain.network.libp2p.log import log, quieten_library
from fedchain.network.libp2p.mesh import GuardedRouter
from fedchain.network.libp2p.messenger import Counters, Messenger, is_answer
from fedchain.network.libp2p.muxer import close_quietly
from fedchain.network.libp2p.oversight import Hearing, Oversight
from fedchain.network.libp2p.publisher import Publisher
from fedchain.network.libp2p.saver import Saver
from fedchain.network.libp2p.streams import Outbox
from fedchain.network.libp2p.swarm import ConnectionWatch, build_host
from fedchain.network.limits import Limits
from fedchain.network.membership import Membership
from fedchain.network.messages import GossipMessage, Message, decode_message, encode_message
from fedchain.network.network import NONE_REPLACED, Flow, Receiver
from fedchain.network.ports import ListenError as ListenError  # part of this module's interface
from fedchain.network.ports import check_free
from fedchain.network.verdict import Verdict

SAVE_INTERVAL_S = 10.0
"""How often the known addresses are written down, if they have changed."""

DEFAULT_LISTEN = "/ip4/127.0.0.1/tcp/0"


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
    version: str = __version__,
) -> AsyncIterator["Libp2pNetwork"]:
    """Join the network of a chain for as long as the context lasts.

    Args:
        key: our own key.
        chain_id: 32 bytes; networks of different chains do not hear each other.
        members: public keys of all that may connect, until others are tracked.
        listen: where to listen, as a multiaddr; port 0 lets the system choose.
        bootstrap: members to start from, as multiaddrs that end with /p2p/ and a peer id; our own is left out, and
            a peer that is no member yet is dialled once it is.
        announce: addresses to tell others instead of the one we listen on.
        folder: where bans and known addresses are kept; None: nowhere.
        limits: of everything.
        version: our program's version, as it is sent to others; up to 32 printable ASCII characters.

    Raises:
        ListenError: the port is in use, the address is not ours, or one to announce is none.
        InvalidBootstrap: a bootstrap address is malformed.
    """
    quieten_library()
    starts = [parse_bootstrap(text, None) for text in bootstrap]
    check_free(listen)
    announced = list(announce)
    check_announced(announced)
    network = Libp2pNetwork(key, chain_id, members, limits or Limits(), folder, version)
    for peer, place in starts:
        network.book.add_fixed(peer, place)
    failure: Exception | None = None
    has_ended = False
    try:
        async with (
            network.host.run([Multiaddr(listen)]),
            background_trio_service(network.pubsub),
            background_trio_service(network.router),
            trio.open_nursery() as nursery,
        ):
            try:
                await network.start(nursery, announced)
                yield network
                has_ended = True
            except Exception as error:
                failure, has_ended = error, True  # raised below, without four groups around it
            finally:
                await network.stop()
                nursery.cancel_scope.cancel()
    except Exception as error:
        if not has_ended:
            raise
        log.debug("libp2p did not end quietly: %r", error)
    if failure is not None:
        raise failure


class Libp2pNetwork:
    """A peer's :class:`fedchain.network.network.Network` on real sockets."""

    def __init__(
        self,
        key: PrivateKey,
        chain_id: Hash,
        members: Collection[PublicKey],
        limits: Limits,
        folder: Path | None,
        version: str,
    ) -> None:
        self.counters = Counters()
        self._key = key
        self._membership = Membership(members)
        self._saver = Saver()
        now_s, save = trio.current_time(), self._saver.put
        self.gate = Gate(self._membership, limits, folder, wall=time.time, now_s=now_s, save=save)
        self.book = AddressBook(key.public_key, self._membership, limits, folder, save)
        self.host = build_host(key, self._admits, limits)
        self.host.pays = self._pays
        self._hearing = Hearing(self._membership)
        self.topic = f"/fedchain/{chain_id.hex()}/gossip/2"
        judged, oversight = Judged(), Oversight(self.gate, limits, self._hearing, self.blame)
        self.router = GuardedRouter(self.topic, gate=self.gate, judged=judged, limits=limits)
        self.pubsub = GuardedPubsub(
            self.host,
            self.router,
            self.topic,
            oversight,
            judged=judged,
            judge=self._judge,
        )
        self._messenger = Messenger(
            self.host,
            TProtocol(f"/fedchain/{chain_id.hex()}/messages/2"),
            oversight,
            counters=self.counters,
            receive=self._receive,
            disconnect=self.disconnect,
        )
        self._finder = Finder(
            self.host,
            TProtocol(f"/fedchain/{chain_id.hex()}/addresses/2"),
            oversight,
            book=self.book,
            peers=self.peers,
            version=version,
        )
        watch = ConnectionWatch(self._on_connected, self._on_disconnected, self.pubsub.on_connection_closed)
        self.host.swarm.register_notifee(watch)
        self._limits = limits
        self._receiver: Receiver = lambda peer, message: Verdict.IGNORE
        self._on_peer: Callable[[PublicKey, bool], None] = lambda peer, connected: None
        self._peers: dict[PublicKey, tuple[Outbox, trio.CancelScope]] = {}
        self._publisher = Publisher(self.pubsub, self.router, self.topic, limits, self.counters)
        self._nursery: trio.Nursery | None = None

    def attach(self, receiver: Receiver) -> None:
        """Hand every incoming message to ``receiver``."""
        self._receiver = receiver

    def track(
        self,
        height: int,
        members: Collection[PublicKey],
        replaced: Mapping[PublicKey, PublicKey] = NONE_REPLACED,
        guests: Collection[PublicKey] = (),
    ) -> None:
        """See :meth:`fedchain.network.network.Network.track`."""
        new, gone = self._membership.track(height, members)
        self._membership.guests = frozenset(guests)
        now_s = trio.current_time()
        self.gate.follow(replaced, now_s)
        for peer in replaced.values():
            if not self.gate.admits(peer, now_s):  # it may be connected already, as one that others vouch for
                self.disconnect(peer)
        for peer in new:
            self.book.adopt(peer)
        for peer in gone:
            log.info("%s is no member from height %d on", peer_id(peer), height)
            self.disconnect(peer)
            self.gate.forget(peer)
            self.book.forget(peer)
            self._hearing.forget(peer)
            self._finder.forget(peer)
            self.router.forget(peer_id(peer))

    def publish(self, message: GossipMessage) -> None:
        """Spread a message to every peer. A message larger than ``Limits.gossip_size_max`` is not sent."""
        if not self._put(message, lambda: self._publisher.put(encode_message(message))):
            self.counters.dropped += 1

    def send(self, peer: PublicKey, message: Message) -> None:
        """Send a message to a connected peer; nothing happens if it is not connected, or too much waits for it."""
        known = self._peers.get(peer)
        size = self._put(message, lambda: known[0].put(message)) if known is not None else 0
        if not size:
            self.counters.dropped += 1
        elif is_answer(message):
            self.gate.charge(peer, bytes_out=size, now_s=trio.current_time())

    def watch(self, on_peer: Callable[[PublicKey, bool], None]) -> None:
        """Call ``on_peer(peer, is_connected)`` for each peer that comes or goes, and now for those that are here."""
        self._on_peer = on_peer
        for peer in self.peers():
            self._tell(peer, True)

    def peers(self) -> list[PublicKey]:
        """Connected peers."""
        return list(self._peers)

    def welcome(self, answer: Answer) -> None:
        """Answer strangers that knock from now on; without this, they are turned away unheard."""
        self.host.swarm.welcome(answer)

    async def knock(self, member: PublicKey, place: str, said: bytes) -> bytes:
        """Say something to a member that does not let us in yet; returns its answer. Raises ConnectionError."""
        answer = await knock(self._key, member, place, said, self._limits)
        self.book.hurry(member)  # it may let us in now
        return answer

    def known_places(self) -> dict[PublicKey, list[str]]:
        """Addresses of members, our own included, as others can dial them."""
        return {self._key.public_key: self._finder.announced} | self.book.known()

    def listen_addresses(self) -> list[str]:
        """Where this peer can be reached, each with its peer id at the end."""
        return [str(address) for address in self.host.get_addrs()]

    def blame(self, peer: PublicKey, amount: float, reason: str) -> None:
        """Hold something against a peer; too much of it disconnects and bans it, for the last reason."""
        now_s = trio.current_time()
        if amount:
            self.counters.rejected += 1
            log.info("%s: %s", peer_id(peer), reason)
            self.gate.blame(peer, amount, reason, now_s)
        if not self.gate.admits(peer, now_s):
            if peer in self._membership:  # otherwise it ceased to be a member, and is banned from nothing
                log.warning("%s is banned for %.0f s: %s", peer_id(peer), self._limits.ban_s, reason)
            self.disconnect(peer)

    def bans(self) -> tuple[Ban, ...]:
        """The bans that hold now, the oldest first."""
        return self.gate.bans(trio.current_time())

    def pardon(self, peer: PublicKey) -> bool:
        """Lift a ban, and dial the peer at once; whether there was one."""
        was_banned = self.gate.pardon(peer, trio.current_time())
        if was_banned:
            self.book.hurry(peer)
        return was_banned

    def disconnect(self, peer: PublicKey) -> None:
        """End the connections to a peer now, and forget it, whatever becomes of them."""
        self.host.swarm.drop(peer_id(peer))
        self._on_disconnected(peer_id(peer))

    def silence_s(self, peer: PublicKey) -> float | None:
        """Seconds since a peer was last heard; None if it was never heard since the start.

        It is a duration because no other module reads the loop's clock, which begins at a random number.
        """
        last_s = self._hearing.last_s(peer)
        return None if last_s is None else trio.current_time() - last_s

    def version_of(self, peer: PublicKey) -> str | None:
        """The last version of its program that a peer sent; None if it has sent none yet."""
        return self._finder.versions.get(peer)

    def flow_of(self, peer: PublicKey) -> Flow | None:
        """The system's measurements of the connection to a peer; None if there is none, or the system does not tell."""
        connections: list[Any] = self.host.swarm.connections.get(peer_id(peer), [])
        return connections[0].muxed_conn.wire.flow() if connections else None

    async def start(self, nursery: trio.Nursery, announce: list[str]) -> None:
        """Begin to gossip, to dial and to publish; called once, when the host listens."""
        addresses = [str(address) for address in self.host.get_transport_addrs()]
        if not addresses:
            raise ListenError("the address to listen on cannot be used")
        self._finder.announced = announce or addresses
        await self.pubsub.wait_until_ready()
        await self.pubsub.subscribe(self.topic)
        self._nursery = nursery
        for peer in self.peers():  # connected while we were starting
            nursery.start_soon(self._serve, peer)
        nursery.start_soon(self._publisher.run)
        nursery.start_soon(self._finder.run)
        nursery.start_soon(self._saver.run)
        nursery.start_soon(self._save_addresses)

    async def stop(self) -> None:
        """Take and send nothing any more, and close what is open: libp2p would leave the sockets to themselves."""
        self._nursery = None
        self._receiver = lambda peer, message: Verdict.IGNORE
        self._on_peer = lambda peer, connected: None
        self.book.save()
        swarm = self.host.swarm
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._saver.write_all)
                for listener in swarm.listeners.values():
                    nursery.start_soon(close_quietly, listener)
                for connection in swarm.get_connections():
                    nursery.start_soon(connection.muxed_conn.leave)  # type: ignore[attr-defined]

    def _admits(self, peer: ID) -> bool:
        key = public_key_of(peer)
        return key is not None and peer != self.host.get_id() and self.gate.admits(key, trio.current_time())

    def _pays(self, peer: ID) -> bool:
        """Whether a peer may open another stream; it pays for each as for a message."""
        key = public_key_of(peer)
        if key is None or self.gate.pays(key, trio.current_time()):
            return key is not None
        self.blame(key, 0.0, "over its budget")
        return False

    def _on_connected(self, peer: ID) -> None:
        key = public_key_of(peer)
        if key is None or key in self._peers:
            return
        self._peers[key] = Outbox(self._limits), trio.CancelScope()
        self._hearing.note(key)
        self.book.on_connected(key)
        log.debug("%s is connected", peer)
        if self._nursery is not None:
            self._nursery.start_soon(self._serve, key)
        self._tell(key, True)

    def _on_disconnected(self, peer: ID) -> None:
        key = public_key_of(peer)
        if key is None or key not in self._peers:
            return
        _, scope = self._peers.pop(key)
        scope.cancel()
        self.book.on_disconnected(key, trio.current_time())
        log.debug("%s is gone", peer)
        self._tell(key, False)

    def _tell(self, peer: PublicKey, is_connected: bool) -> None:
        try:
            self._on_peer(peer, is_connected)
        except Exception:  # a fault of ours; connections go on
            log.exception("the coming or going of %s could not be handled", peer_id(peer))

    async def _serve(self, peer: PublicKey) -> None:
        if (known := self._peers.get(peer)) is not None:
            outbox, scope = known
            with scope:
                await self._messenger.serve(peer, outbox)

    async def _save_addresses(self) -> None:
        """Keep the saved addresses up to date; seconds are lost if the process is killed."""
        while True:
            await trio.sleep(SAVE_INTERVAL_S)
            self.book.save()

    def _judge(self, peer: PublicKey, data: bytes) -> Verdict:
        """Return the verdict on gossip; raises InvalidEncoding if the message is no gossip."""
        message = decode_message(data)
        if not isinstance(message, GossipMessage):
            raise InvalidEncoding("gossip", f"a {type(message).__name__} found, which goes from one peer to another")
        return self._receive(peer, message, len(data))

    def _receive(self, peer: PublicKey, message: Message, size: int) -> Verdict:
        self.counters.messages_in += 1
        self.counters.bytes_in += size
        try:
            return self._receiver(peer, message)
        except Exception:
            # A fault of ours, which a message of a peer's must not turn into the end of the process.
            log.exception("a message of %s could not be handled", peer_id(peer))
            return Verdict.IGNORE

    @staticmethod
    def _put(message: Message, put: Callable[[], int]) -> int:
        """The result of ``put``; 0 if the message cannot be written, so that it is lost as others may be."""
        try:
            return put()
        except Exception:
            # A fault of ours, as above: what a peer said may be what the message is about.
            log.exception("a %s could not be sent", type(message).__name__)
            return 0
