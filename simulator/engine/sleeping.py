"""Shifts: of very many peers only those are awake that the chain draws to contribute or to vote.

A peer that sleeps costs nothing but its storage. When a head draws it, it starts from that, catches up as any
latecomer does, and sleeps again when a head does not. Peer 0 is always awake: it keeps the chain of the run, and what
the others forget in their sleep.
"""

from collections.abc import Iterable, Sequence

from fedchain.chain.genesis import Genesis
from fedchain.chain.state import State, genesis_state
from fedchain.node.core.events import PeerConnected, PeerDisconnected
from fedchain.simulator.engine.network import SimulatedNetwork
from fedchain.simulator.engine.peer import SimulatedPeer


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

    def change(self, head: State) -> None:
        """Somebody has a newest ``head``: wake those that it draws, and let sleep whom peer 0's head does not draw.

        Nobody sleeps before peer 0 can hand on what there is to know: with the last who could, a knowledge is lost.
        And as many stay awake at the newest head as those who join there want to hear it from.
        """
        if head.finished:
            return
        self._wake(self._drawn(head))
        keeper = self._peers[0].node
        if keeper is None or keeper.knowledge() is None:
            return
        stay, newest = {0, *self._drawn(keeper.head)}, keeper.head.block_hash
        holders = [peer for peer in self._awake() if peer.node is not None and peer.node.head.block_hash == newest]
        spare = len(holders) - self._genesis.fault_model.faulty(len(keeper.head.electors)) - 1
        for peer in [peer for peer in holders if peer.number not in stay][: max(0, spare)]:
            self._let_sleep(peer)

    def _let_sleep(self, peer: SimulatedPeer) -> None:
        peer.sleep()
        awake = self._awake()
        self._network.set_present([other.number for other in awake])
        for other in awake:
            other.handle(PeerDisconnected(peer.public_key))

    def _drawn(self, head: State) -> set[int]:
        drawn = head.contributors | head.electors
        producer = self._genesis.aggregator_of(head.round) if self._genesis.centralized else None
        return {self._genesis.index[member] for member in (drawn if producer is None else drawn | {producer})}

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
