"""Changes: takes proposals and approvals of changes of the membership, and passes them on until a block counts them."""

from collections.abc import Callable

from fedchain.chain.exceptions import AlreadyKnown, InvalidChange
from fedchain.chain.membership.change import Change
from fedchain.chain.membership.rules import validate_change
from fedchain.chain.membership.succession import successor_of
from fedchain.crypto.address import address
from fedchain.network.messages import ChangeMessage
from fedchain.node.core.context import Context
from fedchain.node.core.effects import Publish, Send, Stop
from fedchain.node.core.membership.change_pool import REPEAT_MS


class Changes:
    """Collects changes that are open."""

    def __init__(self, context: Context, is_silent: Callable[[], bool], speaks: int) -> None:
        self._context, self._is_silent, self._speaks = context, is_silent, speaks
        self._repeated_ms = 0
        self._turn = 0

    def submit(self, change: Change, *, approves: bool) -> None:
        """Take a change from our operator, with our approval if the operator gives it, and publish it. Raises Refused.

        A node that signs nothing now does not approve either.
        """
        context = self._context
        if approves and not self._is_silent():
            change = change.approved(context.key, context.genesis.chain_id)
        self.on_change(change)
        merged = context.changes.get(change.hash)
        assert merged is not None, "it was taken"
        context.emit(Publish(ChangeMessage(merged)))

    def on_change(self, change: Change) -> None:
        """Take a change, or more approvals of one, from a peer. Raises Refused."""
        context = self._context
        if len(change.approvals) > len(context.head.roster):  # before any of them is checked
            raise InvalidChange("approvals", f"{len(change.approvals)} found, {len(context.head.roster)} members")
        known = context.changes.get(change.hash)
        if known is not None:
            held = {approval.approver for approval in known.approvals}
            new = [approval for approval in change.approvals if approval.approver not in held]
            if not new:
                raise AlreadyKnown("change", f"{change.hash.hex()} is held with all of these approvals")
            # The held signature is the member's own; another one over the same change would be as good.
            change = known.approved_by((*known.approvals, *new))
        validate_change(context.genesis, context.head, change, context.signatures)
        context.changes.add(context.genesis, context.head, change, context.now.ms)

    def on_head(self) -> None:
        """The head moved."""
        context = self._context
        self.look_at_head()
        if len(context.changes):
            context.changes.on_head(context.genesis, context.head, context.signatures, context.now.ms)

    def look_at_head(self) -> None:
        """Stop where this node cannot go on, also if it is so from the start.

        Its key was replaced: its owner goes on with the new one, and nobody lets the former one in. Or it comes to a
        round of a version that this program does not know, in which it could neither judge nor sign.
        """
        head = self._context.head
        following = successor_of(head.roster, head.records, self._context.me)
        if following is not None:
            reason = f"this key was replaced by {address(following)}, as of height {head.height}"
            self._context.emit(Stop(f"{reason}: start the node with that key"))
        if head.rules.version > self._speaks and not head.finished:
            begins = f"with round {head.round} begins version {head.rules.version} of the protocol"
            reason = f"{begins}, this program speaks versions up to {self._speaks}: start the node with a newer one"
            self._context.emit(Stop(reason))

    def on_tick(self) -> None:
        """Send what is open to the peer whose turn it is."""
        context = self._context
        if not len(context.changes) or context.now.ms - self._repeated_ms < REPEAT_MS or not context.peers:
            return
        self._repeated_ms = context.now.ms
        peers = context.peers.in_order
        self._turn = (self._turn + 1) % len(peers)
        for change in context.changes:
            context.emit(Send(peers[self._turn], ChangeMessage(change)))
