"""Guests: peers that may connect beside the members at the head. Members vouch for them."""

from collections.abc import Iterable, Sequence
from itertools import chain

from fedchain.chain.membership.change import Change, ChangeKind
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
        self._following: tuple[PublicKey, ...] = ()  # next keys of members

    def admit(self, reason: str, peers: Sequence[PublicKey]) -> None:
        """Let these peers connect in place of others for the same reason."""
        self._admitted[reason] = tuple(peers)
        self.track()

    def on_event(self, before: State) -> None:
        """The node has handled an event, whose head was ``before``: tell what it changes."""
        kinds, changes = (ChangeKind.JOIN, ChangeKind.RECOVER), self._node.open_changes()
        joining = tuple(change.key_afterwards for change in changes if change.kind in kinds)
        following = next_keys(changes)
        asked, head = (joining, following), self._node.head
        if asked != (self._joining, self._following) or (head is not before and _reachable(head) != _reachable(before)):
            self._joining, self._following = asked
            self.track()

    def track(self) -> None:
        """Tell the members at the head, and the guests."""
        head = self._node.head
        # Next keys come first: each member has one, and liars may vouch for many others.
        guests = [*chain(self._following, *self._admitted.values(), self._joining)][:GUESTS_MAX]
        number_members({address(member): number for member, number in head.roster.seats.items()})
        roster = head.roster  # whoever has a lost or stolen key is another one
        replaced = {old: new for old, new in roster.successors.items() if old not in roster.excused}
        strangers = {*guests, *roster.successors} - {*roster.reachable}
        self._network.track(head.height, (*_reachable(head), *guests), replaced, strangers)


def next_keys(changes: Iterable[Change]) -> tuple[PublicKey, ...]:
    """The keys that members are going to take. One that has it already, by a block that others lack, calls under it,
    and may be the only one that can give them that block."""
    return tuple(change.key for change in changes if change.kind is ChangeKind.REKEY)


def _reachable(head: State) -> tuple[PublicKey, ...]:
    """Members that may be connected at a head, and keys that were replaced lately: their nodes learn of it."""
    return (*head.roster.reachable, *head.roster.successors)
