"""The mesh: gossipsub 1.1's choice of neighbours, without anything that a neighbour could fill, and by our own ids.

Libp2p's cache knows a message by author and counter, whatever ids are configured, so that IHAVE and IWANT never match
others. Keeping, offering and giving recent messages is done here therefore.
"""

import trio
from libp2p.custom_types import TProtocol
from libp2p.peer.id import ID
from libp2p.pubsub.gossipsub import PROTOCOL_ID_V11, GossipSub
from libp2p.pubsub.pb import rpc_pb2

from fedchain.network.admission import Gate
from fedchain.network.libp2p.bounds import ID_SIZE, BoundedQueue, Judged, RecentMessages
from fedchain.network.libp2p.identity import public_key_of
from fedchain.network.libp2p.log import log
from fedchain.network.limits import Limits

FLOOD_SIZE_MAX = 2**15
"""Bytes of an own message that is sent to all neighbours at once."""

IHAVE_IDS_MAX = 1_000
IWANT_IDS_MAX = 128
CONTROLS_MAX = 8
"""Entries of one kind in a control message that are looked at."""


class GuardedRouter(GossipSub):
    """Gossipsub that keeps nothing about topics which are not ours.

    Args:
        topic: the only topic there is.
        gate: budgets for the questions of neighbours.
        judged: the verdicts on earlier messages.
        limits: of numbers and sizes.
    """

    def __init__(self, topic: str, *, gate: Gate, judged: Judged, limits: Limits) -> None:
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
        self.mcache: RecentMessages = RecentMessages(3, 5)
        self._topic, self._gate, self._judged = topic, gate, judged

    async def heartbeat(self) -> None:
        """Keep the mesh, whatever happens in one beat."""
        while True:
            try:
                await super().heartbeat()
            except Exception as error:
                log.warning("gossip heartbeat failed: %r", error)
                await trio.sleep(self.heartbeat_interval)

    async def publish(self, msg_forwarder: ID, pubsub_msg: rpc_pb2.Message) -> None:
        """Pass a message on to the mesh; a small one of our own goes to all neighbours, lest the mesh hold it up."""
        self.mcache.put(pubsub_msg)
        rpc, pubsub = rpc_pb2.RPC(publish=[pubsub_msg]), self.pubsub
        receivers = set(self._get_peers_to_send(pubsub_msg.topicIDs, msg_forwarder, msg_forwarder))
        if pubsub is not None and msg_forwarder == pubsub.my_id and len(pubsub_msg.data) <= FLOOD_SIZE_MAX:
            receivers |= pubsub.peer_topics.get(self._topic, set())
        for peer in receivers:
            self._push(peer, rpc)

    async def send_recent_messages(self, peer_id: ID, topic: str) -> None:
        """Give a new neighbour the recent messages, behind the frames that wait for it already.

        They are an answer to its subscription, which it may take back and send again as often as it likes.
        """
        peer, now_s = public_key_of(peer_id), trio.current_time()
        assert peer is not None, "only members are admitted"
        for message_id in self.mcache.window(topic):
            if not self._gate.may_ask(peer, now_s):
                return
            message = self.mcache.get(message_id)
            if message is not None and self._push(peer_id, rpc_pb2.RPC(publish=[message])):
                self._gate.charge(peer, bytes_out=len(message.data), now_s=now_s)

    def forget(self, peer: ID) -> None:
        """Drop all that is kept of a peer that may connect no more. The library keeps most of it for ever."""
        self.remove_peer(peer)
        for until_s in self.back_off.values():
            until_s.pop(peer, None)
        self._judged.forget(peer)

    def waiting_max(self) -> int:
        """Frames in the longest queue of a mesh neighbour."""
        queues: dict[ID, BoundedQueue] = self.pubsub.peer_queues if self.pubsub is not None else {}  # type: ignore[assignment]
        return max((len(queues[peer]) for peer in self.mesh.get(self._topic, ()) if peer in queues), default=0)

    # control messages

    async def handle_rpc(self, rpc: rpc_pb2.RPC, sender_peer_id: ID) -> None:
        """Give the library the part of a control message that is about our topic, without the rest."""
        if public_key_of(sender_peer_id) not in self._gate.members:  # any more: it is forgotten
            return
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

    async def handle_ihave(self, ihave_msg: rpc_pb2.ControlIHave, sender_peer_id: ID) -> None:
        """Ask a neighbour for messages that it has and that we would judge; for the rest after the next heartbeat."""
        wanted = [
            message_id
            for message_id in ihave_msg.messageIDs
            if len(message_id) == ID_SIZE and self._judged.may_judge(message_id, sender_peer_id)
        ]
        if wanted:
            await self.emit_iwant(wanted[:IWANT_IDS_MAX], sender_peer_id)

    async def handle_iwant(self, iwant_msg: rpc_pb2.ControlIWant, sender_peer_id: ID) -> None:
        """Give a neighbour the recent messages that it asks for, each once: the library copies as many as are named."""
        peer, now_s = public_key_of(sender_peer_id), trio.current_time()
        assert peer is not None, "only members are admitted"
        for message_id in iwant_msg.messageIDs:
            message = self.mcache.get(message_id)
            if message is None or sender_peer_id in self.mcache.given[message_id]:
                continue
            if not self._gate.may_ask(peer, now_s):
                return
            if self._push(sender_peer_id, rpc_pb2.RPC(publish=[message])):
                self._gate.charge(peer, bytes_out=len(message.data), now_s=now_s)
                self.mcache.given[message_id].add(sender_peer_id)

    async def emit_control_message(self, control_msg: rpc_pb2.ControlMessage, to_peer: ID) -> None:
        """As the library's, without a signed record of our addresses: those are exchanged elsewhere."""
        self.send_rpc(to_peer, rpc_pb2.RPC(control=control_msg), priority=True)

    # back-off, on a clock that nobody sets: the library's goes by the time of day

    def _add_back_off(self, peer: ID, topic: str, is_unsubscribe: bool, backoff_duration: int = 0) -> None:
        pause_s = backoff_duration or (self.unsubscribe_back_off if is_unsubscribe else self.prune_back_off)
        until_s = self.back_off.setdefault(topic, {})
        until_s[peer] = max(until_s.get(peer, 0), int(trio.current_time()) + pause_s)

    def _check_back_off(self, peer: ID, topic: str) -> bool:
        until_s = self.back_off.get(topic, {})
        if until_s.get(peer, 0) > int(trio.current_time()):
            return True
        until_s.pop(peer, None)
        return False

    def _check_graft_flood_protection(self, peer_id: ID, topic: str) -> bool:
        """Never a flood: honest neighbours were found guilty of it in every large network."""
        return True

    def _push(self, peer: ID, rpc: rpc_pb2.RPC) -> bool:
        """Let a frame wait for a neighbour; False: it is dropped."""
        queue = self.pubsub.peer_queues.get(peer) if self.pubsub is not None else None
        if queue is None or queue.push(rpc):
            return queue is not None
        log.info("gossip for %s was dropped: too much is waiting", peer)
        return False
