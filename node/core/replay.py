"""Replay: following every final block and recomputing its aggregate, for whoever takes nobody's word for it.

While one block is judged and stored, the shell has the signatures of those that follow verified.
"""

from fedchain.chain.block import Block
from fedchain.chain.exceptions import MethodFailed, Refused
from fedchain.chain.signatures import Signed
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import GetPayloads, Payloads
from fedchain.network.sync import STALL_MS
from fedchain.node.core.block_import import BlockImport, recompute_job
from fedchain.node.core.context import Context
from fedchain.node.core.effects import Compute, Send
from fedchain.node.core.finals_ahead import FinalsAhead, HandedOut
from fedchain.node.core.jobs import Knowledge, Recompute, Verified, VerifySignatures


class Replay:
    """Blocks that wait until their payloads are here and those below them were recomputed."""

    def __init__(self, context: Context, blocks: BlockImport, ahead: FinalsAhead) -> None:
        self._context, self._blocks, self._ahead = context, blocks, ahead
        self._judged: HandedOut | None = None  # the block on the head: it is final, and waits for payloads
        self._payloads_here = 0  # of so many of its posts, from the first on
        self._is_computing = False  # whether the shell recomputes its knowledge, which takes long
        self._recomputed: Knowledge | Refused | None = None  # what came of that
        self._asked: dict[Hash, tuple[PublicKey, int]] = {}  # who was asked for all payloads of a block, and when
        self._verifying: dict[Hash, tuple[Signed, ...]] = {}  # by block: what the shell is looking at
        self._in_hand: set[Signed] = set()  # all of that: most votes for a block stand in the next one, too

    def verify(self, found: HandedOut) -> None:
        """Have the signatures of a block that is kept verified before its turn comes."""
        if found.block.hash in self._verifying:
            return
        unverified = self._context.checks.unverified(found.block, found.certificate)
        if signed := tuple(item for item in unverified if item not in self._in_hand):
            self._verifying[found.block.hash] = signed
            self._in_hand.update(signed)
            self._context.emit(Compute(VerifySignatures(found.block.hash, signed)))

    def on_verified(self, job: VerifySignatures, result: Verified) -> None:
        """The shell has looked at signatures; those that are not among the valid ones are looked at in their turn."""
        self._in_hand.difference_update(self._verifying.pop(job.block_hash, ()))
        self._context.checks.note_verified(job.signed[: result.count])

    def fetch(self, found: HandedOut) -> None:
        """Fetch the payloads of a block that is kept: the small ones at once."""
        context, peer, block, height = self._context, found.peer, found.block, found.block.header.height
        if self._is_given_up(height) or block.hash in self._asked:
            return
        if all(post.payload_size <= context.genesis.inline_size_max for post in block.transactions):
            self._asked[block.hash] = peer, context.now.ms
            context.emit(Send(peer, GetPayloads(height)))
        else:
            self._fetch_each(block, peer)

    def on_payloads(self, peer: PublicKey, message: Payloads) -> None:
        """Payloads of a block come at once; what is missing among them is fetched one by one."""
        found = self._ahead.of(peer, message.height)
        if found is None or self._asked.get(found.block.hash, (b"", 0))[0] != peer:
            return
        expected = {post.payload_hash for post in found.block.transactions}
        for payload in message.payloads:
            if (content_hash := sha256(payload)) in expected:
                self._context.contents.put(content_hash, payload)
        self._fetch_each(found.block, peer)

    def on_tick(self) -> None:
        """Fetch one by one what was asked for at once and has not come."""
        now_ms = self._context.now.ms
        for found in self._ahead:
            _, asked_ms = self._asked.get(found.block.hash, (b"", now_ms))
            if now_ms - asked_ms >= STALL_MS:
                self._fetch_each(found.block, found.peer)

    def next(self) -> HandedOut | None:
        """The block on the head, once its aggregate is recomputed."""
        height = self._context.head.height + 1
        found = self._judged = self._judged or self._ahead.next(self._verifying)
        if found is None:
            return None
        if not self._is_given_up(height):
            if not self._has_contents(found.block):
                return None
            result = self._recompute(found.block)
            if result is None:
                return None
            self._compare(found.block, result)
        return found

    def on_recomputed(self, job: Recompute, result: Knowledge | Refused) -> None:
        """The shell recomputed what a block leaves."""
        is_of_head, judged = job.state.block_hash == self._context.head.block_hash, self._judged
        if is_of_head and judged is not None and job.transactions == judged.block.transactions:
            self._recomputed = result

    def _has_contents(self, block: Block) -> bool:
        """Whether all is here that recomputing needs. Each content that comes asks, so what was found is remembered."""
        context, posts = self._context, block.transactions
        while self._payloads_here < len(posts):
            if context.content(posts[self._payloads_here].payload_hash) is None:
                return False
            self._payloads_here += 1
        return context.content(context.head.knowledge_root) is not None

    def _recompute(self, block: Block) -> Knowledge | Refused | None:
        """Compute a block's knowledge anew; None: it takes long, so the shell does it."""
        if self._recomputed is not None or self._is_computing:
            return self._recomputed
        context, job = self._context, recompute_job(self._context, block.transactions)
        if context.checks.is_slow(job):
            self._is_computing = True
            context.emit(Compute(job))
            return None
        result = context.checks.run(job)
        assert isinstance(result, Knowledge | Refused), "recomputing leaves something, or is refused"
        return result

    def _compare(self, block: Block, result: Knowledge | Refused) -> None:
        """The block is final, whatever came of recomputing it."""
        if isinstance(result, MethodFailed):
            return  # nothing is known of it, and its knowledge is fetched
        if isinstance(result, Refused):
            self._blocks.contradict(block, b"")
        elif result.root != block.header.knowledge_root:
            self._blocks.contradict(block, result.root)
        else:
            self._context.contents.put(result.root, result.data)

    def contents_wanted(self) -> set[Hash]:
        """Payloads of the blocks that wait."""
        return {post.payload_hash for item in self._ahead for post in item.block.transactions}

    def on_head(self) -> None:
        """Our head moved: what was below it is not kept any more."""
        waiting = {item.block.hash for item in self._ahead}
        self._asked = {block_hash: asked for block_hash, asked in self._asked.items() if block_hash in waiting}
        self._judged, self._payloads_here = None, 0
        self._is_computing, self._recomputed = False, None

    def _fetch_each(self, block: Block, peer: PublicKey) -> None:
        """Fetch one by one what is not here of a block's payloads."""
        context = self._context
        context.send(context.contents.fetch_payloads(block.transactions, peer, context.now.ms))

    def _is_given_up(self, height: int) -> bool:
        """Whether others need not have kept the payloads of a height any more: it is taken on its certificate."""
        window = self._context.genesis.retention_blocks
        return 0 < window <= self._context.catch_up.claimed_by(1) - height
