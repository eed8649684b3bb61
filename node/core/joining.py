"""Joining: standing on a final block far above ours, by its certificate and the state that its header commits to.

Where every member votes, certificate and state prove themselves: a state's members are the founders, and whoever has no
vote in it has lost it by its own signatures. Where voters are drawn by a block's hash, a forged state could draw them,
so several of the connected peers have to hand out the same block.
"""

from dataclasses import dataclass, field
from itertools import islice

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.exceptions import OutOfWindow, Refused, UnknownParent
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import GetFinal
from fedchain.network.sync import STALL_MS
from fedchain.node.core.block_import import BlockImport
from fedchain.node.core.context import Context
from fedchain.node.core.effects import Blame, Send

WAITING_MAX = 8
"""Heads that may wait for their state at a time, each from another peer; the one that has waited longest goes."""

SPARE = 2
"""Peers that are asked whether they have the same block beside those that are needed: some do not answer."""


@dataclass(slots=True)
class _Head:
    """A head that waits for the state before it."""

    block: Block
    certificate: Certificate
    source: PublicKey
    """32 bytes: who handed it out first."""
    holders: set[PublicKey] = field(default_factory=set)
    """Peers that handed it out."""
    asked: dict[PublicKey, int] = field(default_factory=dict)
    """When each of the other peers was asked whether it has it."""


class Joining:
    """Heads that this peer may join at."""

    def __init__(self, context: Context, blocks: BlockImport) -> None:
        self._context, self._blocks = context, blocks
        self._waiting: dict[Hash, _Head] = {}  # by the block's hash

    def on_final(self, peer: PublicKey, block: Block, certificate: Certificate) -> bool:
        """A head far above ours; whether we stand on it now. Raises OutOfWindow."""
        context = self._context
        head = self._waiting.get(block.hash)
        if head is None:
            if not context.catch_up.was_asked(peer, block.header.height):
                raise OutOfWindow("final block", f"height {block.header.height} found, it was not asked for")
            self._make_room(peer)
            head = self._waiting[block.hash] = _Head(block, certificate, peer)
            context.send(context.contents.fetch(block.header.state_root, peer, context.now.ms))
        head.holders.add(peer)
        if self._join(head):
            return True
        self._ask(head)
        return False

    def on_claim(self, height: int) -> None:
        """A peer says that its head is at ``height``: it may have what waits to be confirmed."""
        for head in self._waiting.values():
            if _height(head) <= height:
                self._ask(head)

    def on_tick(self) -> None:
        """Ask others in place of those that have not answered."""
        for head in self._waiting.values():
            self._ask(head)

    def _ask(self, head: _Head) -> None:
        """Ask peers that claim to be as far whether they have the same block, as many as it takes; each once."""
        context, now_ms = self._context, self._context.now.ms
        if not context.genesis.committee_size:
            return  # it proves itself
        waited_for = [
            peer for peer, asked_ms in head.asked.items() if peer not in head.holders and now_ms - asked_ms < STALL_MS
        ]
        room = self._holders_required() + SPARE - len(head.holders) - len(waited_for)
        able = (
            peer for peer in context.catch_up.at_least(_height(head)) if peer not in head.asked.keys() | head.holders
        )
        for peer in islice(able, max(0, room)):
            head.asked[peer] = now_ms
            context.emit(Send(peer, GetFinal(_height(head), 1)))

    def _make_room(self, peer: PublicKey) -> None:
        """A peer has one head that waits: one that sends many takes only its own place."""
        mine = [item for item, head in self._waiting.items() if head.source == peer]
        oldest = [] if mine or len(self._waiting) < WAITING_MAX else [next(iter(self._waiting))]
        for item in mine or oldest:
            del self._waiting[item]

    def on_content(self, content_hash: Hash) -> bool:
        """A content has come; whether it let us join."""
        found = [head for head in self._waiting.values() if head.block.header.state_root == content_hash]
        return any(self._join(head) for head in found)

    def forget_up_to(self, height: int) -> None:
        """Our head is at ``height``: who waited for less is not needed."""
        self._waiting = {item: head for item, head in self._waiting.items() if _height(head) > height}

    def states_wanted(self) -> set[Hash]:
        """States that are on their way."""
        return {head.block.header.state_root for head in self._waiting.values()}

    def _join(self, head: _Head) -> bool:
        """Stand on a head, once its state is here and enough peers have it."""
        context = self._context
        data = context.contents.get(head.block.header.state_root)
        if data is None:
            return False
        is_confirmed = len(head.holders) >= self._holders_required()
        try:
            self._blocks.join(head.block, head.certificate, data, is_confirmed=is_confirmed)
        except UnknownParent:
            return False  # until more peers have it
        except Refused as error:  # it proves nothing, which whoever handed it out could have known
            del self._waiting[head.block.hash]
            context.emit(Blame(head.source, error))
            return False
        del self._waiting[head.block.hash]
        context.catch_up.delivered(head.source, _height(head), context.now.ms)
        context.fetch_knowledge(head.source)
        return True

    def _holders_required(self) -> int:
        """Peers that must have the block: more than may lie of as many as vote, or all that are connected."""
        context = self._context
        faulty = context.genesis.fault_model.faulty(len(context.head.electors))
        return max(1, min(len(context.peers), faulty + 1))


def _height(head: _Head) -> int:
    return head.block.header.height
