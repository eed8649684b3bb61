"""Own gossip on its way out: a burst waits here until the neighbours' queues have room for it."""

from collections import deque

import trio

from fedchain.network.libp2p.gossip import GuardedPubsub
from fedchain.network.libp2p.log import log
from fedchain.network.libp2p.mesh import GuardedRouter
from fedchain.network.libp2p.messenger import Counters
from fedchain.network.limits import Limits, TokenBucket

QUEUE_ROOM = 512
"""Frames that may wait for a mesh neighbour before publishing pauses."""

PACE_TIMEOUT_S = 1.0
"""Longest pause for a neighbour that does not read."""

PACE_SHARE, PACE_BURST_S = 0.05, 10.0
"""Part of the time that all pauses may take, and seconds that they may take at once: one neighbour that reads a byte at
a time, for ever, would otherwise hold up each of our messages."""


class Publisher:
    """Publishes messages in order, and pauses while a neighbour's queue is long."""

    def __init__(
        self, pubsub: GuardedPubsub, router: GuardedRouter, topic: str, limits: Limits, counters: Counters
    ) -> None:
        self._pubsub, self._router, self._topic = pubsub, router, topic
        self._limits, self._counters = limits, counters
        self._waiting: deque[bytes] = deque()
        self._filled = trio.Event()
        self._patience = TokenBucket(PACE_SHARE, PACE_BURST_S, trio.current_time())

    def put(self, data: bytes) -> bool:
        """Let a message wait to be published; False: it is too large, or too many wait."""
        if len(data) > self._limits.gossip_size_max:
            log.warning("a message of %d bytes is too large for gossip", len(data))
            return False
        if len(self._waiting) >= self._limits.publish_queue_max:
            log.warning("%d messages wait to be published; one more is dropped", len(self._waiting))
            return False
        self._waiting.append(data)
        self._filled.set()
        return True

    async def run(self) -> None:
        """Publish the waiting messages until cancelled."""
        while True:
            await self._filled.wait()
            while self._waiting:
                await self._pause()
                data = self._waiting.popleft()
                self._counters.messages_out += 1
                self._counters.bytes_out += len(data)
                await self._pubsub.publish(self._topic, data)
            self._filled = trio.Event()

    async def _pause(self) -> None:
        """Wait until the neighbours' queues have room, unless that has taken too much of the time."""
        begun_s = trio.current_time()
        if self._patience.borrow(0.0, begun_s) > 0.0:
            return
        with trio.move_on_after(PACE_TIMEOUT_S):
            while self._router.waiting_max() > QUEUE_ROOM:
                await trio.sleep(0.005)
        now_s = trio.current_time()
        self._patience.borrow(now_s - begun_s, now_s)
