"""Replay: following every final block and recomputing its aggregate, for whoever takes nobody's word for it."""

from dataclasses import dataclass

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.knowledge import missing_contents
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.node.core.block_import import BlockImport, recompute_job
from fedchain.node.core.context import Context

AHEAD_MAX = 32
"""Blocks above the head that may wait for their payloads."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """A final block whose turn has come."""

    peer: PublicKey
    """32 bytes: who handed it out."""
    block: Block
    certificate: Certificate


class Replay:
    """Blocks that wait until their payloads are here and those below them were recomputed."""

    def __init__(self, context: Context, blocks: BlockImport) -> None:
        self._context, self._blocks = context, blocks
        self._waiting: dict[int, Replayed] = {}  # by height

    def take(self, peer: PublicKey, block: Block, certificate: Certificate) -> None:
        """Keep a block near the head, and fetch its payloads. Whether it is final is judged when its turn comes."""
        context, height = self._context, block.header.height
        if 0 < height - context.head.height <= AHEAD_MAX and height not in self._waiting:
            self._waiting[height] = Replayed(peer, block, certificate)
            if not self._is_given_up(height):
                context.send(context.contents.fetch_payloads(block.transactions, peer, context.now.ms))

    def next(self) -> Replayed | None:
        """The block on the head, once its aggregate is recomputed. Raises Refused if it cannot be."""
        context, height = self._context, self._context.head.height + 1
        found = self._waiting.get(height)
        if found is None:
            return None
        posts = found.block.transactions
        if not self._is_given_up(height):
            if missing_contents(context.head, posts, context.content):
                return None
            del self._waiting[height]
            result = context.checks.recompute(recompute_job(context, posts))
            if result.root != found.block.header.knowledge_root:
                self._blocks.contradict(found.block, result.root)
            else:
                context.contents.put(result.root, result.data)
        self._waiting.pop(height, None)
        return found

    def contents_wanted(self) -> set[Hash]:
        """Payloads of the blocks that wait."""
        return {post.payload_hash for item in self._waiting.values() for post in item.block.transactions}

    def forget_up_to(self, height: int) -> None:
        """Our head is at ``height``."""
        self._waiting = {above: item for above, item in self._waiting.items() if above > height}

    def _is_given_up(self, height: int) -> bool:
        """Whether others need not have kept the payloads of a height any more: it is taken on its certificate."""
        window = self._context.genesis.retention_blocks
        return 0 < window <= self._context.catch_up.claimed_by(1) - height
