"""Gossipsub's containers with bounds: what waits for a peer, what was said lately, what was seen before."""

from collections import defaultdict

from libp2p.peer.id import ID
from libp2p.pubsub.mcache import MessageCache
from libp2p.pubsub.pb import rpc_pb2
from libp2p.pubsub.rpc_queue import RpcQueue

RPC_SIZE_MAX = 2**20
"""Bytes of one gossip frame, as in other implementations."""

SEEN_MAX = 2**16
"""Ids of messages remembered, so that each is taken once."""

CACHE_BYTES_MAX = 32 * 2**20
"""Bytes of recent messages kept for those who missed them."""

QUEUE_BYTES_MAX = 16 * 2**20
"""Bytes of gossip that wait for one peer."""

QUEUE_FRAMES_MAX = 1_024
"""Frames of gossip that wait for one peer."""


class BoundedQueue(RpcQueue):
    """A peer's outgoing gossip, bounded in bytes too; the library's holds 32 frames of any size."""

    def __init__(self) -> None:
        super().__init__(max_size=QUEUE_FRAMES_MAX, max_message_size=RPC_SIZE_MAX)
        self._bytes = 0

    def push(self, rpc: rpc_pb2.RPC, priority: bool = False) -> bool:
        """Add a frame; False: it does not fit."""
        size = rpc.ByteSize()
        if self._bytes + size > QUEUE_BYTES_MAX or not super().push(rpc, priority):
            return False
        self._bytes += size
        return True

    async def pop(self) -> rpc_pb2.RPC | None:
        """The next frame, once there is one; None at the end."""
        rpc = await super().pop()
        if rpc is not None:
            self._bytes -= rpc.ByteSize()
        return rpc

    def pop_now(self) -> rpc_pb2.RPC | None:
        """The next frame if there is one."""
        rpc = self._queue.pop()
        if rpc is not None:
            self._bytes -= rpc.ByteSize()
        return rpc


class BoundedCache(MessageCache):
    """Recent messages, bounded in bytes: what does not fit is passed on, but not kept."""

    def __init__(self, window_size: int, history_size: int) -> None:
        super().__init__(window_size, history_size)
        self._bytes = 0
        self.given: defaultdict[bytes, set[ID]] = defaultdict(set)
        """Neighbours that asked for a message and were sent it, by the message's id."""

    def put(self, msg: rpc_pb2.Message) -> None:
        """Keep a message."""
        if self._bytes + len(msg.data) <= CACHE_BYTES_MAX:
            self._bytes += len(msg.data)
            super().put(msg)

    def shift(self) -> None:
        """Forget the oldest."""
        super().shift()
        self._bytes = sum(len(msg.data) for msg in self.msgs.values())
        for forgotten in [message_id for message_id in self.given if message_id not in self.msgs]:
            del self.given[forgotten]


class SeenIds:
    """Message ids seen, oldest forgotten first. The library's own has a thread and no bound."""

    def __init__(self) -> None:
        self._ids: dict[bytes, None] = {}

    def has(self, message_id: bytes) -> bool:
        """Whether an id was seen."""
        return message_id in self._ids

    def add(self, message_id: bytes) -> bool:
        """Remember an id; False: it was known."""
        if message_id in self._ids:
            return False
        self._ids[message_id] = None
        if len(self._ids) > SEEN_MAX:
            del self._ids[next(iter(self._ids))]
        return True
