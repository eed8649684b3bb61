"""Announcing: which peers learn our status, and when, so that each finds out what the other lacks."""

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
        self._told: set[PublicKey] = set()  # peers behind us that were sent our status since the last tick

    def greet(self, peer: PublicKey) -> bool:
        """Greet one of the first peers, which tells us at once what we lack; returns whether it is one of them."""
        is_greeted = len(self._context.peers) <= GREETED_PEERS
        if is_greeted:
            self._send(peer)
        return is_greeted

    def on_status(self, peer: PublicKey, status: Status) -> None:
        """Tell a peer that is behind us at once, but once a tick."""
        if status.height + BEHIND < self._context.head.height and peer not in self._told:
            self._told.add(peer)
            self._send(peer)

    def on_tick(self) -> None:
        """Tell the peers whose turn it is."""
        peers = list(self._context.peers)
        self._told.clear()
        for _ in range(min(STATUS_PEERS, len(peers))):
            self._turn = (self._turn + 1) % len(peers)
            self._send(peers[self._turn])

    def _send(self, peer: PublicKey) -> None:
        self._context.emit(Send(peer, self._answers.status(self._voting.agreement)))
