"""Membership: plays how members come, leave and are back, and who approves, at a scenario's rounds."""

from collections.abc import Iterator, Sequence

from fedchain.chain.change import Change, ChangeKind, propose_removal, sign_change
from fedchain.chain.genesis import Genesis
from fedchain.chain.state import State
from fedchain.node.core.events import ChangeSubmitted
from fedchain.simulator.disturbances import MemberChange
from fedchain.simulator.engine.peer import SimulatedPeer

HEIGHTS_VALID = 1_000
"""Blocks that may count a change, from the one on at which it was proposed."""


class MembershipChanges:
    """Submits a scenario's changes to the nodes, as their operators would.

    Args:
        genesis: the founding document.
        changes: the changes, in any order.
        peers: all peers by number, newcomers last; the list may still be filled.
    """

    def __init__(self, genesis: Genesis, changes: Sequence[MemberChange], peers: Sequence[SimulatedPeer]) -> None:
        self._genesis, self._peers = genesis, peers
        self._left = sorted(changes, key=lambda change: change.round)

    def on_head(self, peer: SimulatedPeer, head: State) -> None:
        """A peer's head moved: a peer that is gone for good stops, and what is due in the open round is proposed."""
        seat = head.roster.seats.get(peer.public_key)
        if seat is not None and head.records[seat].standing.is_for_good:
            peer.crash()
        while self._left and self._left[0].round <= head.round and not head.finished:
            row = self._left.pop(0)
            for number in row.peers:
                self._propose(row, self._peers[number], head)

    def _propose(self, row: MemberChange, subject: SimulatedPeer, head: State) -> None:
        """Have the members' operators submit one change: the member itself, or all that approve of it."""
        until = head.height + HEIGHTS_VALID
        key, chain_id = subject.key, self._genesis.chain_id
        seat = head.roster.seats.get(subject.public_key)
        sequence = 0 if seat is None else head.records[seat].sequence
        kind = KINDS[row.kind]
        if kind is ChangeKind.REMOVE:
            change = propose_removal(subject.public_key, row.reason, sequence=sequence, until=until)
        else:
            change = sign_change(key, chain_id, kind, text=row.reason, sequence=sequence, until=until)
        if kind is ChangeKind.JOIN:
            subject.start()
        for submitter in self._submitters(change, subject, head):
            submitter.handle(ChangeSubmitted(change, approves=kind.needs_approval))

    def _submitters(self, change: Change, subject: SimulatedPeer, head: State) -> Iterator[SimulatedPeer]:
        if not change.kind.needs_approval:
            yield subject
            return
        for peer in self._peers:
            if peer is not subject and peer.node is not None and head.roster.is_active(peer.public_key):
                yield peer


KINDS = {"join": ChangeKind.JOIN, "leave": ChangeKind.LEAVE, "remove": ChangeKind.REMOVE, "back": ChangeKind.BACK}
"""Kinds of changes by their names in scenarios."""
