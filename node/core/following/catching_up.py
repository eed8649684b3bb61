"""Catching up: following final blocks one by one, joining at the head, and fetching older blocks in the background."""

from collections.abc import Callable, Iterator

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.exceptions import AlreadyKnown, Invalid, OutOfWindow, Refused
from fedchain.chain.membership.change import CHANGES_VERSION
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import LightMessage, Payloads, Status
from fedchain.network.sync import Wanted
from fedchain.node.core.answers import finals_that_fit
from fedchain.node.core.block_import import BlockImport
from fedchain.node.core.context import Context
from fedchain.node.core.following.backfill import Backfill
from fedchain.node.core.following.finals_ahead import FinalsAhead, HandedOut
from fedchain.node.core.following.joining import Joining
from fedchain.node.core.following.light_joining import LightJoining, Waypoint
from fedchain.node.core.following.proving import Proving
from fedchain.node.core.following.replay import Replay
from fedchain.node.core.jobs import Knowledge, Recompute, Verified, VerifySignatures
from fedchain.node.core.ledger import WINDOW
from fedchain.node.core.notices import HeadConflicts, HeadUnconfirmed

JOIN_GAP = WINDOW
"""Most blocks by which a peer may be behind and still follow the chain block by block."""


class CatchingUp:
    """Brings this peer to the head of the chain.

    Args:
        context: the node's memory.
        blocks: takes blocks.
        is_silent: whether nothing may be signed in our own name.
        replays: whether every missed aggregate is recomputed; then the peer never joins at a head.
        backfills: whether older blocks are fetched after joining.
        waypoint: height and hash of a block that the chain has to contain, where members change.
    """

    def __init__(
        self,
        context: Context,
        blocks: BlockImport,
        is_silent: Callable[[], bool],
        *,
        replays: bool,
        backfills: bool,
        waypoint: Waypoint | None = None,
    ) -> None:
        self._context, self._blocks, self._replays = context, blocks, replays
        self._backfill = Backfill(context, is_wanted=backfills)
        self._joining: Joining | LightJoining = (
            LightJoining(context, blocks, Proving(context), waypoint)
            if context.genesis.version >= CHANGES_VERSION
            else Joining(context, blocks, is_silent)
        )
        self.has_waypoint = waypoint is not None
        """Whether an invitation names a block, so that :meth:`expect_followed` has something to look at."""
        self._ahead = FinalsAhead(context)
        self._replay = Replay(context, blocks, self._ahead)

    def on_status(self, peer: PublicKey, status: Status) -> None:
        """A peer announces its head and the posts that it holds."""
        context = self._context
        context.catch_up.claim(peer, status.height)
        self._joining.on_claim(status.height)
        if status.height > context.head.height:
            self._ask()
        elif status.head_hash == context.head.block_hash:
            context.fetch_knowledge(peer)

    def on_tick(self) -> bool:
        """Ask again for everything that is missing; returns whether our head moved meanwhile."""
        context = self._context
        self._ask()
        has_joined = self._note_joined(self._joining.on_tick())
        self._backfill.on_tick()
        self._replay.on_tick()
        if context.peers:
            context.fetch_knowledge(next(iter(context.peers)))
        return has_joined or (self._replays and self.advance())  # a block may be given up by now

    def on_final(self, peer: PublicKey, block: Block, certificate: Certificate) -> bool:
        """Take a final block; returns whether it moved our head. Raises Refused."""
        if self._backfill.on_block(peer, block):
            return False
        context, found = self._context, HandedOut(peer, block, certificate)
        wanted = context.catch_up.take(peer, block.header.height)
        try:
            return self._take(found, wanted)
        except Invalid:
            context.catch_up.failed(peer, context.now.ms)
            self._ask()
            raise

    def _take(self, found: HandedOut, wanted: Wanted | None) -> bool:
        context, block, height = self._context, found.block, found.block.header.height
        if height <= context.head.height or self._replay.final(height) is not None:
            if wanted is not None and self._final(height) == block.hash:
                context.catch_up.delivered(found.peer, height, context.now.ms)
            raise AlreadyKnown("final block", f"height {height} is closed, our head is {context.head.height}")
        self._joining.expect_waypoint(block)
        is_bound = self._is_bound()
        if block.header.parent_hash == context.head.block_hash and not self._replays and not is_bound:
            self._follow(found)
            context.catch_up.delivered(found.peer, height, context.now.ms)
            return True
        if wanted is None:
            raise OutOfWindow("final block", f"height {height} found, it was not asked for")
        if wanted is Wanted.HEAD and height - context.head.height > (0 if is_bound else JOIN_GAP):
            return self._note_joined(self._joining.on_final(found.peer, block, found.certificate))
        self._ahead.keep(found)
        if self._replays:
            self._replay.verify(found)
        return self.advance()

    def expect_followed(self, block: Block) -> None:
        """Check that a block of the open height may become our head without being joined at. Raises Refused."""
        self._joining.expect_waypoint(block)
        if self._is_bound():
            raise OutOfWindow("candidate", f"height {block.header.height} found, the invitation's block comes first")

    def on_light(self, peer: PublicKey, message: LightMessage) -> bool:
        """Take a light block that leads to a head; returns whether we joined there. Raises Refused."""
        if self._replays:
            raise OutOfWindow("light block", "none was asked for")
        try:
            has_joined = self._joining.on_light(peer, message)
        finally:
            self._ask()
        return self._note_joined(has_joined)

    def _final(self, height: int) -> Hash | None:
        """The block that is known to be final at a height; None if there is none."""
        if height > self._context.head.height:
            return self._replay.final(height)
        found = self._context.ledger.final(height)
        return None if found is None else found[0].hash

    def on_payloads(self, peer: PublicKey, message: Payloads) -> bool:
        """Take payloads of a block that is replayed; returns whether our head moved."""
        self._replay.on_payloads(peer, message)
        return self.advance()

    def on_content(self, content_hash: Hash) -> bool:
        """A content has come; returns whether it let us join or follow, so that our head moved."""
        if self._replays:
            return self.advance()
        if self._joining.on_content(content_hash):
            return self._note_joined(True)
        self._ask()  # the content may have refuted a head, which frees its peer for another question
        return False

    def on_recomputed(self, job: Recompute, result: Knowledge | Refused) -> bool:
        """Knowledge was recomputed; returns whether it let us follow a block that is replayed."""
        if not self._replays:
            return False
        self._replay.on_recomputed(job, result)
        return self.advance()

    def on_verified(self, job: VerifySignatures, result: Verified) -> bool:
        """Signatures were verified; returns whether that let us follow a block that is replayed."""
        self._replay.on_verified(job, result)
        return self.advance()

    def on_head(self) -> None:
        """Our head moved: drop blocks up to its height that wait, and go on asking."""
        self._joining.forget_up_to(self._context.head.height)
        self._ahead.forget_up_to(self._context.head.height)
        self._replay.on_head()
        self._ask()

    def _note_joined(self, has_joined: bool) -> bool:
        if has_joined:
            self._backfill.on_joined()
        return has_joined

    def advance(self) -> bool:
        """Follow the next block, recomputed if that is required; returns whether our head moved."""
        if self._replays:
            found = self._replay.next()
        else:
            judged = self._ahead.next(self._context.head)
            found = None if judged is None else judged[0]
        if found is not None:
            self._follow(found)
        return found is not None

    def _is_bound(self) -> bool:
        return not self._replays and self._joining.is_bound()

    def _follow(self, found: HandedOut) -> None:
        self._blocks.on_final(found.block, found.certificate)
        self._context.fetch_knowledge(found.peer)  # the next block is recomputed from it

    def unconfirmed(self) -> HeadUnconfirmed | None:
        """The head that more members have to confirm before we join there; None if there is none, or we replay."""
        return None if self._replays else self._joining.unconfirmed()

    def conflict(self) -> HeadConflicts | None:
        """Two certified blocks of one height: no chain is gone on with; None if there are none, or we replay."""
        return None if self._replays else self._joining.conflict

    def contents_wanted(self) -> set[Hash]:
        """States that are on their way, and payloads of blocks that are replayed."""
        replayed = self._replay.contents_wanted() if self._replays else set()
        return self._joining.states_wanted() | replayed

    def sizes(self) -> Iterator[tuple[str, int]]:
        """Numbers of held items, by the names that `Node.sizes` gives them."""
        yield from self._joining.sizes()
        yield from self._ahead.sizes()

    def _ask(self) -> None:
        context, count = self._context, finals_that_fit(self._context.head)
        if self.conflict() is not None:
            return
        if not self._replays:
            gap_max = 0 if self._is_bound() else JOIN_GAP if self._joining.may_join(JOIN_GAP) else 2**63
            # Heads that lead nowhere must not keep us from the blocks next to ours.
            near, is_walking = (context.head.height, context.now.ms, gap_max, count), self._joining.is_occupied
            context.send(context.catch_up.ask(*near, is_walking=is_walking))
        elif self._replay.has_room:
            context.send(context.catch_up.ask(self._replay.height, context.now.ms, 2**63, count))
