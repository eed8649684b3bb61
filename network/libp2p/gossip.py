"""Gossip: the first stop of a neighbour's bytes, before the mesh and before messages are judged.

A frame is bounded, charged to the neighbour's budget, parsed, and stripped of all that this protocol does not use.
A message has neither author nor counter nor signature on this level (gossipsub's policy StrictNoSign): its content is
signed by its author already, and a neighbour that passes it on vouches for nothing. Decision 10 lists the parts of
libp2p that are replaced.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import trio
from google.protobuf.message import DecodeError
from libp2p.abc import IHost, INetStream
from libp2p.network.exceptions import SwarmException
from libp2p.peer.id import ID
from libp2p.pubsub.pb import rpc_pb2
from libp2p.pubsub.pubsub import Pubsub
from libp2p.utils import encode_varint_prefixed

from fedchain.chain.exceptions import InvalidEncoding
from fedchain.crypto.keys import PublicKey
from fedchain.network.libp2p.bounds import RPC_SIZE_MAX, BoundedQueue, Judged, message_id
from fedchain.network.libp2p.identity import public_key_of
from fedchain.network.libp2p.log import log
from fedchain.network.libp2p.mesh import CONTROLS_MAX, GuardedRouter
from fedchain.network.libp2p.muxer import reset_quietly
from fedchain.network.libp2p.oversight import Oversight
from fedchain.network.libp2p.streams import BATCH_SIZE, FrameReader, FrameTooLarge, NewestStream
from fedchain.network.limits import BLAME_MALFORMED
from fedchain.network.verdict import Verdict

MESSAGES_MAX = 1_024
"""Messages in one frame; there is room for half a million empty ones, which take sixty times that in memory."""

UNUSED_FIELDS = ("from_id", "seqno", "signature", "key")
"""Fields with which other gossip networks name and sign a message's author."""

Judge = Callable[[PublicKey, bytes], Verdict]
"""Called with the peer that passed a message on and the message's bytes; raises InvalidEncoding."""


class GuardedPubsub(Pubsub):
    """Pubsub on one topic that survives its peers.

    Args:
        host: where the streams come from.
        router: the mesh.
        topic: the only topic there is.
        oversight: of members.
        judged: the verdicts on earlier messages.
        judge: returns the verdict on a message.
    """

    def __init__(
        self,
        host: IHost,
        router: GuardedRouter,
        topic: str,
        oversight: Oversight,
        *,
        judged: Judged,
        judge: Judge,
    ) -> None:
        super().__init__(
            host,
            router,
            strict_signing=False,
            msg_id_constructor=lambda message: message_id(message.data),
            max_subscriptions_per_rpc=CONTROLS_MAX,
            max_subscriptions_per_peer=CONTROLS_MAX,
            max_inbound_rpc_size=RPC_SIZE_MAX,
            allowed_topics=frozenset({topic}),
        )
        self.seen_messages.stop()  # it has a thread, and no bound
        self.judged = judged
        self._topic, self._oversight, self._judge, self._newest = topic, oversight, judge, NewestStream()
        self._gate, self._limits, self._blame = oversight.gate, oversight.limits, oversight.blame

    async def stream_handler(self, stream: INetStream) -> None:
        """Read a neighbour's gossip until its stream ends; nothing that it sends can raise."""
        peer_id = stream.muxed_conn.peer_id
        try:
            with self._newest.of(peer_id):
                await self.continuously_read_stream(stream)
        except (FrameTooLarge, DecodeError) as error:
            self._accuse(peer_id, BLAME_MALFORMED, f"malformed gossip: {error}")
        except Exception as error:
            log.debug("gossip from %s ended: %r", peer_id, error)
        finally:
            await reset_quietly(stream)

    async def continuously_read_stream(self, stream: INetStream) -> None:
        """Take frame after frame."""
        peer_id = stream.muxed_conn.peer_id
        peer = public_key_of(peer_id)
        assert peer is not None, "only members are admitted"
        reader = FrameReader(stream, RPC_SIZE_MAX, self._limits, partial(self._oversight.note, peer))
        await reader.open()
        await self._oversight.rest(peer)  # its last stream may have owed a wait
        while self.manager.is_running:
            frame = await reader.varint_frame()
            if self._gate.pays(peer, trio.current_time()):
                await self._on_frame(peer_id, peer, frame)
            if not self._gate.admits(peer, trio.current_time()):
                self._accuse(peer_id, 0.0, "over its budget")
                return
            await self._oversight.rest(peer)

    async def _on_frame(self, peer_id: ID, peer: PublicKey, frame: bytes) -> None:
        """Take a frame that was paid for, and have its sender pay for the time that takes."""
        begun_s = time.perf_counter()
        rpc = rpc_pb2.RPC.FromString(frame)
        if len(rpc.publish) > MESSAGES_MAX:
            raise FrameTooLarge(f"{len(rpc.publish)} messages in a frame, at most {MESSAGES_MAX} are allowed")
        for subscription in rpc.subscriptions[:CONTROLS_MAX]:
            if subscription.topicid == self._topic:
                self.handle_subscription(peer_id, subscription)
        for place, message in enumerate(rpc.publish):
            # The frame has paid for its first message.
            is_new = False
            if place == 0 or self._gate.pays(peer, trio.current_time()):
                is_new = await self.push_msg(peer_id, message)
            elif not self._gate.admits(peer, trio.current_time()):
                return
            self._charge(peer, begun_s, is_new=is_new)
            await trio.lowlevel.checkpoint()  # others' time is not charged
            begun_s = time.perf_counter()
        if rpc.HasField("control"):
            await self.router.handle_rpc(rpc, peer_id)
        self._charge(peer, begun_s)

    def _charge(self, peer: PublicKey, begun_s: float, *, is_new: bool = False) -> None:
        self._gate.charge(peer, cpu_s=time.perf_counter() - begun_s, is_new=is_new, now_s=trio.current_time())

    async def publish(self, topic_id: str | list[str], data: bytes) -> None:
        """Spread a message of our own; published again, it is sent again, for peers that missed it."""
        self.judged.settle(message_id(data))
        await self.router.publish(self.my_id, rpc_pb2.Message(data=data, topicIDs=[self._topic]))

    async def push_msg(self, msg_forwarder: ID, msg: rpc_pb2.Message) -> bool:  # type: ignore[override]
        """Have a neighbour's message judged, unless it was, and pass it on if it is good; whether it was both."""
        peer = public_key_of(msg_forwarder)
        if peer is None or list(msg.topicIDs) != [self._topic]:
            return False
        if fault := self._fault(msg):
            self._accuse(msg_forwarder, BLAME_MALFORMED, fault)
            return False
        name = message_id(msg.data)
        if not self.judged.may_judge(name, msg_forwarder):
            return False
        try:
            verdict = self._judge(peer, msg.data)
        except InvalidEncoding as error:
            self.judged.settle(name)
            self._accuse(msg_forwarder, BLAME_MALFORMED, f"malformed gossip: {error}")
            return False
        if verdict is Verdict.IGNORE:
            self.judged.ignore(name, msg_forwarder)
            return False
        self.judged.settle(name)
        if verdict is not Verdict.ACCEPT:
            return False
        # A new message: unknown fields travel in a parsed one and would be passed on.
        await self.router.publish(msg_forwarder, rpc_pb2.Message(data=msg.data, topicIDs=[self._topic]))
        return True

    def _fault(self, msg: rpc_pb2.Message) -> str | None:
        """Return the fault for which no honest neighbour passes a message on; None if it has none."""
        if len(msg.data) > self._limits.gossip_size_max:
            return f"gossip of {len(msg.data)} bytes, at most {self._limits.gossip_size_max} are allowed"
        if used := [name for name in UNUSED_FIELDS if msg.HasField(name)]:  # type: ignore[arg-type]
            return f"gossip with {', '.join(used)}, none of which has a place in it"
        return None

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
        """Write the frames that wait for a neighbour, many at once in a burst, until its queue is closed."""
        try:
            while (rpc := await queue.pop()) is not None:
                data = bytearray(encode_varint_prefixed(rpc.SerializeToString()))
                while len(data) < BATCH_SIZE and (rpc := queue.pop_now()) is not None:
                    data += encode_varint_prefixed(rpc.SerializeToString())
                await stream.write(bytes(data))
        except Exception as error:
            log.debug("gossip to %s ended: %r", peer_id, error)
            self._handle_dead_peer(peer_id)

    def on_connection_closed(self, muxed: Any) -> None:
        """Open a neighbour's stream anew where it was on a connection that closed, and another one is left."""
        stream = self.peers.get(muxed.peer_id)
        if stream is not None and stream.muxed_conn is muxed:
            self._handle_dead_peer(muxed.peer_id)

    def _handle_dead_peer(self, peer_id: ID) -> None:
        """Forget a neighbour whose stream broke, and the stream.

        As long as the neighbour is connected, its subscription holds: it subscribed on a stream of its own, which did
        not break, and will not subscribe again.
        """
        stream, subscribed = self.peers.get(peer_id), peer_id in self.peer_topics.get(self._topic, ())
        try:
            super()._handle_dead_peer(peer_id)
            if stream is not None and self.manager.is_running:
                self.manager.run_task(reset_quietly, stream)
            if subscribed and self._peer_is_connected(peer_id):
                self.handle_subscription(peer_id, rpc_pb2.RPC.SubOpts(subscribe=True, topicid=self._topic))
        except Exception as error:
            log.debug("forgetting %s failed: %r", peer_id, error)

    def _accuse(self, peer_id: ID, amount: float, reason: str) -> None:
        peer = public_key_of(peer_id)
        if peer is not None:
            self._blame(peer, amount, reason)
