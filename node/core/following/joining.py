"""Joining: standing on a final block far above ours, by its certificate and the state that its header commits to.

Where every member votes, certificate and state prove themselves: a state's members are the founders, and whoever has no
vote in it has lost it by its own signatures. Where voters are drawn by a block's hash, a forged state could draw them.
If so few are drawn that all may be liars, more members than may lie have to hand out the same block; until as many say
that there is one, the chain is followed block by block from where we are, which needs nobody's word.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.exceptions import Refused, UnknownParent
from fedchain.chain.far_final import may_be_drawn_by_liars
from fedchain.chain.state import state_size_max
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey, Signature
from fedchain.network.messages import GetFinal
from fedchain.network.sync import STALL_MS
from fedchain.node.core.block_import import BlockImport
from fedchain.node.core.context import Context
from fedchain.node.core.effects import Blame, Send
from fedchain.node.core.notices import HeadUnconfirmed

WAITING_MAX = 8
"""Heads that may wait for their state or for confirmation at a time; a peer has one, however many it hands out."""

SPARE = 2
"""Members that are asked whether they have the same block beside those that are needed: some do not answer."""

CONFIRM_MS = 10_000
"""How long members are asked to confirm a head, before the chain is followed block by block; then they are again."""

CONFIRM_EVERY_MS = 60_000
"""How often they are: those that say that the chain is there need not be those that have it."""

_Copy = tuple[Hash, Signature, Hash]
"""A block, its miner's signature, and the certificate that came with it: all of which a liar could exchange."""


@dataclass(slots=True)
class _Head:
    """A head that waits for the state before it, or for confirmation."""

    block: Block
    certificate: Certificate
    holders: dict[PublicKey, None] = field(default_factory=dict)
    """Members that handed out exactly this."""
    asked: dict[PublicKey, int] = field(default_factory=dict)
    """When each of the other members was asked whether it has it."""

    @property
    def height(self) -> int:
        """Height of the block."""
        return self.block.header.height


class Joining:
    """Heads that this peer may join at."""

    def __init__(self, context: Context, blocks: BlockImport) -> None:
        self._context, self._blocks = context, blocks
        self._waiting: dict[_Copy, _Head] = {}
        self._needs_confirmation = may_be_drawn_by_liars(context.genesis, context.head.roster)
        self._state_size_max = state_size_max(context.genesis)
        self._asked_ms: dict[PublicKey, int] = {}  # when each member was asked to confirm something last
        self._confirms_since_ms: int | None = None  # since when so many speak of a far head that one could be confirmed
        self._is_told = False  # whether the operator knows what this node waits for at this height

    def may_join(self, gap: int) -> bool:
        """Whether heads more than ``gap`` blocks above ours are to be asked for: they could be proved to us."""
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
        """A head far above ours that a peer was asked for; whether we stand on it now.

        Raises:
            Invalid: nothing binds it, so nothing is fetched for it.
        """
        context = self._context
        context.checks.far_final(context.head.roster, block, certificate)
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

    def on_claim(self, height: int) -> None:
        """A peer says that its head is at ``height``: it may have what waits to be confirmed."""
        for head in self._waiting.values():
            if head.height <= height:
                self._ask(head)

    def on_tick(self) -> None:
        """Ask others in place of those that have not answered, and tell which members a silent node waits for."""
        context = self._context
        for head in self._waiting.values():
            self._ask(head)
            if head.block.header.state_root not in context.contents.downloads:  # there was no room for it
                self._fetch(head, next(iter(head.holders)))
        unconfirmed = self.unconfirmed()
        if unconfirmed and context.silent() and not self._is_told and context.since_head_ms >= CONFIRM_MS:
            self._is_told = True
            context.tell(unconfirmed)

    def unconfirmed(self) -> HeadUnconfirmed | None:
        """The head that more members would have to confirm before we join there."""
        context, required = self._context, self._context.catch_up.enough
        if not self._needs_confirmation or context.catch_up.confirmed > context.head.height:
            return None
        waiting = ((len(self._holders(head)), head.height) for head in self._waiting.values())
        members, height = max(waiting, default=(0, 0))
        if not members and (members := context.catch_up.claims_above(context.head.height)):
            height = context.catch_up.claimed_by(members)
        return HeadUnconfirmed(height, members, required) if 0 < members < required else None

    def on_content(self, content_hash: Hash) -> bool:
        """A content has come; whether it let us join."""
        copies = [copy for copy, head in self._waiting.items() if head.block.header.state_root == content_hash]
        return any(self._join(copy) for copy in copies)

    def forget_up_to(self, height: int) -> None:
        """Our head is at ``height``: who waited for less is not needed."""
        self._is_told = False
        self._drop([copy for copy, head in self._waiting.items() if head.height <= height])

    def states_wanted(self) -> set[Hash]:
        """States that are on their way."""
        return {head.block.header.state_root for head in self._waiting.values()}

    def sizes(self) -> Iterator[tuple[str, int]]:
        """How many of each kind are held, by the names that `Node.sizes` gives them."""
        yield "joinings", len(self._waiting)

    def _join(self, copy: _Copy) -> bool:
        """Stand on a head, once its state is here and enough members have it."""
        context, head = self._context, self._waiting[copy]
        data = context.contents.get(head.block.header.state_root)
        if data is None:
            return False
        is_confirmed = len(self._holders(head)) >= context.catch_up.enough
        try:
            self._blocks.join(head.block, head.certificate, data, is_confirmed=is_confirmed)
        except UnknownParent:
            return False  # until more members have it
        except Refused as error:  # it proves nothing, which whoever handed it out could have known
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
        """Fetch the state before a head from somebody that handed it out, too."""
        contents, root = self._context.contents, head.block.header.state_root
        if contents.get(root) is None:
            self._context.send(contents.fetch(root, holder, self._context.now.ms, self._state_size_max))

    def _holders(self, head: _Head) -> set[PublicKey]:
        """Members that handed out a block, with whatever certificate."""
        same = (other for other in self._waiting.values() if other.block.hash == head.block.hash)
        return {holder for other in same for holder in other.holders}

    def _ask(self, head: _Head) -> None:
        """Ask members that claim to be as far whether they have the same block, as many as it takes; each once.

        Nobody is asked to confirm more than one head within a stall: liars that each answer with another one would
        have us ask again without end.
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
        """A peer has one head that waits. Where there are too many, the one goes that the fewest hand out."""
        others = [head for known, head in self._waiting.items() if known != copy]
        for head in others:
            head.holders.pop(peer, None)
        self._drop([known for known, head in self._waiting.items() if not head.holders])
        if copy not in self._waiting and len(self._waiting) >= WAITING_MAX:
            self._drop([min(self._waiting, key=lambda known: len(self._holders(self._waiting[known])))])

    def _drop(self, copies: list[_Copy]) -> None:
        """Forget heads, and with the last that stands on a state fetch that no more."""
        roots = [self._waiting.pop(copy).block.header.state_root for copy in copies]
        self._context.contents.release(*roots)
