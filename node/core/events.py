"""Events: all that can happen to a node."""

from dataclasses import dataclass, field

from fedchain.chain.block import Header
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import Message
from fedchain.node.core.jobs import Job, Result


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """A peer sent or passed on a message."""

    peer: PublicKey
    """32 bytes: who passed it on, which need not be who wrote it."""
    message: Message


@dataclass(frozen=True, slots=True)
class PeerConnected:
    """A peer can be reached now."""

    peer: PublicKey


@dataclass(frozen=True, slots=True)
class PeerDisconnected:
    """A peer can no longer be reached."""

    peer: PublicKey


@dataclass(frozen=True, slots=True)
class Contributed:
    """The trainer finished what a ``Contribute`` effect asked for."""

    round: int
    phase: int
    payload: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class NotContributed:
    """Nothing came of a ``Contribute`` effect: the phase was over, or training failed."""

    round: int
    phase: int
    reason: str
    """What went wrong, for people; empty: nothing did, it was no longer wanted."""


@dataclass(frozen=True, slots=True)
class Mined:
    """The miner sealed the header that a ``Mine`` effect asked for."""

    header: Header


@dataclass(frozen=True, slots=True)
class Computed:
    """What a ``Compute`` effect asked for is done."""

    job: Job
    result: Result = field(repr=False)


@dataclass(frozen=True, slots=True)
class Tick:
    """Time went by: about a second, or until the time that a ``Wake`` effect named."""


Event = MessageReceived | PeerConnected | PeerDisconnected | Contributed | NotContributed | Mined | Computed | Tick
