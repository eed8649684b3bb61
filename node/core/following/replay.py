"""Replay: following every final block and recomputing its aggregate, for a peer that trusts nobody's result.

Blocks are judged as they arrive, each on the state after the one below it, which requires no payload. So payloads are
fetched only for blocks that a quorum finalized. While one block waits for payloads or is stored, the shell verifies the
signatures of those that follow.
"""

from collections import deque
from collections.abc import Iterator

from fedchain.chain.block import Block
from fedchain.chain.exceptions import MethodFailed, Refused
from fedchain.chain.knowledge import base_of
from fedchain.chain.post import Post
from fedchain.chain.signatures import signatures_of
from fedchain.chain.state import State
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import PublicKey
from fedchain.crypto.signatures import Signed
from fedchain.network.messages import GetPayloads, Payloads
from fedchain.network.source import STALL_MS
from fedchain.network.sync import PASSED_OVER_MS_MAX
from fedchain.node.core.block_import import BlockImport, recompute_job
from fedchain.node.core.context import Context
from fedchain.node.core.effects import Compute, Send
from fedchain.node.core.following.finals_ahead import FinalsAhead, HandedOut
from fedchain.node.core.following.in_vain import InVain
from fedchain.node.core.jobs import Knowledge, Recompute, Verified, VerifySignatures

JUDGED_MAX = 8
"""Blocks waiting for payloads above which no more are asked for; ``FinalsAhead`` has room for those on their way."""


class Replay:
    """Blocks that wait until their payloads are here and those below them were recomputed."""

    def __init__(self, context: Context, blocks: BlockImport, ahead: FinalsAhead) -> None:
        self._context, self._blocks, self._ahead = context, blocks, ahead
        self._judged: deque[tuple[HandedOut, State]] = deque()  # final blocks above the head, with the states after
        self._payloads_here = 0  # number of leading posts of the first one whose payloads are here
        self._is_computing = False  # whether the shell recomputes its knowledge, which takes long
        self._recomputed: Knowledge | Refused | None = None  # the result of that
        self._asked: dict[Hash, tuple[PublicKey, int]] = {}  # the peer that owes a block's payloads, and since when
        self._useless_until_ms: dict[PublicKey, int] = {}  # peers that were asked in vain
        self._verifying: dict[Hash, tuple[Signed, ...]] = {}  # by block: signatures that the shell is verifying
        self._in_hand: set[Signed] = set()  # all of those: most votes for a block stand in the next one, too
        self._in_vain = InVain(context)

    @property
    def height(self) -> int:
        """Height of the last block that is known to be final."""
        return self._context.head.height + len(self._judged)

    @property
    def has_room(self) -> bool:
        """Whether to ask for more blocks."""
        return len(self._judged) <= JUDGED_MAX

    def final(self, height: int) -> Hash | None:
        """The block at a height above our head that is known to be final; None if there is none."""
        place = height - self._context.head.height - 1
        return self._judged[place][1].block_hash if 0 <= place < len(self._judged) else None

    def verify(self, found: HandedOut) -> None:
        """Have a kept block's signatures verified ahead of its turn."""
        if found.block.hash in self._verifying:
            return
        unknown = self._context.signatures.unknown(signatures_of(self._context.genesis, found.block, found.certificate))
        if signed := tuple(item for item in unknown if item not in self._in_hand):
            self._verifying[found.block.hash] = signed
            self._in_hand.update(signed)
            self._context.emit(Compute(VerifySignatures(found.block.hash, signed)))

    def on_verified(self, job: VerifySignatures, result: Verified) -> None:
        """Remember the signatures that the shell found valid; the others are verified in their block's turn."""
        self._in_hand.difference_update(self._verifying.pop(job.block_hash, ()))
        self._context.signatures.note(job.signed[: result.count])

    def judge(self) -> None:
        """Judge the blocks that link up to the last judged one, and fetch their payloads."""
        state = self._judged[-1][1] if self._judged else self._context.head
        while (found := self._ahead.next(state, self._verifying)) is not None:
            self._judged.append(found)
            handed_out, state = found
            self._fetch(handed_out)

    def on_payloads(self, peer: PublicKey, message: Payloads) -> None:
        """Take a block's payloads from one message; missing ones are fetched one by one, from other peers first."""
        context, place = self._context, message.height - self._context.head.height - 1
        if not 0 <= place < len(self._judged):
            return
        found = self._judged[place][0]
        if self._asked.get(found.block.hash, (b"", 0))[0] != peer:
            return
        del self._asked[found.block.hash]
        expected = {*found.block.payload_hashes}
        for payload in message.payloads:
            if (content_hash := sha256(payload)) in expected:
                context.contents.put(content_hash, payload)
                expected.discard(content_hash)
        if expected:
            self._find_useless(peer)
            self._fetch_each(found)

    def on_tick(self) -> None:
        """Fetch payloads one by one if they did not come in one message, or if there was no room for them."""
        now_ms = self._context.now.ms
        for found, _ in self._judged:
            peer, asked_ms = self._asked.get(found.block.hash, (b"", 0))
            if peer and now_ms - asked_ms < STALL_MS:
                continue
            if peer:
                del self._asked[found.block.hash]
                self._find_useless(peer)
            if not self._is_given_up(found.block.header.height):
                self._fetch_each(found)

    def next(self) -> HandedOut | None:
        """The block above the head, once its aggregate is recomputed or given up; None until then."""
        self.judge()
        if not self._judged:
            return None
        found = self._judged[0][0]
        if not (self._is_given_up(found.block.header.height) or self._lacks_old_knowledge(found.block)):
            if not self._has_contents(found.block):
                return found if self._in_vain.is_over(found.block, self._payloads_here) else None
            result = self._recompute(found.block)
            if result is None:
                return None
            self._in_vain.come()
            self._compare(found.block, result)
        return found

    def on_recomputed(self, job: Recompute, result: Knowledge | Refused) -> None:
        """The shell recomputed the knowledge after a block."""
        is_of_head = job.state.block_hash == self._context.head.block_hash
        if is_of_head and self._judged and job.transactions == self._judged[0][0].block.transactions:
            self._recomputed = result

    def _has_contents(self, block: Block) -> bool:
        """Whether all contents for recomputing are here. The found ones are remembered: each arrival asks again."""
        context, posts = self._context, block.transactions
        while self._payloads_here < len(posts):
            if context.content(posts[self._payloads_here].payload_hash) is None:
                return False
            self._payloads_here += 1
        roots = {context.head.knowledge_root, *(base_of(context.head, post) for post in self._late_posts(block))}
        return all(context.content(root) is not None for root in roots)

    def _lacks_old_knowledge(self, block: Block) -> bool:
        """Whether a late post was made from knowledge that is not here, and that others may have dropped.

        The block that closed its own phase was recomputed from that. Here it was taken on its certificate alone.
        """
        context, phases = self._context, len(self._context.genesis.phases)
        for post in self._late_posts(block):
            closed = block.header.height - phases * (block.header.round - post.round)
            if self._is_given_up(closed) and context.content(base_of(context.head, post)) is None:
                return True
        return False

    def _late_posts(self, block: Block) -> Iterator[Post]:
        """Posts of a block that were made for earlier rounds."""
        return (post for post in block.transactions if post.round != block.header.round)

    def _recompute(self, block: Block) -> Knowledge | Refused | None:
        """Recompute a block's knowledge; None if that takes long, so that the shell does it."""
        if self._recomputed is not None or self._is_computing:
            return self._recomputed
        context = self._context
        job = recompute_job(context.head, context.contents_here, block.transactions)
        if not job.is_possible:  # the disk has lost some since they were found
            self._payloads_here = 0
            return None
        if context.checks.is_slow(job):
            self._is_computing = True
            context.emit(Compute(job))
            return None
        result = context.checks.run(job)
        assert isinstance(result, Knowledge | Refused), "recomputing leaves something, or is refused"
        return result

    def _compare(self, block: Block, result: Knowledge | Refused) -> None:
        """Compare a final block with the recomputed knowledge. A difference is noted, but the block stays final."""
        if isinstance(result, MethodFailed):
            return  # nothing is known about the block, and its knowledge is fetched
        if isinstance(result, Refused):
            self._blocks.contradict(block, b"")
        elif result.root != block.header.knowledge_root:
            self._blocks.contradict(block, result.root)
        else:
            self._context.contents.put(result.root, result.data)

    def contents_wanted(self) -> set[Hash]:
        """Payloads of the blocks that wait."""
        return {item for found, _ in self._judged for item in found.block.payload_hashes}

    def on_head(self) -> None:
        """Our head moved: drop the blocks up to its height."""
        head = self._context.head
        while self._judged and self._judged[0][1].height <= head.height:
            _, after = self._judged.popleft()
            if after.height == head.height and after.block_hash != head.block_hash:
                self._judged.clear()  # the others stand on another block
        waiting = {found.block.hash for found, _ in self._judged}
        self._asked = {block_hash: asked for block_hash, asked in self._asked.items() if block_hash in waiting}
        self._in_vain.keep(waiting)
        self._payloads_here = 0
        self._is_computing, self._recomputed = False, None

    def _fetch(self, found: HandedOut) -> None:
        """Fetch the payloads of a block that is final."""
        context, block, height = self._context, found.block, found.block.header.height
        if self._is_given_up(height):
            return
        self._in_vain.ask(block)
        if all(post.payload_size <= context.head.rules.inline_size_max for post in block.transactions):
            peer = self._provider(found)
            self._asked[block.hash] = peer, context.now.ms
            context.emit(Send(peer, GetPayloads(height)))
        else:
            self._fetch_each(found)

    def _fetch_each(self, found: HandedOut) -> None:
        """Fetch a block's missing payloads one by one."""
        context, posts = self._context, found.block.transactions
        is_ahead = found.block.header.height > context.head.height + 1
        peer = self._provider(found)
        context.send(context.contents.fetch_payloads(posts, peer, context.now.ms, is_ahead=is_ahead))

    def _provider(self, found: HandedOut) -> PublicKey:
        """The peer to ask for a block's payloads: the one that handed it out, unless that was asked in vain before."""
        now_ms, others = self._context.now.ms, self._context.catch_up.at_least(found.block.header.height)
        useful = (peer for peer in (found.peer, *others) if now_ms >= self._useless_until_ms.get(peer, 0))
        return next(useful, found.peer)

    def _find_useless(self, peer: PublicKey) -> None:
        """Note that a peer did not send the payloads that it was asked for."""
        self._useless_until_ms[peer] = self._context.now.ms + PASSED_OVER_MS_MAX

    def _is_given_up(self, height: int) -> bool:
        """Whether others may have dropped the payloads of a height; then its block is taken on its certificate alone.

        That is so once more members than may lie have announced a head that far above, and it stays so afterwards.
        """
        window = self._context.head.rules.retention_blocks
        return 0 < window <= self._context.catch_up.confirmed - height
