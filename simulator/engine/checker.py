"""The checker: watches every event of honest peers and reports each broken promise with its time.

* agreement: no two peers finalize different blocks at a height, and at the end all have one head;
* validity: each final block re-verifies, aggregate included, without any of the nodes' caches;
* inclusion: posts that all held in time are counted, or the phase's timeout has passed;
* no capture: only traitors are convicted, and nobody else loses its vote;
* promises: no peer signs two statements where one is allowed, sends one before writing it down, or forgets one;
* bounds: pools in memory stay within constants;
* bans: no honest peer bans another one.
"""

from collections.abc import Sequence

from fedchain.chain.genesis import Genesis
from fedchain.chain.knowledge import EMPTY_ROOT, Rules
from fedchain.chain.state import genesis_state
from fedchain.chain.storage.store import Final
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.node.core.contents.retention import contents_of
from fedchain.node.core.effects import Effect, Persist
from fedchain.node.core.events import Event, Tick
from fedchain.simulator.engine.clock import VirtualTimeLoop
from fedchain.simulator.engine.peer import SimulatedPeer
from fedchain.simulator.oracles.agreement import FinalBlocks
from fedchain.simulator.oracles.bounds import Bounds
from fedchain.simulator.oracles.inclusion import Inclusion
from fedchain.simulator.oracles.promises import Promises

VIOLATIONS_MAX = 100
"""Number of violations that are kept: a promise that is broken for good fails again at every event."""


class Checker:
    """Watches peers while they run and checks them once more at the end.

    Args:
        genesis: the federation's founding document.
        rules: the learning method's rules.
        loop: the clock.
        peers: all of them; the list may still be filled.
        traitors: numbers of the peers that do not follow the protocol.
        newcomers: keys of the peers that join later, whose numbers follow the founders'.
    """

    def __init__(
        self,
        genesis: Genesis,
        rules: Rules,
        loop: VirtualTimeLoop,
        peers: Sequence[SimulatedPeer],
        traitors: frozenset[int] = frozenset(),
        newcomers: Sequence[PublicKey] = (),
    ) -> None:
        self.violations: list[str] = []
        self._genesis, self._loop, self._peers, self._traitors = genesis, loop, peers, traitors
        members = (*genesis_state(genesis).roster.members, *newcomers)
        lying = frozenset(members[number] for number in traitors)
        honest = [number for number in range(len(members)) if number not in traitors]
        self.finals = FinalBlocks(genesis, rules, self._content, lying, self.fail)
        self.inclusion = Inclusion(genesis, honest, self.fail)
        self._promises = Promises(self.fail)
        self._bounds = Bounds(genesis, self.fail, len(members))
        self._retained_from = 1  # what was dropped while the window was shorter is held by nobody later
        self._counted: list[tuple[int, ...]] = []  # by height, from 1 on: the members that counted then

    def fail(self, violation: str) -> None:
        """Note a violation, with its time."""
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(f"{violation} (at {self._loop.time():.3f} s)")

    def on_event(self, peer: SimulatedPeer, event: Event, effects: Sequence[Effect]) -> None:
        """An honest peer handled an event."""
        self.inclusion.on_event(peer, event, effects, self._loop.now_ms())
        if effects:
            self._promises.on_effects(peer, effects)
            for effect in effects:
                if isinstance(effect, Persist):
                    for record in effect.records:
                        if isinstance(record, Final):
                            self._on_final(peer, record)
        if isinstance(event, Tick):
            self._bounds.check(peer)

    def on_head(self, peer: SimulatedPeer) -> None:
        """An honest peer's head moved."""
        self.inclusion.on_head(peer.number)

    def on_crash(self, number: int) -> None:
        """A peer lost its memory."""
        self.inclusion.on_crash(number)

    def on_loss(self, number: int, *, journal: bool) -> None:
        """A peer's storage is lost; if its journal is lost, too, the peer may break its promises for a while."""
        self.on_crash(number)
        if number not in self._traitors:
            self._promises.on_loss(number, journal=journal)
            if journal:
                self.finals.excuse(self._peers[number].public_key)

    def on_key(self, number: int, key: PublicKey) -> None:
        """A peer goes on with another key, and with a journal of its own."""
        self._promises.on_key(number)
        if number in self._traitors:
            self.finals.excuse(key)

    def on_ban(self, number: int, banned: int) -> None:
        """A peer banned another one."""
        if not {number, banned} & self._traitors:
            self.fail(f"bans: honest peer {number} bans honest peer {banned}")

    def check_end(self, *, is_settled: bool = True) -> None:
        """Check that nothing is lost, that a newcomer can fetch all it needs and, if all settled, that heads agree."""
        honest = [peer for peer in self._peers if peer.number not in self._traitors]
        running = [(peer, peer.node) for peer in honest if peer.node is not None]
        heads = {node.head.block_hash for _, node in running}
        if is_settled and len(heads) != 1:
            self.fail(f"agreement: {len(running)} running peers have {len(heads)} different heads")
        for peer in honest:
            self._promises.check_end(peer)
            if peer.stopped:
                self.fail(f"stopped: peer {peer.number} ended itself: {peer.stopped}")
        for peer, node in running:
            self._check_chain(peer, node.head.height)
        if running:
            self._check_retained([peer for peer, _ in running])

    def _on_final(self, peer: SimulatedPeer, record: Final) -> None:
        before = self.finals.state
        if self.finals.on_final(peer.number, record):
            self.inclusion.on_first_final(before, record.block, self._loop.now_ms(), self._peers)
            after = self.finals.state
            lowest = after.height + 1 - (after.rules.retention_blocks or after.height)
            self._retained_from = max(self._retained_from, lowest)
            counted = tuple(before.roster.seats[member] for member in before.roster.counting)
            is_as_before = bool(self._counted) and self._counted[-1] == counted
            self._counted.append(self._counted[-1] if is_as_before else counted)

    def _check_chain(self, peer: SimulatedPeer, height: int) -> None:
        """Check that a peer has stored the blocks that were verified."""
        for place in range(peer.storage.base(), height + 1):
            stored = peer.storage.final(place)
            if stored is None:
                self.fail(f"lost: peer {peer.number} lost the block at height {place}")
            elif place >= len(self.finals.hashes) or stored[0].hash != self.finals.hashes[place]:
                self.fail(f"agreement: peer {peer.number} has stored another block at height {place}")

    def _check_retained(self, peers: Sequence[SimulatedPeer]) -> None:
        """Check that a newcomer could fetch every content of the retention window from somebody.

        Those that came later need not have what was posted before, as simulated peers do not refill.
        """
        numbers = {peer.number for peer in peers}
        for place in range(self._retained_from, len(self.finals.hashes)):
            if numbers.isdisjoint(self._counted[place - 1]):
                continue
            found = next((item for peer in peers if (item := peer.storage.final(place)) is not None), None)
            for content_hash in sorted(contents_of([found[0]] if found else []) - {EMPTY_ROOT}):
                if all(peer.storage.content(content_hash) is None for peer in peers):
                    self.fail(f"lost: content {content_hash.hex()[:16]} of height {place} is held by nobody")

    def _content(self, content_hash: Hash) -> bytes | None:
        """A content from any honest member that holds it; None if nobody does."""
        for peer in self._peers:
            if peer.number in self._traitors:
                continue
            data = peer.storage.content(content_hash) if peer.node is None else peer.node.content(content_hash)
            if data is not None:
                return data
        return None
