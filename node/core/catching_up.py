"""Catching up: following final blocks one by one, joining at the head, and fetching older blocks in the background."""

from dataclasses import dataclass

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.exceptions import AlreadyKnown, OutOfWindow, Refused
from fedchain.chain.knowledge import missing_contents
from fedchain.chain.state import decode_state
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import Status
from fedchain.node.core.backfill import Backfill
from fedchain.node.core.block_import import BlockImport, recompute_job
from fedchain.node.core.context import Context
from fedchain.node.core.effects import Refuse
from fedchain.node.core.ledger import WINDOW

JOIN_GAP = WINDOW
"""Blocks by which a peer may be behind and still follow them one by one."""

JOININGS_MAX = 4
"""Heads that may wait for their state at a time."""


@dataclass(frozen=True, slots=True)
class _Joining:
    """A head that waits for the state before it."""

    peer: PublicKey
    block: Block
    certificate: Certificate


class CatchingUp:
    """Brings this peer to where the others are.

    Args:
        context: the node's memory.
        blocks: takes blocks.
        replays: whether every missed aggregate is recomputed. Nothing is joined then.
        backfills: whether older blocks are fetched after joining.
    """

    def __init__(self, context: Context, blocks: BlockImport, *, replays: bool, backfills: bool) -> None:
        self._context, self._blocks, self._replays = context, blocks, replays
        self._backfill = Backfill(context, is_wanted=backfills)
        self._joinings: dict[Hash, _Joining] = {}  # by the root of the state that is awaited
        self._replaying: tuple[PublicKey, Block, Certificate] | None = None

    def on_status(self, peer: PublicKey, status: Status) -> None:
        """A peer says where it is, and which posts it holds."""
        context = self._context
        context.catch_up.claim(peer, status.height)
        if status.height > context.head.height:
            self._ask()
        elif status.head_hash == context.head.block_hash and context.knowledge() is None:
            context.send(context.contents.fetch(context.head.knowledge_root, peer, context.now.ms))

    def on_tick(self) -> None:
        """Ask again, and for what else is missing."""
        context = self._context
        self._ask()
        self._backfill.on_tick()
        if context.knowledge() is None and context.peers:
            peer = next(iter(context.peers))
            context.send(context.contents.fetch(context.head.knowledge_root, peer, context.now.ms))

    def on_final(self, peer: PublicKey, block: Block, certificate: Certificate) -> bool:
        """A final block; whether it moved our head. Raises Refused."""
        context, height = self._context, block.header.height
        if self._backfill.on_block(block):
            return False
        if height <= context.head.height:
            raise AlreadyKnown("final block", f"height {height} is closed, our head is {context.head.height}")
        if block.header.parent_hash == context.head.block_hash:
            if self._replays and not self._is_recomputed(peer, block, certificate):
                return False
            self._blocks.on_final(block, certificate)
            context.catch_up.delivered(peer, height, context.now.ms)
            return True
        if height - context.head.height <= JOIN_GAP or self._replays:
            raise OutOfWindow("final block", f"height {height} found, our head is {context.head.height}")
        self._await_state(peer, block, certificate)
        return False

    def on_content(self, content_hash: Hash) -> bool:
        """A content has come; whether it let us join, so that our head moved."""
        context = self._context
        if self._replaying is not None:
            peer, block, certificate = self._replaying
            return self._try(peer, block, certificate)
        joining = self._joinings.pop(content_hash, None)
        data = context.contents.get(content_hash)
        if joining is None or data is None or not self._is_confirmed(joining.block):
            return False
        try:
            before = decode_state(context.genesis, data)
            self._blocks.join(joining.block, joining.certificate, before)
        except Refused as error:
            context.emit(Refuse(joining.peer, error))
            return False
        self._backfill.on_joined()
        context.catch_up.delivered(joining.peer, joining.block.header.height, context.now.ms)
        return True

    def on_head(self) -> None:
        """Our head moved: who waited for less is not needed; go on asking."""
        height = self._context.head.height
        self._joinings = {root: j for root, j in self._joinings.items() if j.block.header.height > height}
        self._replaying = None
        self._ask()

    def contents_wanted(self) -> set[Hash]:
        """States that are on their way, and what a replayed block waits for."""
        wanted = set(self._joinings)
        if self._replaying is not None:
            wanted |= {post.payload_hash for post in self._replaying[1].transactions}
        return wanted

    def _ask(self) -> None:
        context = self._context
        gap_max = 2**63 if self._replays else JOIN_GAP
        if self._replaying is None:
            context.send(context.catch_up.ask(context.head.height, context.now.ms, gap_max))

    def _await_state(self, peer: PublicKey, block: Block, certificate: Certificate) -> None:
        context, root = self._context, block.header.state_root
        if root not in self._joinings and len(self._joinings) >= JOININGS_MAX:
            lowest = min(self._joinings, key=lambda known: self._joinings[known].block.header.height)
            del self._joinings[lowest]
        self._joinings[root] = _Joining(peer, block, certificate)
        context.send(context.contents.fetch(root, peer, context.now.ms))

    def _is_confirmed(self, block: Block) -> bool:
        """Where voters are drawn, a forged state could draw them: more peers than may lie have to be as far."""
        context = self._context
        if not context.genesis.committee_size:
            return True
        faulty = context.genesis.fault_model.faulty(len(context.peers))
        return context.catch_up.claimed_by(faulty + 1) >= block.header.height

    # replay

    def _is_recomputed(self, peer: PublicKey, block: Block, certificate: Certificate) -> bool:
        """Whether a missed block's aggregate is right; False while its payloads are fetched.

        What others need not have kept any more is taken on the certificate. Raises Refused.
        """
        context, posts = self._context, block.transactions
        behind = context.catch_up.claimed_by(1) - block.header.height
        if 0 < context.genesis.retention_blocks <= behind:
            return True
        if missing_contents(context.head, posts, context.content):
            self._replaying = peer, block, certificate
            context.send(context.contents.fetch_payloads(posts, peer, context.now.ms))
            if context.knowledge() is None:
                context.send(context.contents.fetch(context.head.knowledge_root, peer, context.now.ms))
            return False
        result = context.checks.recompute(recompute_job(context, posts))
        if result.root != block.header.knowledge_root:
            self._blocks.contradict(block, result.root)
        else:
            context.contents.put(result.root, result.data)
        return True

    def _try(self, peer: PublicKey, block: Block, certificate: Certificate) -> bool:
        self._replaying = None
        try:
            return self.on_final(peer, block, certificate)
        except Refused as error:
            self._context.emit(Refuse(peer, error))
            return False
