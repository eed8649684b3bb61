"""Sweeping: memory and store let go of contents that no open phase, candidate or recent block refers to."""

from itertools import chain

from fedchain.crypto.hashing import Hash
from fedchain.node.core.block_import import BlockImport
from fedchain.node.core.contents.bulk import BulkParts
from fedchain.node.core.contents.retention import Window, contents_in_order
from fedchain.node.core.context import Context
from fedchain.node.core.effects import Retain
from fedchain.node.core.following.catching_up import CatchingUp
from fedchain.node.core.posts import Posts

RETAIN_STEPS = 8
"""Sweeps of the store while the head advances by one retention window."""


class Sweeping:
    """Sweeps memory at each head, and the store at some."""

    def __init__(
        self, context: Context, blocks: BlockImport, catching_up: CatchingUp, posts: Posts, bulk: BulkParts
    ) -> None:
        self._context, self._blocks, self._catching_up = context, blocks, catching_up
        self._posts, self._bulk = posts, bulk
        self._window = Window(context.ledger.final)

    def wanted(self) -> set[Hash]:
        """Contents needed for candidates, blocks above the head, posts under check, and work on the head."""
        of_blocks = self._blocks.payloads_wanted() | self._catching_up.contents_wanted()
        return of_blocks | self._posts.waiting_payloads() | self._context.head.knowledge_roots

    def on_head(self) -> None:
        """The head moved: let go of what only older blocks need."""
        context, height, fetched = self._context, self._context.head.height, self.wanted()
        recent = chain(contents_in_order(context.ledger.window()), [context.ledger.base_knowledge()])
        posts = {*context.mempool.payload_hashes()}
        context.contents.forget(posts | fetched, recent, fetched | self._bulk.wanted(), context.is_pending)
        window = context.head.rules.retention_blocks
        if not window:
            return
        sweep = next_sweep(height, window)
        self._window.follow(range(max(1, sweep - window), sweep + 1), height)
        if height == sweep:
            promised = {post.payload_hash for post in context.journal.posts}
            context.emit(Retain(frozenset(self._window.contents() | promised | {*recent})))


def next_sweep(height: int, retention_blocks: int) -> int:
    """The first height, from ``height`` on, at which the store is to be swept."""
    step = max(1, retention_blocks // RETAIN_STEPS)
    return -(-max(height, retention_blocks + 1) // step) * step
