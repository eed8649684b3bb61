"""Faults: has peers crash, and cuts and heals the network, at the times that a scenario names."""

from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter

from fedchain.simulator.disturbances import Fault
from fedchain.simulator.engine.clock import VirtualTimeLoop
from fedchain.simulator.engine.network import SimulatedNetwork
from fedchain.simulator.engine.peer import SimulatedPeer


class Faults:
    """Plays a scenario's faults.

    Args:
        faults: in the order in which those of one moment happen.
        peers: all of them, by number; the list may still be filled.
        network: connects them.
        on_fault: called with each fault before it happens.
    """

    def __init__(
        self,
        faults: Sequence[Fault],
        peers: Sequence[SimulatedPeer],
        network: SimulatedNetwork,
        on_fault: Callable[[Fault], None] = lambda fault: None,
    ) -> None:
        self._faults, self._peers, self._network = faults, peers, network
        self._on_fault = on_fault

    def begin(self, loop: VirtualTimeLoop) -> None:
        """Have each fault happen at its time: those of one moment by one timer, as timers of one time have no order."""
        moment = attrgetter("at_s")
        for at_s, together in groupby(sorted(self._faults, key=moment), key=moment):
            loop.call_at(at_s, self._happen, tuple(together))

    def leave_repairs(self, now_s: float) -> bool:
        """Whether a restart or the healing of the network is still to come."""
        return any(fault.at_s >= now_s and fault.kind in ("restart", "heal") for fault in self._faults)

    def _happen(self, together: Sequence[Fault]) -> None:
        for fault in together:
            self._play(fault)

    def _play(self, fault: Fault) -> None:
        self._on_fault(fault)
        if fault.kind == "partition":
            self._network.split([fault.peers])
        elif fault.kind == "heal":
            self._network.heal()
        for number in fault.peers:
            peer = self._peers[number]
            if fault.kind == "crash":
                peer.crash()
            elif fault.kind == "kill":
                peer.kill()
            elif fault.kind == "restart":
                peer.crash()
                peer.restart()
            elif fault.kind == "slow":
                peer.slowness = fault.factor
