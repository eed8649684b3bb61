"""Peers: those that are connected."""

from collections.abc import Collection, Iterator, Sequence

from fedchain.crypto.keys import PublicKey


class Peers(Collection[PublicKey]):
    """Connected peers, in the order in which they were connected.

    As a rule they are counted and have their turns, and nobody asks for one by its key: an index by key is kept only
    once somebody does. A simulated peer may have thousands, and a simulation thousands of peers.
    """

    __slots__ = ("_known", "_order")

    def __init__(self) -> None:
        self._order: list[PublicKey] = []
        self._known: set[PublicKey] | None = None  # the same, once one was asked for

    @property
    def in_order(self) -> Sequence[PublicKey]:
        """All of them; not to be changed."""
        return self._order

    def add(self, peers: Collection[PublicKey]) -> Collection[PublicKey]:
        """Peers are connected; returns those that were not before."""
        known = set(self._order) if self._known is None else self._known
        new = [peer for peer in dict.fromkeys(peers) if peer not in known]
        self._order += new
        if self._known is not None:
            self._known.update(new)
        return new

    def drop(self, peers: Collection[PublicKey]) -> None:
        """Peers are disconnected."""
        gone = set(peers)
        self._order = [peer for peer in self._order if peer not in gone]
        self._known = None

    def __contains__(self, peer: object) -> bool:
        return peer in self._index()

    def __iter__(self) -> Iterator[PublicKey]:
        return iter(self._order)

    def __len__(self) -> int:
        return len(self._order)

    def _index(self) -> set[PublicKey]:
        if self._known is None:
            self._known = set(self._order)
        return self._known
