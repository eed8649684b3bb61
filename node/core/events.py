"""Events: everything that can happen to a node, and the moment in which it happens."""

from dataclasses import dataclass, field
from typing import NamedTuple

from fedchain.chain.block import Header
from fedchain.chain.membership.change import Change
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import Message
from fedchain.node.core.jobs import Job, Result


class Moment(NamedTuple):
    """The time of an event."""

    ms: int
    """The monotonic clock, in milliseconds since an arbitrary start; all durations are measured by it."""
    clock_ms: int
    """The wall clock, in milliseconds since the Unix epoch. Precommits show it, and nothing depends on it."""


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """A peer sent or passed on a message."""

    peer: PublicKey
    """32 bytes: the peer that sent it to us, which need not be its author."""
    message: Message


@dataclass(frozen=True, slots=True)
class PeersConnected:
    """Peers can be reached now: one as a rule, several where a shell learns of them at one moment."""

    peers: tuple[PublicKey, ...]
    """In the order in which they were connected."""


@dataclass(frozen=True, slots=True)
class PeersDisconnected:
    """Peers can no longer be reached."""

    peers: tuple[PublicKey, ...]


@dataclass(frozen=True, slots=True)
class Contributed:
    """The trainer finished the payload that a ``Contribute`` effect asked for."""

    round: int
    phase: int
    payload: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class NotContributed:
    """A ``Contribute`` effect gave no payload: the phase was over, or training failed."""

    round: int
    phase: int
    reason: str
    """The error, for people; empty if the payload was merely no longer wanted."""


@dataclass(frozen=True, slots=True)
class Mined:
    """The miner sealed the header that a ``Mine`` effect asked for."""

    header: Header


@dataclass(frozen=True, slots=True)
class Computed:
    """The job of a ``Compute`` effect is done."""

    job: Job
    result: Result = field(repr=False)


@dataclass(frozen=True, slots=True)
class ChangeSubmitted:
    """Our operator submits a change of the membership."""

    change: Change
    approves: bool
    """Whether this member approves of it."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed: about a second, or the time that a ``Wake`` effect named has come."""


Event = (
    MessageReceived
    | PeersConnected
    | PeersDisconnected
    | Contributed
    | NotContributed
    | Mined
    | Computed
    | ChangeSubmitted
    | Tick
)
