"""Joining where members change: certificates lead from where this peer stands to a head, and nobody's word is needed.

A state's members vouch for nothing here, since the state names them itself. So the head's header is verified first, as
a light client does (``chain/light/bisection.py``). Light blocks are asked of the peer that handed out the head. Blocks
that are verified stay so, whoever sent them: the next peer goes on from there. The state is fetched once the header
that names it is verified, and the block is judged on it by all rules.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.exceptions import Invalid, InvalidBlock, OutOfWindow, Refused
from fedchain.chain.genesis import NEWEST_VERSION
from fedchain.chain.light.bisection import Bisection, ConflictingBlocks, expect_proof
from fedchain.chain.light.far_final import validate_work
from fedchain.chain.light.light_block import LightBlock
from fedchain.chain.light.verification import LaterVersion, Trusted, trust_block, trust_genesis, validate_period
from fedchain.chain.state import state_size_max
from fedchain.chain.validation import validate_certificate, validate_claim, validate_roots
from fedchain.chain.vote import VoteKind
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import EvidenceMessage, GetLight, LightMessage
from fedchain.network.source import STALL_MS
from fedchain.node.core.block_import import BlockImport
from fedchain.node.core.context import Context
from fedchain.node.core.effects import Blame, Publish, Refuse, Send, Stop
from fedchain.node.core.following.finals_ahead import HandedOut
from fedchain.node.core.following.proving import Proving
from fedchain.node.core.notices import HeadConflicts, HeadUnconfirmed

LINE_MAX = 8
"""Most heads that wait at a time, one of each peer."""

TURN_MS = 10_000
"""How long one peer may lead to its head. The blocks that were verified by then stay so."""

PATIENCE_MAX = 3
"""How often that is doubled, once for each turn in a row that ended while the state came: the link may be slow."""

Waypoint = tuple[int, Hash]
"""Height and hash of a block that the chain has to contain."""


@dataclass(slots=True)
class _Walk:
    """The way to one head, led by the peer that handed it out."""

    head: HandedOut
    since_ms: int
    way: Bisection
    is_on_others: bool
    """Whether it begins at a block that another peer led to."""
    taken: int = 0
    """Blocks of the way that our own path has."""
    asked: GetLight | None = None
    """The question that is open."""
    asked_ms: int = 0
    fetched_ms: int | None = None
    """When the state before the head was asked for first; None: its header is not verified yet."""

    @property
    def peer(self) -> PublicKey:
        """32 bytes: the peer that leads."""
        return self.head.peer

    @property
    def height(self) -> int:
        """Height of the head."""
        return self.head.block.header.height


class LightJoining:
    """Heads that this peer may join at, one walk at a time.

    Args:
        context: the node's memory.
        blocks: takes blocks.
        proving: has our own light blocks.
        waypoint: a block that the chain has to contain, which an invitation names; None if there is none.
    """

    def __init__(
        self, context: Context, blocks: BlockImport, proving: Proving, waypoint: Waypoint | None = None
    ) -> None:
        self._context, self._blocks, self._proving, self._waypoint = context, blocks, proving, waypoint
        self._line: dict[PublicKey, HandedOut] = {}
        self._walk: _Walk | None = None
        self._trusted: Trusted | None = None  # the highest block that is verified; None before the first walk
        self._start: Trusted | None = None  # the first one of this walk: our head, or the founding document
        self._path: list[LightBlock] = []  # leads from what the store proves to the trusted one, both included
        self._state_size_max = state_size_max(context.genesis)
        self._patience = 0
        self.conflict: HeadConflicts | None = None
        """Two certified blocks of one height that were seen: no chain is gone on with then."""

    @property
    def is_occupied(self) -> bool:
        """Whether no other head is to be asked for: there is a way to go."""
        return bool(self._line)

    def may_join(self, gap: int) -> bool:
        """Whether to ask for heads more than ``gap`` blocks above ours, because they could be proved to us.

        Blocks are followed one by one where so few are drawn to vote that no height can be skipped, and where our head
        is older than the trust period.
        """
        context = self._context
        return context.catch_up.highest <= context.head.height + gap or self._may_skip()  # or there is none

    def is_bound(self) -> bool:
        """Whether nothing is believed but a way over the block that an invitation names, which is still above our head.

        Keys of members that are long gone certify another past block by block, too. Where no height can be skipped,
        blocks are followed all the same.
        """
        return self._waypoint is not None and self._context.head.height < self._waypoint[0] and self._may_skip()

    def expect_waypoint(self, block: Block) -> None:
        """Check a block that would be our head against the one that an invitation names. Raises InvalidBlock."""
        if self._waypoint is not None and block.header.height == self._waypoint[0]:
            _expect_named(block.hash, self._waypoint)

    def _may_skip(self) -> bool:
        context = self._context
        rules, members = context.head.rules, context.head.roster.active
        electors = min(rules.committee_size or members, members)
        if rules.fault_model.quorum(electors) <= rules.fault_model.faulty(members):
            return False
        if self._begin() is None or self._start is None:
            return False
        try:
            validate_period(self._start, context.now.clock_ms)
        except OutOfWindow:
            return False
        return True

    def on_final(self, peer: PublicKey, block: Block, certificate: Certificate) -> bool:
        """Take a head far above ours that a peer was asked for; returns whether we joined there.

        Raises Invalid: body, work or certificate are not the header's, so nothing is asked for it.
        """
        validate_roots(block)
        validate_work(self._context.genesis, block.header)
        validate_claim(certificate, VoteKind.PRECOMMIT, block.header.height, block.hash)
        self._line.setdefault(peer, HandedOut(peer, block, certificate))
        for other in list(islice(self._line, max(0, len(self._line) - LINE_MAX))):
            if self._walk is None or other != self._walk.peer:
                del self._line[other]
        return self._go_on()

    def on_light(self, peer: PublicKey, message: LightMessage) -> bool:
        """Take an answer of the peer that leads; returns whether we joined.

        Raises:
            OutOfWindow: it was not asked for.
            Invalid: it leads nowhere; the next peer's turn comes.
        """
        walk = self._walk
        if walk is None or walk.peer != peer or walk.asked is None or walk.asked.height != message.height:
            raise OutOfWindow("light block", f"height {message.height} found, it was not asked for")
        walk.asked = None
        if message.block is None:
            self._leave()
            return self._go_on()
        try:
            expect_proof(message.block)
            walk.way.take(message.block)
            self._keep(walk)
        except LaterVersion as error:
            self._stop(error)
            return False
        except Invalid:
            if self._waypoint is None or not walk.is_on_others or walk.way.trusted.height >= self._waypoint[0]:
                self._leave()
                raise
            # Below the waypoint somebody else may have led to another past: this peer leads from the beginning.
            self._trusted, self._path = None, []
            self._line = {peer: walk.head, **self._line}
            self._walk = None
        self._context.catch_up.goes_on(peer, self._context.now.ms)
        return self._go_on()

    def on_claim(self, height: int) -> None:
        """A peer announces a head: no number of peers makes one believable."""

    def on_tick(self) -> bool:
        """Pass over a peer that does not answer, or whose turn is over; returns whether we joined."""
        walk, now_ms = self._walk, self._context.now.ms
        if walk is None:
            return self._go_on()
        root = walk.head.block.header.state_root
        is_silent = walk.asked is not None and now_ms - walk.asked_ms >= STALL_MS
        # Peers have the states of a few heights alone: by now there may be a newer head.
        is_gone = walk.fetched_ms is not None and now_ms - walk.fetched_ms >= 2 * STALL_MS
        is_gone = is_gone and not self._context.contents.downloads.arrived(root)
        is_over = now_ms - walk.since_ms >= TURN_MS << self._patience
        if is_over and self._context.contents.downloads.arrived(root):
            self._patience = min(PATIENCE_MAX, self._patience + 1)
        if is_silent or is_gone or is_over:
            self._leave()
        return self._go_on()

    def on_content(self, content_hash: Hash) -> bool:
        """A content has come; returns whether it let us join."""
        walk = self._walk
        return walk is not None and walk.head.block.header.state_root == content_hash and self._go_on()

    def forget_up_to(self, height: int) -> None:
        """Our head is at ``height``: drop what waits up to it."""
        self._line = {peer: head for peer, head in self._line.items() if head.block.header.height > height}
        if self._walk is not None and self._walk.height <= height:
            self._stop_walking()
        if self._trusted is not None and self._trusted.height <= height:
            self._trusted, self._path, self._walk = None, [], None  # the next step begins at our head

    def states_wanted(self) -> set[Hash]:
        """States that are on their way."""
        walk = self._walk
        return {walk.head.block.header.state_root} if walk is not None and self._has_arrived(walk) else set()

    def unconfirmed(self) -> HeadUnconfirmed | None:
        """None: certificates are enough."""
        return None

    def sizes(self) -> Iterator[tuple[str, int]]:
        """Numbers of held items, by the names that `Node.sizes` gives them."""
        yield "joinings", len(self._line)

    def _go_on(self) -> bool:
        """Do the next step of the walk, or begin one to the next head in the line; returns whether we joined."""
        while self.conflict is None and (walk := self._walk or self._set_out()) is not None:
            if not walk.way.is_done:
                self._ask(walk)
                return False
            if not self._has_arrived(walk):
                self._turn(walk)  # beyond the waypoint
            elif not self._is_that_head(walk):
                self._leave()
            elif (data := self._context.contents.get(walk.head.block.header.state_root)) is None:
                self._fetch(walk)
                return False
            elif self._join(walk, data):
                return True
        return False

    def _set_out(self) -> _Walk | None:
        """Begin the walk to the first head in the line that is above the trusted block."""
        context, trusted = self._context, self._begin() if self._line else None
        for peer, head in list(self._line.items()):
            height, passed = head.block.header.height, 0 if self._waypoint is None else self._waypoint[0]
            if trusted is not None and height >= max(context.head.height + 1, trusted.height, passed):
                way = Bisection(context.genesis, trusted, self._next_stop(trusted, height), context.signatures)
                self._walk = _Walk(head, context.now.ms, way, is_on_others=trusted is not self._start)
                return self._walk
            del self._line[peer]
        return None

    def _stop(self, later: LaterVersion) -> None:
        """Members made a block final that this program could not judge: it comes to no head any more."""
        version, round_number = later.header.version, later.header.round
        self._context.emit(
            Stop(
                f"version {version} of the protocol is in force in round {round_number}, this program speaks versions "
                f"up to {NEWEST_VERSION}: start the node with a newer one"
            )
        )

    def _turn(self, walk: _Walk) -> None:
        """Go on to the head from the block that the way led to."""
        trusted = walk.way.trusted
        genesis, stop = self._context.genesis, self._next_stop(trusted, walk.height)
        walk.way, walk.taken = Bisection(genesis, trusted, stop, self._context.signatures), 0

    def _next_stop(self, trusted: Trusted, height: int) -> int:
        if self._waypoint is not None and trusted.height < self._waypoint[0]:
            return min(self._waypoint[0], height)
        return height

    def _begin(self) -> Trusted | None:
        """The highest block that is verified: our head at first, or the founding document.

        None: the block below our head is not held, so that nothing shows who decided it.
        """
        if self._trusted is None:
            genesis, settled = self._context.genesis, self._context.ledger.settled
            light = self._proving.of_head()
            if settled is None:
                self._trusted, self._path = trust_genesis(genesis), []
            elif light is not None:
                with suppress(Refused):  # the store was altered: the next start says so
                    block, signatures = settled.block, self._context.signatures
                    self._trusted = trust_block(genesis, block.hash, light, block.certificate, signatures)
                    self._path = [light]
            self._start = self._trusted
        return self._trusted

    def _keep(self, walk: _Walk) -> None:
        """Keep the blocks that the walk has verified. Raises InvalidBlock: they lead past the waypoint."""
        way, waypoint = walk.way, self._waypoint
        if waypoint is not None and way.trusted.height == waypoint[0]:
            try:
                _expect_named(way.trusted.block_hash, waypoint)
            except InvalidBlock:
                self._trusted, self._path = None, []  # another chain from somewhere below on
                raise
        self._path += way.path[walk.taken :]
        walk.taken, self._trusted = len(way.path), way.trusted

    def _has_arrived(self, walk: _Walk) -> bool:
        return walk.way.is_done and walk.way.trusted.height >= walk.height

    def _is_that_head(self, walk: _Walk) -> bool:
        """Whether the verified block is the one that was handed out; one that is certified as well is reported."""
        trusted, context = walk.way.trusted, self._context
        for head in [item for item in self._line.values() if item.block.header.height == trusted.height]:
            if head.block.hash != trusted.block_hash:
                self._report_if_certified(trusted, head)
        if trusted.block_hash == walk.head.block.hash:
            return self.conflict is None
        found = InvalidBlock("head", f"{walk.head.block.hash.hex()} found, {trusted.block_hash.hex()} is certified")
        context.emit(Refuse(walk.peer, found))
        return False

    def _report_if_certified(self, trusted: Trusted, head: HandedOut) -> None:
        """Stop, and say so, if the electors of a verified height certified another block of it."""
        context, block, certificate = self._context, head.block, head.certificate
        genesis, height = context.genesis, trusted.height
        try:
            validate_certificate(
                genesis,
                trusted.deciders,
                certificate,
                VoteKind.PRECOMMIT,
                height,
                block.hash,
                context.signatures,
            )
        except Invalid:
            return
        conflict = ConflictingBlocks(self._path[-1], LightBlock(genesis.chain_id, block.header, certificate))
        for crime in conflict.crimes:
            context.emit(Publish(EvidenceMessage(crime)))
        self.conflict = HeadConflicts(height, (trusted.block_hash, block.hash), conflict.signers)
        context.tell(self.conflict)

    def _ask(self, walk: _Walk) -> None:
        """Ask the peer that leads for the next block."""
        if walk.asked is None:
            walk.asked, walk.asked_ms = GetLight(walk.way.wanted, *walk.way.gap), self._context.now.ms
            self._context.emit(Send(walk.peer, walk.asked))

    def _fetch(self, walk: _Walk) -> None:
        """Fetch the state before the head; others are asked as well if that peer does not have it."""
        context, root = self._context, walk.head.block.header.state_root
        if walk.fetched_ms is None:
            walk.fetched_ms = context.now.ms
        if root not in context.contents.downloads:  # or there was no room for it before
            context.send(context.contents.fetch(root, walk.peer, context.now.ms, self._state_size_max))

    def _join(self, walk: _Walk, data: bytes) -> bool:
        """Stand on a verified head; returns whether the block holds on its state."""
        context, head = self._context, walk.head
        try:
            self._blocks.join(head.block, head.certificate, data, path=tuple(self._path))
        except Refused as error:  # its header is right, so its body or its certificate is not
            context.emit(Blame(walk.peer, error))
            self._leave()
            return False
        context.catch_up.delivered(walk.peer, walk.height, context.now.ms)
        context.fetch_knowledge(walk.peer)
        self._stop_walking()
        self._patience = 0
        return True

    def _leave(self) -> None:
        """The peer that leads does not get us any further: others are asked."""
        if self._walk is not None:
            self._context.catch_up.failed(self._walk.peer, self._context.now.ms)
            self._stop_walking()

    def _stop_walking(self) -> None:
        walk, self._walk = self._walk, None
        if walk is not None:
            self._line.pop(walk.peer, None)
            self._context.contents.release(walk.head.block.header.state_root)


def _expect_named(found: Hash, waypoint: Waypoint) -> None:
    height, named = waypoint
    if found != named:
        words = f"{found.hex()} found at height {height}, it names {named.hex()}: another chain than the inviter's"
        raise InvalidBlock("invitation", words)
