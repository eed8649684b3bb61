"""The change pool: proposed changes of the membership that no final block counts yet, with their approvals."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

from fedchain.chain.exceptions import LimitReached, Refused
from fedchain.chain.genesis import Genesis
from fedchain.chain.membership.change import Approval, Change, ChangeKind
from fedchain.chain.membership.rules import approvals_required, validate_change, validate_room
from fedchain.chain.state import State
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.crypto.signatures import SignatureCheck

REPEAT_MS = 5_000
"""Interval at which one more peer is sent what is open here: gossip may be lost."""

OPEN_MAX = 8
"""Open changes that one member may approve at a time, so that a liar cannot fill the pool."""


@dataclass(slots=True)
class _Open:
    """A change that is open."""

    change: Change
    complete_ms: int | None = None
    """Since when enough members approve of it, by the monotonic clock; None if they do not."""


class ChangePool:
    """Open changes by their hashes.

    A change that has to be approved is kept on the word of members that approve of it, ``OPEN_MAX`` each; any other is
    its member's own, one of each, and the one that gives it another key where there is one. So it is bounded by the
    number of members.
    """

    def __init__(self) -> None:
        self._open: dict[Hash, _Open] = {}

    def __iter__(self) -> Iterator[Change]:
        return (item.change for item in self._open.values())

    def __len__(self) -> int:
        return len(self._open)

    def get(self, change_hash: Hash) -> Change | None:
        """The open change with this hash, and all approvals of it that are known; None if it is not open."""
        found = self._open.get(change_hash)
        return None if found is None else found.change

    def add(self, genesis: Genesis, head: State, change: Change, now_ms: int) -> None:
        """Keep a valid change with its approvals, in place of what is known of it.

        An approval is left out if its approver has given its word for too many others; it may stand beside those of
        others only to have them refused with it.

        Raises LimitReached: no approval is left that is new, or the member's own changes are too many.
        """
        others = [item.change for key, item in self._open.items() if key != change.hash]
        if not change.kind.needs_approval:
            self._replace_own(change, others)
        else:
            known = self.get(change.hash)
            change = _with_room(change, known.approvals if known is not None else (), others)
        item = self._open.setdefault(change.hash, _Open(change))
        item.change = change
        self._look(genesis, head, item, now_ms)

    def _replace_own(self, change: Change, others: Sequence[Change]) -> None:
        """Make room for a member's own change. Raises LimitReached: another one of it is open.

        Another key takes the place of what the member asked for before, which may wait for others for ever: a stolen
        key must not.
        """
        own = [other for other in others if other.member == change.member and not other.kind.needs_approval]
        if any(other.kind is ChangeKind.REKEY for other in own) or (own and change.kind is not ChangeKind.REKEY):
            raise LimitReached("changes", f"another one of {change.member.hex()[:16]}… is open")
        for other in own:
            del self._open[other.hash]

    def on_head(self, genesis: Genesis, head: State, is_valid_signature: SignatureCheck, now_ms: int) -> None:
        """The head moved: drop approvals and changes that no block can count, and changes that nobody vouches for.

        A member that takes another key, or goes and comes back, could otherwise give its word for ever more of them.
        """
        for item in list(self._open.values()):
            kept = (given for given in item.change.approvals if head.roster.is_active(given.approver))
            item.change = item.change.approved_by(kept)
            try:
                _expect_voucher(item.change)
                validate_change(genesis, head, item.change, is_valid_signature)
            except Refused:
                del self._open[item.change.hash]
                continue
            self._look(genesis, head, item, now_ms)

    def for_block(self, genesis: Genesis, head: State, before_ms: int | None = None) -> tuple[Change, ...]:
        """Changes for the next block, in block order: complete ones (since before ``before_ms``), as many as fit.

        Those that have been complete for longest have the room: members choose the hashes of their changes, and some
        that take other keys all the time would leave no room to anybody else.
        """
        if not self._open:
            return ()
        complete = ((item.complete_ms, item.change) for item in self._open.values() if item.complete_ms is not None)
        due = [(since_ms, change) for since_ms, change in complete if before_ms is None or since_ms < before_ms]
        chosen: list[Change] = []
        for _, change in sorted(due, key=lambda item: (item[0], item[1].hash)):
            if fits(genesis, head, (*chosen, change)):
                chosen.append(change)
        return tuple(sorted(chosen, key=lambda change: change.hash))

    def _look(self, genesis: Genesis, head: State, item: _Open, now_ms: int) -> None:
        if len(item.change.approvals) < approvals_required(genesis, head, item.change.kind):
            item.complete_ms = None
        elif item.complete_ms is None:
            item.complete_ms = now_ms


def fits(genesis: Genesis, head: State, changes: Sequence[Change]) -> bool:
    """Whether one block has room for valid changes."""
    try:
        validate_room(genesis, head, changes)
    except Refused:
        return False
    return True


def _with_room(change: Change, held: Sequence[Approval], others: Sequence[Change]) -> Change:
    """A change with the approvals that are held, and those of approvers that have room. Raises LimitReached."""
    _expect_voucher(change)
    approvers = {given.approver for given in held}
    new = [given for given in change.approvals if given.approver not in approvers]
    counts = {given.approver: sum(_is_approved_by(other, given.approver) for other in others) for given in new}
    taken = [given for given in new if counts[given.approver] < OPEN_MAX]
    if new and not taken:
        approver, count = max(counts.items(), key=itemgetter(1))
        raise LimitReached("changes", f"{approver.hex()[:16]}… approves of {count} others")
    return change.approved_by((*held, *taken))


def _expect_voucher(change: Change) -> None:
    if change.kind.needs_approval and not change.approvals:
        raise LimitReached("changes", "no member vouches for it")


def _is_approved_by(change: Change, approver: PublicKey) -> bool:
    return any(approval.approver == approver for approval in change.approvals)
