"""Membership: plays how members come, go and get other keys, and who approves, at a scenario's rounds."""

from collections.abc import Callable, Iterator, Sequence
from itertools import count

from fedchain.chain.exceptions import InvalidGenesis
from fedchain.chain.genesis import Genesis
from fedchain.chain.membership.amendment import NO_AMENDMENTS, amendment_of
from fedchain.chain.membership.change import (
    ROUNDS_AHEAD,
    Change,
    ChangeKind,
    propose_amendment,
    propose_recovery,
    propose_removal,
    sign_change,
    sign_rekey,
)
from fedchain.chain.membership.in_force import validate_amendment
from fedchain.chain.membership.rules import room_for_changes
from fedchain.chain.state import State
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.learning.exceptions import ConfigurationError
from fedchain.network.verdict import Verdict
from fedchain.node.core.events import ChangeSubmitted
from fedchain.node.core.membership.change_pool import OPEN_MAX
from fedchain.node.founding.amending import amended_values, expect_of_use
from fedchain.simulator.disturbances import MemberChange
from fedchain.simulator.engine.peer import SimulatedPeer
from fedchain.simulator.scenario import ScenarioError

HEIGHTS_VALID = 1_000
"""Blocks that may count a change, from the one on at which it was proposed."""


class MembershipChanges:
    """Submits a scenario's changes to the nodes, as their operators would.

    Args:
        genesis: the founding document.
        changes: the changes, in any order.
        peers: all peers by number, newcomers last; the list may still be filled.
        on_key: called with (peer number, key) before a peer goes on with another key.
        deals_by_place: whether peers have data and models by their places, so that each has to get its own.
        is_troubled: whether messages may get lost, or peers be down or lie.
    """

    def __init__(
        self,
        genesis: Genesis,
        changes: Sequence[MemberChange],
        peers: Sequence[SimulatedPeer],
        on_key: Callable[[int, PublicKey], None],
        *,
        deals_by_place: bool,
        is_troubled: bool,
    ) -> None:
        _validate_amendments(genesis, changes)
        self._genesis, self._peers, self._on_key = genesis, peers, on_key
        self._deals_by_place, self._is_troubled = deals_by_place, is_troubled
        self._following: dict[int, PrivateKey] = {}  # keys that peers take once the chain says so
        self._left = sorted(changes, key=lambda change: change.round)  # joins stay in it
        self._joining = {number: row.round for row in self._left if row.kind == "join" for number in row.peers}
        self._batch: list[int] = []  # peers whose joins are proposed together
        self._going: dict[int, int] = {}  # peers that are gone for good, and the heights at which they found out
        self._early: list[tuple[SimulatedPeer, int, ChangeSubmitted]] = []  # submitted too early, with the heights

    def take_keys(self, head: State) -> None:
        """Peers whose keys are replaced at a head go on with the new ones."""
        for number, key in [*self._following.items()]:
            if key.public_key in head.roster.seats:
                del self._following[number]
                self._on_key(number, key.public_key)
                self._peers[number].take_key(key)

    def on_head(self, peer: SimulatedPeer, head: State) -> None:
        """A peer's head moved: who is gone for good may stop, and what is due in the open round is proposed."""
        self.take_keys(head)
        seat = head.roster.seats.get(peer.public_key)
        if self._deals_by_place and seat is not None and seat != peer.number:
            raise ScenarioError(
                f"peer {peer.number} got place {seat}: some join of this or the last round came too late"
            )
        if seat is not None and head.records[seat].standing.is_for_good:
            self._going.setdefault(peer.number, head.height)
        if self._going:
            self._let_go()
        if head.finished:
            return
        self._submit_again(peer, head)
        self._batch = self._next_batch(head)
        for row in [row for row in self._left if row.round <= head.round]:
            numbers = row.peers if row.kind != "join" else [number for number in row.peers if number in self._batch]
            if row.kind == "amend":
                self._amend(row, head)
            for number in numbers:
                self._propose(row, self._peers[number], head)
            if row.kind != "join":
                self._left.remove(row)
        for number in self._batch:
            del self._joining[number]

    def _let_go(self) -> None:
        """Stop who is gone for good once the others have the block that says so: its vote may have been needed for it,
        and lost on the way."""
        nodes = [(peer.number, peer.node) for peer in self._peers if peer.is_honest and peer.node is not None]
        for number, height in [*self._going.items()]:
            if all(node.head.height >= height for other, node in nodes if other != number):
                del self._going[number]
                self._peers[number].crash()

    def _next_batch(self, head: State) -> list[int]:
        """The newcomers to propose now, in order: of those of one round as many as the open round has room for.

        Places are given as joins are counted. Where more were on their way, which of them come first would be chance.
        """
        first = min(self._joining, default=None)
        if first is None or first > len(head.records) or self._joining[first] > head.round:
            return []
        together = [number for number, begin in sorted(self._joining.items()) if begin == self._joining[first]]
        return together[: min(room_for_changes(self._genesis, head)[0], OPEN_MAX)]

    def _propose(self, row: MemberChange, subject: SimulatedPeer, head: State) -> None:
        """Have the members' operators submit one change: the member itself, or all that approve of it."""
        until = head.height + HEIGHTS_VALID
        key, chain_id = subject.key, self._genesis.chain_id
        seat, kind = head.roster.seats.get(subject.public_key), ChangeKind[row.kind.upper()]
        member, sequence = subject.public_key, 0
        if seat is not None:
            record = head.records[seat]
            member, sequence = record.came_with, record.decided if kind.needs_approval else record.sequence
        said = {"sequence": sequence, "until": until}
        if kind.gives_key:
            following = self._following[subject.number] = PrivateKey(sha256(key.seed + b"next"))
        if kind is ChangeKind.REMOVE:
            change = propose_removal(member, row.reason, **said)
        elif kind is ChangeKind.REKEY:
            change = sign_rekey(key, following, chain_id, text=row.reason, **said)
        elif kind is ChangeKind.RECOVER:
            change = propose_recovery(member, following, chain_id, row.reason, **said)
        elif kind is ChangeKind.JOIN:
            change = self._join(row, subject, said["until"])
            subject.start()
        else:
            change = sign_change(key, chain_id, kind, text=row.reason, **said)
        submitters = [*self._submitters(change, subject, head)]
        if kind is ChangeKind.JOIN and len(self._batch) > 1 and self._is_troubled:
            for approver in submitters:  # each node holds all of them as complete from now on, whatever gets lost
                change = change.approved(approver.key, chain_id) if approver.is_honest else change
        for submitter in submitters:
            self._submit(submitter, head, ChangeSubmitted(change, approves=kind.needs_approval))

    def _submit(self, peer: SimulatedPeer, head: State, event: ChangeSubmitted) -> None:
        """Submit a change at a head. A node that is not there yet may refuse it, and one that signs nothing does not
        approve: both are asked again once they can."""
        is_silent = event.approves and peer.node is not None and peer.node.is_silent()
        is_taken = peer.handle(event) is Verdict.ACCEPT
        is_behind = peer.node is not None and peer.node.head.height < head.height
        if is_silent or (is_behind and not is_taken):
            self._early.append((peer, head.height, event))

    def _submit_again(self, peer: SimulatedPeer, head: State) -> None:
        """A node's head moved: submit what it refused or did not approve before."""
        for item in [item for item in self._early if item[0] is peer and item[1] <= head.height]:
            if not (item[2].approves and peer.node is not None and peer.node.is_silent()):
                self._early.remove(item)
                peer.handle(item[2])

    def _join(self, row: MemberChange, subject: SimulatedPeer, until: int) -> Change:
        """Have a newcomer ask to join. A block has changes in the order of their hashes, which is that of places, too:
        where several join together, each takes a name with which it gets the place that its data are at."""
        rank = self._batch.index(subject.number)
        for tried in count():
            name = row.reason if len(self._batch) == 1 else f"{row.reason} {tried}".strip()
            change = sign_change(
                subject.key, self._genesis.chain_id, ChangeKind.JOIN, text=name, sequence=0, until=until
            )
            if change.hash[0] * len(self._batch) >> 8 == rank:
                return change
        raise AssertionError("some name has it")

    def _amend(self, row: MemberChange, head: State) -> None:
        """Have all members' operators approve of other values."""
        said = {"sequence": head.amendments.count, "until": head.height + HEIGHTS_VALID}
        values = amended_values(head.rules, row.values)
        change = propose_amendment(amendment_of(values, row.begin), row.reason, **said)
        for peer in self._peers:
            if peer.node is not None and head.roster.is_active(peer.public_key):
                self._submit(peer, head, ChangeSubmitted(change, approves=True))

    def _submitters(self, change: Change, subject: SimulatedPeer, head: State) -> Iterator[SimulatedPeer]:
        if not change.kind.needs_approval:
            yield subject
            return
        for peer in self._peers:
            if peer is not subject and peer.node is not None and head.roster.is_active(peer.public_key):
                yield peer


def _validate_amendments(genesis: Genesis, changes: Sequence[MemberChange]) -> None:
    """Raise ScenarioError for an amendment that no block would count, or with which nobody could train."""
    known, first = NO_AMENDMENTS, 1 if genesis.setup or len(genesis.phases) > 1 else 2  # behind the first block
    for row in sorted((row for row in changes if row.kind == "amend"), key=lambda row: row.round):
        number = max(row.round, first)
        known, begin = known.at(number), row.begin or number + ROUNDS_AHEAD
        try:
            amendment = amendment_of(amended_values(genesis, row.values), begin)
            validate_amendment(genesis, known, amendment)
            expect_of_use(genesis, known, amendment.values)
        except (InvalidGenesis, ConfigurationError) as error:
            raise ScenarioError(f"amend in round {row.round}: {error}") from None
        known = known.with_one(amendment)
