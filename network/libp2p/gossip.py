"""Gossip: libp2p's gossipsub 1.1 for the mesh, with reading, checking and forwarding of our own.

What a peer's bytes reach first is here: a frame is bounded, charged to the peer's budget, parsed, stripped of all
that this protocol does not use, and only then given to the library. Decision 10 says what is replaced and why.
"""

import time
from collections.abc import Callable
from typing import Any

import trio
from google.protobuf.message import DecodeError
from libp2p.abc import IHost, INetStream
from libp2p.custom_types import TProtocol
from libp2p.network.exceptions import SwarmException
from libp2p.peer.id import ID
from libp2p.pubsub.gossipsub import PROTOCOL_ID_V11, GossipSub
from libp2p.pubsub.pb import rpc_pb2
from libp2p.pubsub.pubsub import Pubsub
from libp2p.pubsub.utils import safe_bytes_from_hex
from libp2p.pubsub.validators import PUBSUB_SIGNING_PREFIX
from libp2p.utils import encode_varint_prefixed

from fedchain.crypto.keys import PublicKey, is_valid_signature
from fedchain.network.admission import Gate
from fedchain.network.libp2p.bounds import RPC_SIZE_MAX, BoundedCache, BoundedQueue, SeenIds
from fedchain.network.libp2p.identity import public_key_of
from fedchain.network.libp2p.log import log
from fedchain.network.libp2p.messenger import Blame, Hearing
from fedchain.network.libp2p.streams import BATCH_SIZE, FrameReader, FrameTooLarge, NewestStream
from fedchain.network.libp2p.swarm import reset_quietly
from fedchain.network.limits import BLAME_MALFORMED, BLAME_REJECTED, Limits
from fedchain.network.verdict import Verdict

FLOOD_SIZE_MAX = 2**15
"""Bytes of an own message that is sent to all neighbours at once."""

IHAVE_IDS_MAX = 1_000
IWANT_IDS_MAX = 128
CONTROLS_MAX = 8
"""Entries of one kind in a control message that are looked at."""

MESSAGES_MAX = 1_024
"""Messages in one frame; there is room for half a million empty ones, which take sixty times that in memory."""

SEQUENCE_SIZE = 8

Judge = Callable[[PublicKey, bytes], Verdict]
"""Called with the peer that passed a message on and the message's bytes."""


class GuardedRouter(GossipSub):
    """Gossipsub that keeps nothing about topics which are not ours."""

    def __init__(self, topic: str, limits: Limits) -> None:
        degree = limits.gossip_degree
        super().__init__(
            protocols=[TProtocol(PROTOCOL_ID_V11)],
            degree=degree,
            degree_low=max(1, degree - 1),
            degree_high=degree + 1,
            time_to_live=60,
            gossip_window=3,
            gossip_history=5,
            heartbeat_initial_delay=0.1,
            heartbeat_interval=1,
            do_px=False,
            adaptive_gossip_enabled=False,
            spam_protection_enabled=False,
            eclipse_protection_enabled=False,
        )
        self.graft_flood_threshold = 0.0
        self.mcache: BoundedCache = BoundedCache(3, 5)
        self._topic = topic

    async def heartbeat(self) -> None:
        """Keep the mesh, whatever happens in one beat."""
        while True:
            try:
                await super().heartbeat()
            except Exception as error:
                log.warning("heartbeat", "gossip heartbeat failed: %r", error)
                await trio.sleep(self.heartbeat_interval)

    async def handle_rpc(self, rpc: rpc_pb2.RPC, sender_peer_id: ID) -> None:
        """Give the library the part of a control message that is about our topic, without the rest."""
        given, kept = rpc.control, rpc_pb2.RPC()
        control = kept.control
        for ihave in given.ihave[:CONTROLS_MAX]:
            if ihave.topicID == self._topic:
                control.ihave.add(topicID=self._topic, messageIDs=ihave.messageIDs[:IHAVE_IDS_MAX])
        for iwant in given.iwant[:CONTROLS_MAX]:
            control.iwant.add(messageIDs=iwant.messageIDs[:IWANT_IDS_MAX])
        if any(graft.topicID == self._topic for graft in given.graft[:CONTROLS_MAX]):
            control.graft.add(topicID=self._topic)
        for prune in given.prune[:CONTROLS_MAX]:
            if prune.topicID == self._topic:
                control.prune.add(topicID=self._topic, backoff=min(prune.backoff, self.prune_back_off))
        await super().handle_rpc(kept, sender_peer_id)

    async def handle_iwant(self, iwant_msg: rpc_pb2.ControlIWant, sender_peer_id: ID) -> None:
        """Give a neighbour the recent messages that it asks for, each once: the library copies as many as are named."""
        for message_id in filter(None, map(safe_bytes_from_hex, iwant_msg.messageIDs)):
            message = self.mcache.get(message_id)
            if message is None or sender_peer_id in self.mcache.given[message_id]:
                continue
            if self._push(sender_peer_id, rpc_pb2.RPC(publish=[message])):
                self.mcache.given[message_id].add(sender_peer_id)

    async def publish(self, msg_forwarder: ID, pubsub_msg: rpc_pb2.Message) -> None:
        """Pass a message on to the mesh; a small one of our own goes to all neighbours, lest the mesh hold it up."""
        self.mcache.put(pubsub_msg)
        rpc, pubsub = rpc_pb2.RPC(publish=[pubsub_msg]), self.pubsub
        receivers = set(self._get_peers_to_send(pubsub_msg.topicIDs, msg_forwarder, ID(pubsub_msg.from_id)))
        if pubsub is not None and msg_forwarder == pubsub.my_id and len(pubsub_msg.data) <= FLOOD_SIZE_MAX:
            receivers |= pubsub.peer_topics.get(self._topic, set())
        for peer in receivers:
            self._push(peer, rpc)

    async def send_recent_messages(self, peer_id: ID, topic: str) -> None:
        """Give a new neighbour what was said lately, behind what waits for it already."""
        for message_id in self.mcache.window(topic):
            if (message := self.mcache.get(message_id)) is not None:
                self._push(peer_id, rpc_pb2.RPC(publish=[message]))

    def waiting_max(self) -> int:
        """Frames in the longest queue of a mesh neighbour."""
        queues: dict[ID, Any] = self.pubsub.peer_queues if self.pubsub is not None else {}
        return max((len(queues[peer]) for peer in self.mesh.get(self._topic, ()) if peer in queues), default=0)

    def _push(self, peer: ID, rpc: rpc_pb2.RPC) -> bool:
        """Let a frame wait for a neighbour; False: it is dropped."""
        queue = self.pubsub.peer_queues.get(peer) if self.pubsub is not None else None
        if queue is None or queue.push(rpc):
            return queue is not None
        log.info("queue", "gossip for %s was dropped: too much is waiting", peer)
        return False


class GuardedPubsub(Pubsub):
    """Pubsub on one topic that survives its peers.

    Args:
        host: where the streams come from.
        router: the mesh.
        topic: the only topic there is.
        gate: members and their budgets.
        hearing: when each peer was heard last.
        judge: says what to do with a message.
        blame: holds something against a peer.
        limits: of sizes and times.
    """

    def __init__(
        self,
        host: IHost,
        router: GuardedRouter,
        topic: str,
        *,
        gate: Gate,
        hearing: Hearing,
        judge: Judge,
        blame: Blame,
        limits: Limits,
    ) -> None:
        super().__init__(
            host,
            router,
            strict_signing=True,
            max_subscriptions_per_rpc=CONTROLS_MAX,
            max_subscriptions_per_peer=CONTROLS_MAX,
            max_inbound_rpc_size=RPC_SIZE_MAX,
            allowed_topics=frozenset({topic}),
        )
        self.seen_messages.stop()
        self.seen_messages = SeenIds()  # type: ignore[assignment]
        self.counter = time.time_ns()  # seconds would repeat ids after a restart, and the network stay deaf to us
        self._topic, self._gate, self._judge, self._blame, self._limits = topic, gate, judge, blame, limits
        self._hearing, self._newest = hearing, NewestStream()

    async def stream_handler(self, stream: INetStream) -> None:
        """Read a neighbour's gossip until its stream ends; nothing that it sends can raise."""
        peer_id = stream.muxed_conn.peer_id
        try:
            with self._newest.of(peer_id):
                await self.continuously_read_stream(stream)
        except (FrameTooLarge, DecodeError) as error:
            self._accuse(peer_id, BLAME_MALFORMED, f"malformed gossip: {error}")
        except Exception as error:
            log.debug("gossip", "gossip from %s ended: %r", peer_id, error)
        finally:
            await reset_quietly(stream)

    async def continuously_read_stream(self, stream: INetStream) -> None:
        """Take frame after frame."""
        peer_id = stream.muxed_conn.peer_id
        peer = public_key_of(peer_id)
        assert peer is not None, "only members are admitted"
        reader = FrameReader(stream, RPC_SIZE_MAX, self._limits, lambda: self._hearing.note(peer))
        await reader.open()
        while self.manager.is_running:
            frame = await reader.varint_frame()
            if self._gate.pays(peer, time.time()):
                rpc = rpc_pb2.RPC()
                rpc.ParseFromString(frame)
                if len(rpc.publish) > MESSAGES_MAX:
                    raise FrameTooLarge(f"{len(rpc.publish)} messages in a frame, at most {MESSAGES_MAX} are allowed")
                await self._on_frame(peer_id, peer, rpc)
            elif not self._gate.admits(peer, time.time()):
                self._accuse(peer_id, 0.0, "over its budget")
                return
            await trio.sleep(self._gate.pause_s(peer, len(frame), time.time()))

    async def _on_frame(self, peer_id: ID, peer: PublicKey, rpc: rpc_pb2.RPC) -> None:
        for subscription in rpc.subscriptions[:CONTROLS_MAX]:
            if subscription.topicid == self._topic:
                self.handle_subscription(peer_id, subscription)
        for place, message in enumerate(rpc.publish):
            # The frame has paid for its first message.
            if place == 0 or self._gate.pays(peer, time.time()):
                await self.push_msg(peer_id, message)
            elif not self._gate.admits(peer, time.time()):
                self._accuse(peer_id, 0.0, "over its budget")
                return
            await trio.lowlevel.checkpoint()
        if rpc.HasField("control"):
            await self.router.handle_rpc(rpc, peer_id)

    async def push_msg(self, msg_forwarder: ID, msg: rpc_pb2.Message) -> None:
        """Check a message, ours or a neighbour's, and pass it on if it is good."""
        message_id = msg.from_id + msg.seqno
        if msg_forwarder == self.my_id:
            self.seen_messages.add(message_id)
            await self.router.publish(msg_forwarder, msg)
            return
        peer = public_key_of(msg_forwarder)
        if peer is None or list(msg.topicIDs) != [self._topic] or self.seen_messages.has(message_id):
            return
        if fault := self._fault(msg):
            self._accuse(msg_forwarder, BLAME_REJECTED, fault)
            return
        self.seen_messages.add(message_id)
        if ID(msg.from_id) == self.my_id:  # ours, from before a restart
            return
        verdict = self._judge(peer, msg.data)
        if verdict is Verdict.REJECT:
            self._accuse(msg_forwarder, BLAME_REJECTED, "rejected gossip")
        elif verdict is Verdict.ACCEPT:
            # A copy of what was signed: unknown fields travel in a parsed message and would be passed on.
            copy = _signed_part(msg)
            copy.signature, copy.key = msg.signature, msg.key
            await self.router.publish(msg_forwarder, copy)

    def _fault(self, msg: rpc_pb2.Message) -> str | None:
        """What is wrong with a message that no honest neighbour passes on; None if nothing is."""
        if len(msg.data) > self._limits.gossip_size_max:
            return f"gossip of {len(msg.data)} bytes, at most {self._limits.gossip_size_max} are allowed"
        if len(msg.seqno) != SEQUENCE_SIZE:
            return f"a sequence number of {len(msg.seqno)} bytes, {SEQUENCE_SIZE} are expected"
        origin = public_key_of(ID(msg.from_id))
        if origin is None or origin not in self._gate.members:
            return "gossip of a stranger"
        if msg.key and msg.key != msg.from_id[2:]:  # behind the multihash's two bytes
            return "gossip with a foreign key"
        signed = PUBSUB_SIGNING_PREFIX.encode() + _signed_part(msg).SerializeToString()
        return None if is_valid_signature(origin, msg.signature, signed) else "gossip with a wrong signature"

    async def _handle_new_peer(self, peer_id: ID) -> None:
        """Open our stream to a new neighbour. As the library's, with a bounded queue and no records to verify."""
        if peer_id in self.peers:
            return
        stream = None
        try:
            stream = await self.host.new_stream(peer_id, self.protocols)
            hello = rpc_pb2.RPC()
            for topic in self.topic_ids:
                hello.subscriptions.add(subscribe=True, topicid=topic)
            await stream.write(encode_varint_prefixed(hello.SerializeToString()))
            self.router.add_peer(peer_id, stream.get_protocol())
        except Exception as error:
            if stream is not None:
                await reset_quietly(stream)
            raise SwarmException(f"no gossip stream to {peer_id}") from error  # the one that is tried again
        self.peers[peer_id] = stream
        queue = self.peer_queues[peer_id] = BoundedQueue()
        self.manager.run_task(self.handle_sending_messages, peer_id, stream, queue)
        await self._send_recent_messages_to_new_peer(peer_id)
        if peer_id in self.peer_topics.get(self._topic, ()):
            await self.router.on_peer_subscribed(peer_id, self._topic)

    async def handle_sending_messages(self, peer_id: ID, stream: INetStream, queue: BoundedQueue) -> None:  # type: ignore[override]
        """Write what waits for a neighbour, many frames at once in a burst, until its queue is closed."""
        try:
            while (rpc := await queue.pop()) is not None:
                data = bytearray(encode_varint_prefixed(rpc.SerializeToString()))
                while len(data) < BATCH_SIZE and (rpc := queue.pop_now()) is not None:
                    data += encode_varint_prefixed(rpc.SerializeToString())
                await stream.write(bytes(data))
        except Exception as error:
            log.debug("gossip out", "gossip to %s ended: %r", peer_id, error)
            self._handle_dead_peer(peer_id)

    def on_connection_closed(self, muxed: Any) -> None:
        """Open a neighbour's stream anew where it was on a connection that closed, and another one is left."""
        stream = self.peers.get(muxed.peer_id)
        if stream is not None and stream.muxed_conn is muxed:
            self._handle_dead_peer(muxed.peer_id)

    def _handle_dead_peer(self, peer_id: ID) -> None:
        """Forget a neighbour whose stream broke, and the stream.

        As long as the neighbour is connected, what it subscribed to holds: it said so on a stream of its own, which
        did not break, and will not say it again.
        """
        stream, subscribed = self.peers.get(peer_id), peer_id in self.peer_topics.get(self._topic, ())
        try:
            super()._handle_dead_peer(peer_id)
            if stream is not None and self.manager.is_running:
                self.manager.run_task(reset_quietly, stream)
            if subscribed and self._peer_is_connected(peer_id):
                self.handle_subscription(peer_id, rpc_pb2.RPC.SubOpts(subscribe=True, topicid=self._topic))
        except Exception as error:
            log.debug("dead", "forgetting %s failed: %r", peer_id, error)

    def _accuse(self, peer_id: ID, amount: float, reason: str) -> None:
        peer = public_key_of(peer_id)
        if peer is not None:
            self._blame(peer, amount, reason)


def _signed_part(msg: rpc_pb2.Message) -> rpc_pb2.Message:
    return rpc_pb2.Message(data=msg.data, topicIDs=msg.topicIDs, from_id=msg.from_id, seqno=msg.seqno)
