"""Operators: hand changes of the membership to the nodes of simulated peers, once more where a node takes none yet."""

from collections.abc import Iterable, Iterator, Sequence

from fedchain.chain.state import State
from fedchain.network.verdict import Verdict
from fedchain.node.core.events import ChangeSubmitted
from fedchain.simulator.engine.peer import SimulatedPeer


class Operators:
    """All members' operators."""

    def __init__(self) -> None:
        self._early: list[tuple[SimulatedPeer, int, ChangeSubmitted]] = []  # with the heights of their heads

    def submit(self, peers: Iterable[SimulatedPeer], head: State, event: ChangeSubmitted) -> None:
        """Submit a change to nodes at a head. A node that is not there yet may refuse it, and one that signs nothing
        does not approve: both are asked again once they can."""
        for peer in peers:
            is_silent = event.approves and peer.node is not None and peer.node.is_silent()
            is_taken = peer.handle(event) is Verdict.ACCEPT
            is_behind = peer.node is not None and peer.node.head.height < head.height
            if is_silent or (is_behind and not is_taken):
                self._early.append((peer, head.height, event))

    def submit_again(self, peer: SimulatedPeer, head: State) -> None:
        """A node's head moved: submit what it refused or did not approve before."""
        for item in [item for item in self._early if item[0] is peer and item[1] <= head.height]:
            if not (item[2].approves and peer.node is not None and peer.node.is_silent()):
                self._early.remove(item)
                peer.handle(item[2])


def active_peers(peers: Sequence[SimulatedPeer], head: State) -> Iterator[SimulatedPeer]:
    """Peers that run and whose members count at a head, by number."""
    return (peer for peer in peers if peer.node is not None and head.roster.is_active(peer.public_key))
