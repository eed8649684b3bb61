"""Block import: candidates become valid, final blocks move the head, and a peer that was away joins at the head."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.exceptions import (
    AlreadyKnown,
    Invalid,
    InvalidBlock,
    InvalidPayload,
    InvalidSignature,
    LimitReached,
    Refused,
    UnknownParent,
)
from fedchain.chain.knowledge import EMPTY_ROOT, check_size, needed_contents
from fedchain.chain.light.light_block import LightBlock
from fedchain.chain.post import Post
from fedchain.chain.state import State, decode_state
from fedchain.chain.storage.store import Candidate, Contents, Final, Record
from fedchain.chain.transition import judge_final, judge_joined
from fedchain.chain.validation import validate_knowledge
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.node.core.contents.bulk import BulkParts
from fedchain.node.core.contents.retention import contents_in_order
from fedchain.node.core.context import Context
from fedchain.node.core.crimes import Crimes
from fedchain.node.core.effects import Blame, Compute, Persist
from fedchain.node.core.following.proving import newly_decided
from fedchain.node.core.jobs import Knowledge, Recompute
from fedchain.node.core.ledger import Entry
from fedchain.node.core.notices import Contradicted
from fedchain.node.core.voting.recollection import open_candidates


class BlockImport:
    """Takes blocks of the open height."""

    def __init__(self, context: Context, crimes: Crimes, bulk: BulkParts) -> None:
        self._context, self._crimes, self._bulk = context, crimes, bulk
        self._stored: list[tuple[Hash, ...]] = []  # contents of the open height that are in the store, by block
        self.is_contradicted = False
        """Whether a quorum finalized a block that is computed differently here."""
        self.is_head_live = False
        """Whether the head became final here, by votes as they arrived; False if a peer handed it out as final."""
        self.wanted: set[Hash] = set()
        """Blocks of the open height that a quorum of votes names, or that we voted for."""

    def restore(self) -> None:
        """After a restart: take candidates from the store, in preference those that we voted for."""
        context, ledger = self._context, self._context.ledger
        lock = context.journal.lock
        locked = set() if lock is None else {lock[1]}
        for block, after in open_candidates(context):
            with suppress(LimitReached):
                ledger.add(Entry(block, after, context.now.ms), ledger.to_replace(block, self.wanted | locked))
                self._open_changes(block)

    def on_candidate(self, peer: PublicKey, block: Block) -> None:
        """Take a block for the open height: check all but its knowledge, keep it, and fetch the contents that it needs.

        Raises:
            Refused: it is not taken. Its miner is blamed for what it signed, not the peer that passed it on.
        """
        context, ledger = self._context, self._context.ledger
        known = ledger.entries.get(block.hash)
        if known is not None:
            raise AlreadyKnown("candidate", f"{block.hash.hex()} is held")
        if block.header.parent_hash != context.head.block_hash:
            height = block.header.height
            raise UnknownParent("parent", f"a block of height {height} found, {context.head.height + 1} is open")
        replaced = ledger.to_replace(block, self.wanted)  # before anything costly is done for a block too many
        try:
            after = context.checks.block(context.head, block)
        except InvalidSignature:
            raise
        except Invalid as error:
            context.emit(Blame(block.header.miner, error))
            raise UnknownParent("candidate", str(error)) from None
        gone = ledger.entries[replaced].block.payload_hashes if replaced else ()
        ledger.add(Entry(block, after, context.now.ms), replaced)
        self._open_changes(block)
        context.contents.release(*gone)
        for held, post in context.mempool.others(block.transactions):  # its miner may have got another post than we
            self._crimes.accuse(held, post)
        missing = context.contents.without_payload(block.transactions)
        try:
            for post in missing:
                check_size(context.genesis, context.checks.rules, post)
        except InvalidPayload as error:
            self._refute(ledger.entries[block.hash], error)
        else:
            context.send(context.contents.fetch_payloads(missing, peer, context.now.ms))

    def _open_changes(self, block: Block) -> None:
        """Hold what a candidate changes as if it were gossip: we may have been away when that came, or forgot it.

        Others may have the block as their head, and a member of them its next key, under which we would not know it.
        """
        context = self._context
        for change in block.changes:
            if context.changes.get(change.hash) is None:
                with suppress(LimitReached):
                    context.changes.add(context.genesis, context.head, change, context.now.ms)

    def payloads_wanted(self) -> set[Hash]:
        """Payloads that candidates are recomputed from."""
        entries = self._context.ledger.entries.values()
        return {
            item for entry in entries if not (entry.is_valid or entry.is_refuted) for item in entry.block.payload_hashes
        }

    def on_tick(self) -> None:
        """Fetch the payloads of candidates that there was no room for."""
        context, downloads = self._context, self._context.contents.downloads
        for entry in context.ledger.entries.values() if context.peers else ():
            if not (entry.is_valid or entry.is_refuted or entry.is_computing):
                missing = [post for post in entry.block.transactions if post.payload_hash not in downloads]
                context.send(context.contents.fetch_payloads(missing, next(iter(context.peers)), context.now.ms))

    def keep_own(self, block: Block, knowledge: Knowledge) -> None:
        """Make our own block a candidate, without checking its knowledge, and store it before it is sent."""
        context = self._context
        after = context.checks.block(context.head, block)
        entry = Entry(block, after, context.now.ms)
        context.ledger.add(entry)
        self._validate(entry, knowledge, is_own=True)

    def advance(self) -> None:
        """Have each candidate's knowledge recomputed once its contents are here; look for the parts of valid ones."""
        context = self._context
        for entry in list(context.ledger.entries.values()):
            if entry.is_refuted or entry.is_computing:
                continue
            posts = entry.block.transactions
            if entry.is_valid:
                entry.lacks_parts = entry.lacks_parts and not self._has_parts(posts)
            elif (job := recompute_job(context.head, context.contents_here, posts)).is_possible:
                entry.is_computing = True
                context.emit(Compute(job))

    def _has_parts(self, posts: Sequence[Post]) -> bool:
        """Whether all parts of a block's posts that this peer reads and waits for are here; the others are fetched."""
        context, has_all = self._context, True
        for post in posts if self._bulk.is_used else ():
            payload = context.content(post.payload_hash)
            assert payload is not None, "the block was recomputed from it"
            # the parts that a useless post lists for us break its promise
            is_useless = context.mempool.useless.get(post.key) == post
            is_held = context.mempool.get((post.round, post.phase), post.sender) == post
            if is_useless or (not is_held and self._bulk.fetch(post, payload)):
                has_all = has_all and not self._bulk.is_waited_for(post.sender)
        return has_all

    def on_recomputed(self, job: Recompute, result: Knowledge | Refused) -> None:
        """Knowledge was recomputed: every candidate over these posts is valid, or its miner is to blame."""
        context = self._context
        if job.state.block_hash != context.head.block_hash:
            self._keep_late(result)
            return
        for entry in list(context.ledger.entries.values()):
            if entry.block.transactions == job.transactions and not entry.is_valid and not entry.is_refuted:
                entry.is_computing = False
                if isinstance(result, Refused):
                    self._refute(entry, result)
                else:
                    self._validate(entry, result, is_own=False)

    def _keep_late(self, result: Knowledge | Refused) -> None:
        """The height was decided while we computed: the result may be the knowledge at the head."""
        context = self._context
        if (
            not isinstance(result, Refused)
            and context.knowledge() is None
            and result.root == context.head.knowledge_root
        ):
            context.contents.put(result.root, result.data)
            context.emit(Persist((Contents({result.root: result.data}),)))

    def _validate(self, entry: Entry, knowledge: Knowledge, *, is_own: bool) -> None:
        context, header = self._context, entry.block.header
        try:
            validate_knowledge(header, knowledge.root)
        except Refused as error:
            self._refute(entry, error, knowledge.root)
            return
        entry.is_valid, entry.lacks_parts = True, not is_own and not self._has_parts(entry.block.transactions)
        context.contents.put(header.knowledge_root, knowledge.data)
        context.emit(Persist((*self._contents(entry.block), Candidate(entry.block, is_own=is_own))))

    def _refute(self, entry: Entry, error: Refused, recomputed: Hash = b"") -> None:
        """Note that we compute another result; the height's decision will show whether the miner or we are wrong."""
        entry.refuted, entry.recomputed = error.with_traceback(None), recomputed

    def _contents(self, block: Block) -> list[Record]:
        """Contents of a valid or final block that are here but not in the store yet; any peer may have them."""
        wanted = contents_in_order([block])
        self._context.publish(*wanted)
        if wanted in self._stored:
            return []
        needless = {EMPTY_ROOT}.union(*self._stored)
        absent = [item for item in wanted if item not in needless]
        fresh = self._context.contents.get_all(absent)
        self._stored.append(wanted if len(fresh) == len(absent) else tuple(fresh))
        return [Contents(fresh)] if fresh else []

    # final blocks

    def finalize(self, entry: Entry, certificate: Certificate) -> None:
        """A candidate got its quorum of precommits: it becomes the head, even if we compute another result."""
        if entry.is_contradicted:
            self.contradict(entry.block, entry.recomputed)
        self._settle(entry.block, certificate, entry.after, is_live=True)

    def on_final(self, block: Block, certificate: Certificate) -> bool:
        """Take a final block that a peer handed out, if it follows our head; returns whether it did.

        Raises:
            Refused: it proves nothing.
        """
        context = self._context
        if block.header.parent_hash != context.head.block_hash:
            return False
        # A candidate is judged again, because no proof came with it; its signatures are remembered one by one.
        after = judge_final(context.genesis, context.head, block, certificate, None, context.signatures)
        entry = context.ledger.entries.get(block.hash)
        if entry is not None and entry.is_contradicted:
            self.contradict(block, entry.recomputed)
        self._settle(block, certificate, after)
        return True

    def join(
        self,
        block: Block,
        certificate: Certificate,
        data: bytes,
        *,
        is_confirmed: bool = False,
        path: tuple[LightBlock, ...] = (),
    ) -> None:
        """Join at a final block above our head, by its certificate and the state ``data`` that its header commits to.

        Where members change, ``path`` are the verified light blocks that lead to it. They are kept, so that the next
        start can verify the head again.

        Raises:
            UnknownParent: more peers have to hand out the same block before it can be judged.
            Invalid: block and state do not belong together, or no quorum signed the block.
        """
        context = self._context
        before = decode_state(context.genesis, data)
        if before.block_hash != block.header.parent_hash:  # no number of peers could make it fit
            found, expected = block.header.parent_hash.hex(), before.block_hash.hex()
            raise InvalidBlock("parent", f"{found} found, the state stands on {expected}")
        genesis, signatures = context.genesis, context.signatures
        proven = path[-1].header.hash if path else None
        after = judge_joined(genesis, data, block, certificate, signatures, is_confirmed=is_confirmed, proven=proven)
        self._settle(block, certificate, after, before, path)

    def _settle(
        self,
        block: Block,
        certificate: Certificate,
        after: State,
        before: State | None = None,
        path: tuple[LightBlock, ...] = (),
        *,
        is_live: bool = False,
    ) -> None:
        context = self._context
        self.is_head_live = is_live
        stands_on = context.head if before is None else before
        lights = path if before is not None else newly_decided(context, block, certificate, stands_on)
        records = (*self._contents(block), *lights, Final(block, certificate, stands_on.encode()))
        context.emit(Persist(records))
        if before is None and not self.is_contradicted:  # a peer that joins passes over the decision
            for entry in context.ledger.entries.values():
                if isinstance(entry.refuted, Invalid):
                    context.emit(Blame(entry.block.header.miner, entry.refuted))
        context.ledger.advance(block, certificate, stands_on, after)
        self._stored.clear()
        self.wanted.clear()

    def contradict(self, block: Block, ours: Hash) -> None:
        """A quorum finalized a block that is computed differently here: we follow it, but vote no more."""
        self.is_contradicted = True
        self._context.tell(Contradicted(block.header.height, ours, block.header.knowledge_root))


def recompute_job(
    head: State, contents_here: Callable[[Sequence[Hash]], Mapping[Hash, bytes]], posts: tuple[Post, ...]
) -> Recompute:
    """The job that aggregates ``posts`` at ``head``, with the contents that they name, as far as they are here."""
    return Recompute(head, posts, contents_here(needed_contents(head, posts)))
