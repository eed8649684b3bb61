"""Gossipsub's containers with bounds: frames that wait for a peer, recent messages, and verdicts on earlier ones.

A message is identified by its content, so that nobody can have it judged or passed on twice under two names.
"""

from collections import OrderedDict, defaultdict

from libp2p.peer.id import ID
from libp2p.pubsub.mcache import CacheEntry, MessageCache
from libp2p.pubsub.pb import rpc_pb2
from libp2p.pubsub.rpc_queue import RpcQueue

from fedchain.crypto.hashing import sha256

ID_DOMAIN = b"fedchain/gossip/2"
ID_SIZE = 20
"""Bytes of a message's id."""

RPC_SIZE_MAX = 2**20
"""Bytes of one gossip frame, as in other implementations."""

SETTLED_MAX = 2**16
"""Ids of accepted and rejected messages that are remembered, so that each is judged once."""

IGNORED_MAX = 2**14
"""Ids of ignored messages that are remembered, to bound how often each is judged again."""

JUDGEMENTS_MAX = 4
"""How often one neighbour may have one message judged."""

CACHE_BYTES_MAX = 32 * 2**20
"""Bytes of recent messages kept for neighbours that missed them."""

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


def message_id(data: bytes) -> bytes:
    """The id of a message: 20 bytes."""
    return sha256(ID_DOMAIN + data)[:ID_SIZE]


class RecentMessages(MessageCache):
    """Recent messages by id, bounded in bytes: a message that does not fit is passed on, but not kept."""

    def __init__(self, window_size: int, history_size: int) -> None:
        super().__init__(window_size, history_size)
        self._bytes = 0
        self.given: defaultdict[bytes, set[ID]] = defaultdict(set)
        """Neighbours that asked for a message and were sent it, by the message's id."""

    def put(self, msg: rpc_pb2.Message) -> None:
        """Keep a message."""
        name = message_id(msg.data)
        if name not in self.msgs and self._bytes + len(msg.data) <= CACHE_BYTES_MAX:
            self._bytes += len(msg.data)
            self.msgs[name] = msg
            self.history[0].append(CacheEntry(name, msg.topicIDs))

    def shift(self) -> None:
        """Forget the oldest."""
        super().shift()
        self._bytes = sum(len(msg.data) for msg in self.msgs.values())
        for forgotten in [name for name in self.given if name not in self.msgs]:
            del self.given[forgotten]


class Judged:
    """Verdicts on messages, by id; the least recently seen are forgotten first.

    A message that was accepted or rejected is settled. One that was ignored may be good another time, so it is judged
    again, but not as often as a neighbour likes to repeat it.
    """

    def __init__(self) -> None:
        self._settled: OrderedDict[bytes, None] = OrderedDict()
        self._ignored: OrderedDict[bytes, dict[ID, int]] = OrderedDict()

    def may_judge(self, name: bytes, neighbour: ID) -> bool:
        """Whether a message of that id is worth to be judged if it comes from ``neighbour``."""
        if name in self._settled:
            return False
        return self._ignored.get(name, {}).get(neighbour, 0) < JUDGEMENTS_MAX

    def settle(self, name: bytes) -> None:
        """A message was accepted or rejected, or is our own."""
        self._ignored.pop(name, None)
        self._settled[name] = None
        self._settled.move_to_end(name)
        if len(self._settled) > SETTLED_MAX:
            self._settled.popitem(last=False)

    def ignore(self, name: bytes, neighbour: ID) -> None:
        """A message that ``neighbour`` sent was ignored."""
        counts = self._ignored.setdefault(name, {})
        counts[neighbour] = counts.get(neighbour, 0) + 1
        self._ignored.move_to_end(name)
        if len(self._ignored) > IGNORED_MAX:
            self._ignored.popitem(last=False)

    def forget(self, neighbour: ID) -> None:
        """Drop what is kept of a neighbour that will not come back."""
        for counts in self._ignored.values():
            counts.pop(neighbour, None)
