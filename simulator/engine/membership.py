"""Membership: plays how members come, go and get other keys, and who approves, at a scenario's rounds."""

from collections.abc import Callable, Sequence
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
from fedchain.node.core.events import ChangeSubmitted
from fedchain.node.core.membership.change_pool import OPEN_MAX
from fedchain.node.founding.amending import amended_values, expect_of_use
from fedchain.simulator.disturbances import MemberChange
from fedchain.simulator.engine.operators import Operators, active_peers
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
        self._operators = Operators()

    def take_keys(self, head: State) -> None:
        """Peers whose keys are replaced at a head go on with the new ones."""
        for number, key in [*self._following.items()]:
            if key.public_key in head.roster.seats:
                del self._following[number]
                self._on_key(number, key.public_key)
                self._peers[number].take_key(key)

    def on_head(self, peer: SimulatedPeer, head: State) -> None:
        """A peer's head moved: peers that are gone for good may stop, and what is due in the open round is proposed."""
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
        self._operators.submit_again(peer, head)
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
        """Stop each peer that is gone for good once the others have the block that says so: its vote may have been
        needed for the block, and lost on the way."""
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
        """Have one change submitted: by its member's operator, or by all that approve of it."""
        change = self._change(row, subject, head)
        needs_approval, operators = change.kind.needs_approval, [subject]
        if change.kind is ChangeKind.JOIN:
            subject.come(head)
        if needs_approval:
            operators = [peer for peer in active_peers(self._peers, head) if peer is not subject]
        if change.kind is ChangeKind.JOIN and len(self._batch) > 1 and self._is_troubled:
            for peer in operators:  # each node holds all of them as complete from now on, whatever gets lost
                change = change.approved(peer.key, self._genesis.chain_id) if peer.is_honest else change
        self._operators.submit(operators, head, ChangeSubmitted(change, approves=needs_approval))

    def _change(self, row: MemberChange, subject: SimulatedPeer, head: State) -> Change:
        """The change that a row means for one of its peers."""
        key, chain_id, kind = subject.key, self._genesis.chain_id, ChangeKind[row.kind.upper()]
        until, seat = head.height + HEIGHTS_VALID, head.roster.seats.get(subject.public_key)
        if kind is ChangeKind.JOIN:
            return self._join(row, subject, until)
        member, sequence = subject.public_key, 0
        if seat is not None:
            record = head.records[seat]
            member, sequence = record.came_with, record.decided if kind.needs_approval else record.sequence
        said = {"sequence": sequence, "until": until}
        if kind is ChangeKind.REMOVE:
            return propose_removal(member, row.reason, **said)
        if not kind.gives_key:
            return sign_change(key, chain_id, kind, text=row.reason, **said)
        following = self._following[subject.number] = PrivateKey(sha256(key.seed + b"next"))
        if kind is ChangeKind.REKEY:
            return sign_rekey(key, following, chain_id, text=row.reason, **said)
        return propose_recovery(member, following, chain_id, row.reason, **said)

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
        self._operators.submit(active_peers(self._peers, head), head, ChangeSubmitted(change, approves=True))


def _validate_amendments(genesis: Genesis, changes: Sequence[MemberChange]) -> None:
    """Raise ScenarioError for an amendment that no block would count, or with which nobody could train."""
    known, first = NO_AMENDMENTS, 1 if genesis.setup or len(genesis.phases) > 1 else 2  # behind the first block
    for row in sorted((row for row in changes if row.kind == "amend"), key=lambda row: row.round):
        number = max(row.round, first)
        known, begin = known.at(number), row.begin or number + ROUNDS_AHEAD
        try:
            amendment = amendment_of(amended_values(genesis, row.values), begin)
            expect_of_use(genesis, known, amendment.values)  # first: it names the setting of the method
            validate_amendment(genesis, known, amendment)
        except (InvalidGenesis, ConfigurationError) as error:
            raise ScenarioError(f"amend in round {row.round}: {error}") from None
        known = known.with_one(amendment)
