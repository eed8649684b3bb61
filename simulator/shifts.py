"""Shifts: of very many peers only those are awake that the chain draws to contribute or to vote.

A peer that sleeps costs nothing but its storage. When a head draws it, it starts from that, catches up as any
latecomer does, and sleeps again when a head does not. Peer 0 is always awake: it keeps the chain of the run.
"""

from collections.abc import Iterable, Sequence

from fedchain.chain.genesis import Genesis
from fedchain.chain.state import State, genesis_state
from fedchain.node.events import PeerConnected, PeerDisconnected
from fedchain.simulator.network import SimulatedNetwork
from fedchain.simulator.peer import SimulatedPeer


class Shifts:
    """Wakes peers and lets them sleep.

    Args:
        genesis: of the federation.
        peers: all of them, by number; the list may still be filled.
        network: where those who are awake are connected to each other.
    """

    def __init__(self, genesis: Genesis, peers: Sequence[SimulatedPeer], network: SimulatedNetwork) -> None:
        self._genesis, self._peers, self._network = genesis, peers, network

    def begin(self) -> None:
        """Wake peer 0 and those that the genesis document draws."""
        self._network.set_present(())
        self._wake({0, *self._drawn(genesis_state(self._genesis))})

    def change(self, peer: SimulatedPeer, head: State) -> None:
        """``peer`` has a newest ``head``: wake those that it draws, and let the peer sleep if it is not one of them."""
        if head.finished:
            return
        drawn = self._drawn(head)
        self._wake(drawn)
        if peer.node is None or peer.node.head is not head or peer.number in (0, *drawn):
            return
        peer.sleep()
        awake = self._awake()
        self._network.set_present([other.number for other in awake])
        for other in awake:
            other.handle(PeerDisconnected(peer.public_key))

    def _drawn(self, head: State) -> set[int]:
        return {self._genesis.index[member] for member in head.contributors | head.electors}

    def _wake(self, numbers: Iterable[int]) -> None:
        for number in sorted(numbers):
            peer = self._peers[number]
            if peer.node is None:
                awake = self._awake()
                self._network.set_present([number, *(other.number for other in awake)])
                peer.start()
                for other in awake:
                    other.handle(PeerConnected(peer.public_key))

    def _awake(self) -> list[SimulatedPeer]:
        return [peer for peer in self._peers if peer.node is not None]
