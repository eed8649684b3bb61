"""Joining: moving the head to a final block far above it, by its certificate and the state that its header commits to.

If every member votes, certificate and state prove themselves: a state's members are the founders, and a member without
a vote in it has lost its vote by its own signatures. If voters are drawn by a block's hash, a forged state could draw
them. If so few are drawn that all may be liars, more members than may lie have to hand out the same block. Until as
many announce such a head, this peer follows the chain block by block, which requires no trust. Where the founding
document lets members change, see ``light_joining.py``.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.exceptions import OutOfWindow, Refused, UnknownParent
from fedchain.chain.light.far_final import may_be_drawn_by_liars, validate_far_final
from fedchain.chain.state import state_size_max
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey, Signature
from fedchain.network.messages import GetFinal, LightMessage
from fedchain.network.source import STALL_MS
from fedchain.node.core.block_import import BlockImport
from fedchain.node.core.context import Context
from fedchain.node.core.effects import Blame, Send
from fedchain.node.core.notices import HeadConflicts, HeadUnconfirmed

WAITING_MAX = 8
"""Most heads that wait for their state or for confirmation at a time; each peer has one, however many it hands out."""

SPARE = 2
"""Members that are asked for the same block in addition to those needed, since some do not answer."""

CONFIRM_MS = 10_000
"""How long members are asked to confirm a head before this peer follows the chain block by block for a while."""

CONFIRM_EVERY_MS = 60_000
"""Interval between the beginnings of such times: the members that announce a head need not have it."""

_Copy = tuple[Hash, Signature, Hash]
"""(block hash, miner's signature, certificate hash): a liar could exchange any of the three."""


@dataclass(slots=True)
class _Head:
    """A head that waits for the state before it, or for confirmation."""

    block: Block
    certificate: Certificate
    holders: dict[PublicKey, None] = field(default_factory=dict)
    """Members that handed out exactly this copy."""
    asked: dict[PublicKey, int] = field(default_factory=dict)
    """Times at which other members were asked for it."""

    @property
    def height(self) -> int:
        """Height of the block."""
        return self.block.header.height


class Joining:
    """Heads that this peer may join at."""

    def __init__(self, context: Context, blocks: BlockImport, is_silent: Callable[[], bool]) -> None:
        self._context, self._blocks, self._is_silent = context, blocks, is_silent
        self._waiting: dict[_Copy, _Head] = {}
        self._needs_confirmation = may_be_drawn_by_liars(context.genesis, context.head.roster)
        self._state_size_max = state_size_max(context.genesis)
        self._asked_ms: dict[PublicKey, int] = {}  # when each member was last asked to confirm a head
        self._confirms_since_ms: int | None = None  # since when enough members to confirm one announce a far head
        self._is_told = False  # whether the operator was told at this height that confirmation is missing

    @property
    def is_occupied(self) -> bool:
        """Whether no other head is to be asked for: never, several may wait."""
        return False

    @property
    def conflict(self) -> HeadConflicts | None:
        """Two certified blocks of one height: none, two certified heads are not compared."""
        return None

    def may_join(self, gap: int) -> bool:
        """Whether to ask for heads more than ``gap`` blocks above ours, because they could be proved to us."""
        context, now_ms = self._context, self._context.now.ms
        if not self._needs_confirmation:
            return True
        if context.catch_up.confirmed <= context.head.height + gap:
            self._confirms_since_ms = None
            return False
        if self._confirms_since_ms is None:
            self._confirms_since_ms = now_ms
        return (now_ms - self._confirms_since_ms) % CONFIRM_EVERY_MS < CONFIRM_MS

    def on_final(self, peer: PublicKey, block: Block, certificate: Certificate) -> bool:
        """Take a head far above ours that a peer was asked for; returns whether we joined there.

        Raises:
            Invalid: the block or its certificate is wrong, so nothing is fetched for it.
        """
        context = self._context
        validate_far_final(context.genesis, context.head.roster, block, certificate, context.signatures)
        copy = block.hash, block.signature, certificate.hash
        self._make_room(peer, copy)
        head = self._waiting.setdefault(copy, _Head(block, certificate))
        head.holders[peer] = None
        self._fetch(head, peer)
        if self._join(copy):
            return True
        if copy in self._waiting:
            self._ask(head)
        return False

    def is_bound(self) -> bool:
        """Whether the way has to lead over a block that an invitation names: never, members are the same for ever."""
        return False

    def expect_waypoint(self, block: Block) -> None:
        """Check a block that would be our head against the one that an invitation names: there is none."""

    def on_light(self, peer: PublicKey, message: LightMessage) -> bool:
        """Take a light block. Raises OutOfWindow: none is asked for."""
        raise OutOfWindow("light block", f"height {message.height} from {peer.hex()} found, none was asked for")

    def on_claim(self, height: int) -> None:
        """A peer announces a head at ``height``: it may be able to confirm heads that wait."""
        for head in self._waiting.values():
            if head.height <= height:
                self._ask(head)

    def on_tick(self) -> bool:
        """Ask others in place of members that have not answered; tell a silent node's operator what it waits for.

        Returns whether we joined: never, for that takes a block or a state to come.
        """
        context = self._context
        for head in self._waiting.values():
            self._ask(head)
            if head.block.header.state_root not in context.contents.downloads:  # there was no room for it
                self._fetch(head, next(iter(head.holders)))
        unconfirmed = self.unconfirmed()
        if unconfirmed and self._is_silent() and not self._is_told and context.since_head_ms >= CONFIRM_MS:
            self._is_told = True
            context.tell(unconfirmed)
        return False

    def unconfirmed(self) -> HeadUnconfirmed | None:
        """The head that more members have to confirm before we join there; None if there is none."""
        context, required = self._context, self._context.catch_up.enough
        if not self._needs_confirmation or context.catch_up.confirmed > context.head.height:
            return None
        waiting = ((len(self._holders(head)), head.height) for head in self._waiting.values())
        members, height = max(waiting, default=(0, 0))
        is_behind = context.catch_up.highest > context.head.height  # asked at each tick: as a rule nobody is ahead
        if not members and is_behind and (members := context.catch_up.claims_above(context.head.height)):
            height = context.catch_up.claimed_by(members)
        return HeadUnconfirmed(height, members, required) if 0 < members < required else None

    def on_content(self, content_hash: Hash) -> bool:
        """A content has come; returns whether it let us join."""
        copies = [copy for copy, head in self._waiting.items() if head.block.header.state_root == content_hash]
        return any(self._join(copy) for copy in copies)

    def forget_up_to(self, height: int) -> None:
        """Our head is at ``height``: drop waiting heads up to it."""
        self._is_told = False
        self._drop([copy for copy, head in self._waiting.items() if head.height <= height])

    def states_wanted(self) -> set[Hash]:
        """States that are on their way."""
        return {head.block.header.state_root for head in self._waiting.values()}

    def sizes(self) -> Iterator[tuple[str, int]]:
        """Numbers of held items, by the names that `Node.sizes` gives them."""
        yield "joinings", len(self._waiting)

    def _join(self, copy: _Copy) -> bool:
        """Join at a head, if its state is here and enough members have it; returns whether we did."""
        context, head = self._context, self._waiting[copy]
        data = context.contents.get(head.block.header.state_root)
        if data is None:
            return False
        is_confirmed = len(self._holders(head)) >= context.catch_up.enough
        try:
            self._blocks.join(head.block, head.certificate, data, is_confirmed=is_confirmed)
        except UnknownParent:
            return False  # until more members have it
        except Refused as error:  # it proves nothing, and those that handed it out could have known
            self._drop([copy])
            for holder in head.holders:
                context.emit(Blame(holder, error))
                context.catch_up.failed(holder, context.now.ms)
            return False
        self._drop([copy])
        for holder in head.holders:
            context.catch_up.delivered(holder, head.height, context.now.ms)
        context.fetch_knowledge(next(iter(head.holders)))
        return True

    def _fetch(self, head: _Head, holder: PublicKey) -> None:
        """Fetch the state before a head from a member that handed out the head."""
        contents, root = self._context.contents, head.block.header.state_root
        if contents.get(root) is None:
            self._context.send(contents.fetch(root, holder, self._context.now.ms, self._state_size_max))

    def _holders(self, head: _Head) -> set[PublicKey]:
        """Members that handed out the block, with any certificate."""
        same = (other for other in self._waiting.values() if other.block.hash == head.block.hash)
        return {holder for other in same for holder in other.holders}

    def _ask(self, head: _Head) -> None:
        """Ask as many members as necessary that announce such a height for the same block, each of them once.

        No member is asked to confirm more than one head within ``STALL_MS``: otherwise liars that each answer with
        another head would make us ask without end.
        """
        context, now_ms = self._context, self._context.now.ms
        if not self._needs_confirmation:
            return  # it proves itself
        holders = self._holders(head)
        waited_for = [
            peer for peer, asked_ms in head.asked.items() if peer not in holders and now_ms - asked_ms < STALL_MS
        ]
        room = context.catch_up.enough + SPARE - len(holders) - len(waited_for)
        able = (
            peer
            for peer in context.catch_up.at_least(head.height)
            if peer not in head.asked.keys() | holders and now_ms - self._asked_ms.get(peer, -STALL_MS) >= STALL_MS
        )
        for peer in islice(able, max(0, room)):
            head.asked[peer] = self._asked_ms[peer] = now_ms
            context.catch_up.expect(peer, head.height)
            context.emit(Send(peer, GetFinal(head.height, 1)))

    def _make_room(self, peer: PublicKey, copy: _Copy) -> None:
        """Keep one waiting head for each peer; if there are too many, drop the one with the fewest holders."""
        others = [head for known, head in self._waiting.items() if known != copy]
        for head in others:
            head.holders.pop(peer, None)
        self._drop([known for known, head in self._waiting.items() if not head.holders])
        if copy not in self._waiting and len(self._waiting) >= WAITING_MAX:
            self._drop([min(self._waiting, key=lambda known: len(self._holders(self._waiting[known])))])

    def _drop(self, copies: list[_Copy]) -> None:
        """Forget heads, and stop fetching states that none of the others needs."""
        roots = [self._waiting.pop(copy).block.header.state_root for copy in copies]
        self._context.contents.release(*roots)
