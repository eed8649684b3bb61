"""Announcing: which peers learn our status, and when, so that each finds out what the other lacks."""

from collections.abc import Collection, Iterator

from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import Status
from fedchain.node.core.answers import Answers
from fedchain.node.core.context import Context
from fedchain.node.core.effects import Send
from fedchain.node.core.voting.voting import Voting

STATUS_PEERS = 2
"""Peers that receive our status at every tick."""

GREETED_PEERS = 8
"""Peers that receive our status as soon as they are connected."""

BEHIND = 1
"""Blocks by which a peer may be behind before it receives our status at once, and not only in its turn at a tick."""


class Announcing:
    """Sends our status."""

    def __init__(self, context: Context, answers: Answers, voting: Voting) -> None:
        self._context, self._answers, self._voting = context, answers, voting
        self._turn = context.head.roster.seats.get(context.me, 0)
        self._first_turn = 0  # peers told in the first turn of one that listens
        self._told: set[PublicKey] = set()  # peers behind us that were sent our status since the last tick

    def greet(self, peers: Collection[PublicKey]) -> Iterator[tuple[PublicKey, bool]]:
        """Note that peers are connected, one after the other, and greet the first of all: they tell us what we lack.

        Yields each peer, and whether it is greeted.
        """
        connected, status = len(self._context.peers), None
        new = frozenset(self._context.peers.add(peers))
        for peer in peers:
            connected += peer in new
            is_greeted = connected <= GREETED_PEERS
            if is_greeted:
                status = status or self._status()
                self._context.emit(Send(peer, status))
            yield peer, is_greeted

    def on_status(self, peer: PublicKey, status: Status) -> None:
        """Tell a peer that is behind us at once, but once a tick."""
        if status.height + BEHIND < self._context.head.height and peer not in self._told:
            self._told.add(peer)
            self._context.emit(Send(peer, self._status()))

    def on_tick(self, *, is_listening: bool) -> None:
        """Tell the peers whose turn it is.

        Nobody signs before it has heard of f + 1 heads. Where those are more than greet it, and all members start at
        one time, the first turn goes to so many peers at a tick; two a second would take minutes.
        """
        peers, enough = self._context.peers.in_order, self._context.catch_up.enough
        self._told.clear()
        if not peers:
            return
        count = STATUS_PEERS
        if is_listening and enough > GREETED_PEERS and self._first_turn < len(peers):
            count = enough
            self._first_turn += count
        status = self._status()
        for _ in range(min(count, len(peers))):
            self._turn = (self._turn + 1) % len(peers)
            self._context.emit(Send(peers[self._turn], status))

    def _status(self) -> Status:
        return self._answers.status(self._voting.agreement)
