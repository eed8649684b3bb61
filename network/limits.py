"""Limits of a peer's connections: how much it may hold open and send, and how much it is forgiven."""

from dataclasses import dataclass

from fedchain.network.messages import GOSSIP_SIZE_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of all resources; data from a peer are bounded before they are allocated."""

    connections_max: int = 256
    """Connections open at a time, in both directions; a node of a larger federation has one for each other member."""
    handshakes_max: int = 256
    """Incoming connections at a time whose peers have not said yet who they are."""
    streams_per_peer_max: int = 32
    """Streams open on one connection, in both directions."""
    peers_wanted: int = 8
    """Connected peers below which known addresses are dialled; 0: only the bootstrap addresses are."""
    gossip_degree: int = 5
    """Neighbours in the gossip mesh, give or take one. Each more is one more copy of every message to everybody."""
    gossip_size_max: int = GOSSIP_SIZE_MAX
    """Bytes of a gossip message."""
    outbox_messages_max: int = 1_024
    """Messages that wait for one peer."""
    outbox_bytes_max: int = 16 * 2**20
    """Bytes that wait for one peer."""
    publish_queue_max: int = 4_096
    """Own gossip messages that wait to be sent."""
    messages_per_s: float = 500.0
    """Messages taken from one peer per second, gossip included; more are dropped, and far more held against it."""
    messages_burst: float = 4_000.0
    """Messages that a peer may send at once after it was silent."""
    bytes_per_s: float = 32.0 * 2**20
    """Bytes read from one peer per second; more wait in its own queue."""
    bytes_burst: float = 128.0 * 2**20
    """Bytes read at once from a peer that was silent."""
    cpu_share: float = 0.25
    """Seconds of our time per second that one peer's messages may take, and that all may which take more than their
    part of it; a peer that takes more is read later. Parts of as many members as may lie are a share."""
    cpu_burst_s: float = 5.0
    """Seconds that these may take at once after a silence."""
    answer_bytes_per_s: float = 8.0 * 2**20
    """Bytes sent to one peer per second because it asked; questions beyond are dropped."""
    answer_bytes_burst: float = 64.0 * 2**20
    """Bytes of answers at once to a peer that asked for nothing before."""
    blame_max: float = 100.0
    """Blame at which a peer is disconnected and banned."""
    blame_decay_per_s: float = 1.0
    """Blame forgiven per second."""
    ban_s: float = 3_600.0
    """How long a ban lasts."""
    handshake_timeout_s: float = 10.0
    """How long a connection may take until both sides know each other."""
    frame_timeout_s: float = 60.0
    """How long a message may be on its way after its first byte."""
    idle_timeout_s: float = 30.0
    """Silence after which a peer counts as gone."""
    keepalive_s: float = 7.0
    """Silence of our own after which we say that we are there."""
    unacknowledged_s: float = 20.0
    """How long sent data may stay unacknowledged before the connection counts as dead."""
    redial_min_s: float = 1.0
    """Time from the first failed attempt to reach a peer to the next one; it doubles with each further one."""
    redial_max_s: float = 10.0
    """Longest time from the beginning of one attempt to that of the next."""
    exchange_interval_s: float = 30.0
    """How often a neighbour is asked for addresses."""


BLAME_REJECTED = 10.0
"""For a statement that breaks a rule; for its author, never for a neighbour that passed it on."""

BLAME_MALFORMED = 25.0
"""For bytes that are no message."""

BLAME_OVER_BUDGET = 0.1
"""For a message far beyond the peer's budget."""


class TokenBucket:
    """A budget that refills evenly: ``rate`` per second, at most ``burst``."""

    __slots__ = ("_at_s", "_burst", "_rate", "_tokens")

    def __init__(self, rate: float, burst: float, now_s: float) -> None:
        self._rate, self._burst = rate, burst
        self._tokens, self._at_s = burst, now_s

    def spends(self, amount: float, now_s: float) -> bool:
        """Take ``amount`` out if it is there."""
        self._refill(now_s)
        if self._tokens < amount:
            return False
        self._tokens -= amount
        return True

    def borrow(self, amount: float, now_s: float) -> float:
        """Take ``amount`` out whether it is there or not; seconds until there is something again."""
        self._refill(now_s)
        self._tokens -= amount
        return max(0.0, -self._tokens / self._rate)

    def _refill(self, now_s: float) -> None:
        """A clock that goes back refills nothing."""
        if now_s > self._at_s:
            self._tokens = min(self._burst, self._tokens + self._rate * (now_s - self._at_s))
        self._at_s = now_s
