"""The interface between a peer and whatever carries its messages."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import GossipMessage, Message
from fedchain.network.verdict import Verdict

Receiver = Callable[[PublicKey, Message], Verdict]
"""Called with the peer that passed a message on, and the message; the result decides about gossip, and who pays."""

NONE_REPLACED: Mapping[PublicKey, PublicKey] = MappingProxyType({})
"""No member has another key than it had."""


@dataclass(frozen=True, slots=True)
class Flow:
    """The system's measurements of a connection."""

    round_trip_ms: float
    """Time from here to the other end and back."""
    bytes_in: int
    """Bytes that came since the connection was made."""
    bytes_out: int
    """Bytes that the other end has acknowledged."""


class Network(Protocol):
    """Carries messages between peers, as well as it can.

    It does *not* guarantee delivery, order, or that a message arrives only once; it does not say whether a message
    arrived, and it never blocks. It does guarantee that a message that arrives was sent by the peer that it names (the
    peer's key authenticates the connection), that it decodes, and that a message which its receiver did not accept is
    not passed on. Gossip that was accepted or rejected once may be kept from the receiver when it comes again; ignored
    gossip is brought again, though not without end.
    """

    def attach(self, receiver: Receiver) -> None:
        """Hand every incoming message to ``receiver``."""

    def track(
        self, height: int, members: Collection[PublicKey], replaced: Mapping[PublicKey, PublicKey] = NONE_REPLACED
    ) -> None:
        """Take the members at a height: all others are refused from now on, and disconnected if they are here.

        Args:
            height: the height.
            members: the keys that may connect.
            replaced: for each key that its member replaced lately, the key that the member has now.
        """

    def publish(self, message: GossipMessage) -> None:
        """Spread a message to every peer, directly or through others; not to oneself."""

    def send(self, peer: PublicKey, message: Message) -> None:
        """Send a message to one peer; nothing happens if that peer cannot be reached."""
