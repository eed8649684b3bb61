"""Shifts: of very many peers, only those that the chain draws to contribute or to vote are awake.

A sleeping peer costs only its storage. When a head draws it, it starts from its storage and catches up like any
latecomer; when a head does not draw it, it sleeps again. Peer 0 is always awake: it keeps the chain of the run, and
the contents that others drop when they sleep.

Sleeping peers follow the chain without messages: a waking peer starts at the head of the first peer that knows it was
drawn. A peer that crashed is woken by nobody; it is down until it is restarted, and then catches up from its storage.
"""

from collections.abc import Iterable, Sequence

from fedchain.chain.genesis import Genesis
from fedchain.chain.state import State, genesis_state
from fedchain.node.core.events import PeersConnected, PeersDisconnected
from fedchain.simulator.engine.network import SimulatedNetwork
from fedchain.simulator.engine.peer import SimulatedPeer


class Shifts:
    """Wakes peers and puts them to sleep.

    Args:
        genesis: the federation's founding document.
        peers: all of them, by number; the list may still be filled.
        network: connects the awake peers to each other.
    """

    def __init__(self, genesis: Genesis, peers: Sequence[SimulatedPeer], network: SimulatedNetwork) -> None:
        self._genesis, self._peers, self._network = genesis, peers, network

    def begin(self) -> None:
        """Wake peer 0 and those that the genesis document draws."""
        self._network.set_present(())
        self._wake([0, *self._drawn(genesis_state(self._genesis))])

    def change(self, first: SimulatedPeer) -> None:
        """``first`` has a newest head: wake the peers that it draws; let others sleep that peer 0's head does not draw.

        No peer sleeps before peer 0 holds the current knowledge, as the knowledge is lost with its last holder. More
        peers stay awake at the newest head than may be faulty among its voters, so that others can follow it from them.
        """
        if first.node is None or first.node.head.finished:
            return
        self._wake(self._drawn(first.node.head), first)
        keeper = self._peers[0].node
        if keeper is None or keeper.knowledge() is None:
            return
        at_work = {seat for item in keeper.head.owed for seat in item.seats}  # their posts may still count late
        stay, newest = {0, *self._drawn(keeper.head)} | at_work, keeper.head.block_hash
        holders = [peer for peer in self._awake() if peer.node is not None and peer.node.head.block_hash == newest]
        spare = len(holders) - self._genesis.fault_model.faulty(len(keeper.head.roster.electors)) - 1
        self._let_sleep([peer for peer in holders if peer.number not in stay][: max(0, spare)])

    def foresee(self, first: SimulatedPeer, state: State) -> None:
        """``first`` expects the vote to lead to a state: have those train for it that it draws and that sleep still.

        No machine that is off could do so; they compute the same, and have it at the same virtual time.
        """
        knowledge = None if first.node is None else first.node.content(state.knowledge_root)
        if knowledge is None:
            return
        for number in sorted(state.roster.seats[member] for member in state.roster.contributors):
            peer = self._peers[number]
            if _sleeps(peer):
                peer.foresee(state, knowledge)

    def restart(self, peer: SimulatedPeer) -> None:
        """Start a peer that is down, drawn or not; it catches up, and sleeps when a head that it has lets it."""
        peer.is_down = False
        self._wake([peer.number])

    def _let_sleep(self, peers: Sequence[SimulatedPeer]) -> None:
        """Put peers to sleep at one moment: each of the others learns of all of them at once."""
        if not peers:
            return
        for peer in peers:
            peer.sleep()
        awake = self._awake()
        self._network.set_present([peer.number for peer in awake])
        gone = PeersDisconnected(tuple(peer.public_key for peer in peers))
        for other in awake:
            other.handle(gone)

    def _drawn(self, head: State) -> list[int]:
        """Numbers of the peers that ``head`` draws, contributors first: they can train while the others wake."""
        producer = head.roster.aggregator_of(head.round) if self._genesis.centralized else None
        others = head.roster.electors if producer is None else head.roster.electors | {producer}
        groups = head.roster.contributors, others - head.roster.contributors
        return [number for group in groups for number in sorted(head.roster.seats[member] for member in group)]

    def _wake(self, numbers: Iterable[int], first: SimulatedPeer | None = None) -> None:
        """Wake peers at one moment: they find all others there, and each of those learns of all of them at once."""
        awake = self._awake()
        chosen = map(self._peers.__getitem__, dict.fromkeys(numbers))
        woken = [peer for peer in chosen if _sleeps(peer)]
        if not woken:
            return
        self._network.set_present([peer.number for peer in (*woken, *awake)])
        for peer in woken:
            if first is not None:
                peer.wake_beside(first)
            else:
                peer.start()
        come = PeersConnected(tuple(peer.public_key for peer in woken))
        for other in awake:
            other.handle(come)

    def _awake(self) -> list[SimulatedPeer]:
        return [self._peers[number] for number in sorted(self._network.attached)]


def _sleeps(peer: SimulatedPeer) -> bool:
    """Whether a peer may be woken: it is neither awake nor down."""
    return peer.node is None and not peer.stopped and not peer.is_down
