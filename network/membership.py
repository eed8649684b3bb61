"""The members at the height that a node stands at. Every part of a network asks this one object, and keeps no copy."""

from collections.abc import Collection

from fedchain.crypto.keys import PublicKey


class Membership:
    """The peers that may connect now.

    Args:
        members: public keys of the members at the start.
    """

    def __init__(self, members: Collection[PublicKey]) -> None:
        self.height = 0
        """The height that was tracked last."""
        self.guests: Collection[PublicKey] = frozenset()
        """Peers that may connect though their keys are no members' now. A liar may bring many."""
        self._members = frozenset(members)

    def __contains__(self, peer: object) -> bool:
        return peer in self._members

    def __len__(self) -> int:
        return len(self._members)

    def track(self, height: int, members: Collection[PublicKey]) -> tuple[frozenset[PublicKey], frozenset[PublicKey]]:
        """Take the members at a height; returns those that are new, and those that are members no more."""
        self.height = height
        before, now = self._members, frozenset(members)  # a set stays itself, so nodes of one process may share it
        if now is before:
            return frozenset(), frozenset()
        self._members = now
        return now - before, before - now
