"""Guests: peers that may connect beside the members at the head. Members vouch for them."""

from collections.abc import Sequence
from itertools import chain

from fedchain.chain.membership.change import ChangeKind
from fedchain.chain.state import State
from fedchain.crypto.address import address
from fedchain.crypto.keys import PublicKey
from fedchain.network.network import Network
from fedchain.node.core.node import Node
from fedchain.node.operating.member_numbers import number_members

GUESTS_MAX = 64
"""Most peers that are let in though they are no members at our head: members vouch for them, and some of these lie."""


class Guests:
    """Tells a network whom to connect, and the log whose numbers are whose."""

    def __init__(self, network: Network, node: Node) -> None:
        self._network, self._node = network, node
        self._admitted: dict[str, tuple[PublicKey, ...]] = {}  # by the reason
        self._joining: tuple[PublicKey, ...] = ()  # keys that ask for a place, for each of which a member vouches

    def admit(self, reason: str, peers: Sequence[PublicKey]) -> None:
        """Let these peers connect in place of others for the same reason."""
        self._admitted[reason] = tuple(peers)
        self.track()

    def on_event(self, before: State) -> None:
        """The node has handled an event, whose head was ``before``: tell what it changes."""
        kinds = (ChangeKind.JOIN, ChangeKind.RECOVER)
        joining = tuple(change.key_afterwards for change in self._node.open_changes() if change.kind in kinds)
        head = self._node.head
        if joining != self._joining or (head is not before and _reachable(head) != _reachable(before)):
            self._joining = joining
            self.track()

    def track(self) -> None:
        """Tell the members at the head, and the guests."""
        head = self._node.head
        guests = [*chain(*self._admitted.values(), self._joining)][:GUESTS_MAX]
        number_members({address(member): number for member, number in head.roster.seats.items()})
        roster = head.roster  # whoever has a lost or stolen key is another one
        replaced = {old: new for old, new in roster.successors.items() if old not in roster.excused}
        self._network.track(head.height, (*_reachable(head), *guests), replaced)


def _reachable(head: State) -> tuple[PublicKey, ...]:
    """Members that may be connected at a head, and keys that were replaced lately: their nodes learn of it."""
    return (*head.roster.reachable, *head.roster.successors)
