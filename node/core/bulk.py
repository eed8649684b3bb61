"""Payloads by reference: which parts this peer reads, which of them it lacks, and how they come here.

A post that lists parts counts for who reads them once they are here, and for everybody else at once. So the vote of a
reader asserts the content of its parts, and the others' votes the form of the list. Parts that the knowledge at the
head lists are in force: they are fetched by their readers, kept, and dropped when nothing lists them any more.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from fedchain.chain.exceptions import Invalid, LimitReached, Refused
from fedchain.chain.knowledge import AGGREGATOR, EVERYBODY, NEXT_AGGREGATOR, Part
from fedchain.chain.transaction import Transaction
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.network.sync import STALL_MS
from fedchain.node.core.context import Context
from fedchain.node.core.effects import Compute, KeepParts
from fedchain.node.core.jobs import KeepPart

FETCHED_AT_ONCE = 8
"""Parts that are fetched at a time: each is held in memory until it is complete, checked and written."""

LISTS_MAX = 256
"""Posts whose lists are remembered: each part that comes asks what others are missing."""

PATIENCE_MS = 4 * STALL_MS
"""How long work on a phase waits for parts of which nothing comes: somebody may list what nobody has."""


class PartLookup(Protocol):
    """Where the bytes of parts are on this machine; what `learning.payload.part_folder` offers of it."""

    def has(self, part_hash: Hash) -> bool:
        """Whether a part is there."""

    def read_range(self, part_hash: Hash, start: int, size: int) -> bytes | None:
        """Up to ``size`` of its bytes from ``start`` on; None where it is not."""


class NoParts:
    """For federations whose posts are whole."""

    def has(self, part_hash: Hash) -> bool:
        """See :class:`PartLookup`."""
        return False

    def read_range(self, part_hash: Hash, start: int, size: int) -> bytes | None:
        """See :class:`PartLookup`."""
        return None


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A part that is being fetched, or waits for its turn."""

    size: int
    post: Transaction | None
    """The post of the open phase that lists it; None: the knowledge at the head does, so a quorum let it pass."""
    payload: bytes
    """That post's list."""
    providers: tuple[PublicKey, ...]
    """Who should have it; empty: nobody of them can be reached."""


class BulkParts:
    """Fetches, checks and keeps the parts that this peer reads."""

    def __init__(self, context: Context, lookup: PartLookup) -> None:
        self._context, self._lookup = context, lookup
        self._wanted: OrderedDict[Hash, _Wanted] = OrderedDict()
        self._keeping: set[Hash] = set()  # what has come, and is being checked and written
        self._lists: OrderedDict[Hash, Sequence[Part]] = OrderedDict()  # by post
        self._came_ms = 0  # when a part came last, or the head moved
        self._given_up: set[Hash] = set()  # what the knowledge lists and was waited for in vain
        self._gathering: dict[Hash, tuple[Transaction, bytes]] = {}  # posts of the open phase that wait for parts
        self._known: frozenset[Hash] = frozenset()  # what the knowledge at the head lists
        self._before: frozenset[Hash] = frozenset()  # what the one before it did: others may still be fetching that
        self._looked_at: Hash = b""  # the head whose knowledge was looked at
        phases = (*context.genesis.setup, *context.genesis.phases)
        self.is_used = any(context.checks.lists_parts(phase.name) for phase in phases)
        """Whether posts of any phase list parts."""

    # what is asked

    def reads_all(self, post: Transaction, payload: bytes) -> bool:
        """Whether a post is whole, or this peer reads every part of it: only then it can tell what others could get."""
        return all(self._is_ours(reader, post.round) for _, _, reader in self._parts(post, payload))

    def lacks(self, post: Transaction, payload: bytes) -> bool:
        """Whether this peer reads a part of a post that is not here."""
        return any(True for _ in self._missing(post, payload))

    def is_waiting(self) -> bool:
        """Whether parts that the knowledge lists are on their way, and have not been waited for too long."""
        context = self._context
        awaited = {part_hash for part_hash, wanted in self._wanted.items() if wanted.post is None} - self._given_up
        if not awaited:
            return False
        has_stalled = context.now.ms - self._came_ms >= PATIENCE_MS
        if has_stalled or context.since_head_ms >= context.genesis.phase_timeout_ms // 2:
            self._given_up |= awaited
        return not (has_stalled or context.since_head_ms >= context.genesis.phase_timeout_ms // 2)

    def wanted(self) -> set[Hash]:
        """What is being fetched, or will be."""
        return {*self._wanted}

    def gathering(self) -> Iterator[Transaction]:
        """Posts of the open phase that wait for parts."""
        return (post for post, _ in self._gathering.values())

    def __contains__(self, content_hash: Hash) -> bool:
        return content_hash in self._wanted

    # what comes

    def gather(self, post: Transaction, payload: bytes) -> None:
        """Keep a good post of the open phase until the parts of it are here that this peer reads."""
        self._gathering[post.hash] = post, payload
        self.fetch(post, payload)

    def fetch(self, post: Transaction, payload: bytes) -> None:
        """Fetch the parts of a post that this peer reads and lacks, first of all from its author."""
        for part_hash, size, _ in self._missing(post, payload):
            if part_hash not in self._wanted and part_hash not in self._keeping:
                self._wanted[part_hash] = _Wanted(size, post, payload, self._providers(post.sender))
        self._ask()

    def on_bytes(self, part_hash: Hash, data: bytes) -> None:
        """The bytes of a wanted part have come, and hash to what was asked for."""
        wanted = self._wanted.pop(part_hash)
        self._keeping.add(part_hash)
        self._context.emit(Compute(KeepPart(self._context.head, wanted.post, wanted.payload, part_hash, data)))

    def on_kept(self, job: KeepPart, result: Refused | None) -> list[tuple[Transaction, bytes]]:
        """A part is here, or refused; the posts that wait for nothing any more."""
        self._keeping.discard(job.part_hash)
        self._came_ms = self._context.now.ms
        if isinstance(result, Invalid) and job.post is not None:
            self._gathering.pop(job.post.hash, None)
            for post, payload in self._gathering.values():  # its list may be a lie about a part of somebody else's
                self.fetch(post, payload)
        ready = [item for item in self._gathering.values() if not self.lacks(*item)]
        for post, _ in ready:
            del self._gathering[post.hash]
        self._ask()
        return ready

    # what is in force

    def on_head(self) -> None:
        """Another phase is open: nobody waits for what was posted before it and not counted."""
        self._gathering.clear()
        self._came_ms = self._context.now.ms

    def advance(self) -> None:
        """Once the knowledge at the head is here: fetch what it lists for us, and drop what nothing lists any more.

        That comes before we contribute to the phase: what our trainer writes for it is listed nowhere yet.
        """
        context, knowledge = self._context, self._context.knowledge()
        if not self.is_used or knowledge is None or self._looked_at == context.head.block_hash:
            return
        is_first, self._looked_at = not self._looked_at, context.head.block_hash
        known = context.checks.parts_known(knowledge)
        self._before, self._known = self._known, frozenset(part_hash for _, (part_hash, _, _), _ in known)
        for part_hash, wanted in list(self._wanted.items()):
            if wanted.post is None or (wanted.post.round, wanted.post.phase) < context.phase:
                del self._wanted[part_hash]
        for posted_in, (part_hash, size, reader), sender in known:
            if self._is_ours(reader, posted_in) and part_hash not in self._keeping and not self._lookup.has(part_hash):
                providers = self._providers(context.genesis.members[sender])
                self._wanted[part_hash] = _Wanted(size, None, b"", providers)
        held = [(post, context.content(post.payload_hash)) for post in context.mempool.all()]
        self._given_up &= self._known
        posts = [*self._gathering.values(), *((post, payload) for post, payload in held if payload is not None)]
        listed = {part_hash for post, payload in posts for part_hash, _, _ in self._parts(post, payload)}
        if not is_first:  # after a restart, parts are here of a post that our trainer made and nobody knows yet
            context.emit(KeepParts(self._known | self._before | self._keeping | listed | {*self._wanted}))
        self._ask()

    def on_tick(self) -> None:
        """Go on with what could not be asked for."""
        for part_hash, wanted in self._wanted.items():
            if not wanted.providers:
                self._wanted[part_hash] = replace(wanted, providers=self._providers(None))
        self._ask()

    def _ask(self) -> None:
        """Begin as many downloads as may run at a time."""
        context, downloads = self._context, self._context.contents.downloads
        running = len(self._keeping) + sum(1 for part_hash in self._wanted if part_hash in downloads)
        for part_hash, wanted in self._wanted.items():
            if running >= FETCHED_AT_ONCE:
                return
            if part_hash in downloads or not wanted.providers:
                continue
            try:
                for provider in wanted.providers:
                    context.send(downloads.want(part_hash, wanted.size, provider, context.now.ms))
            except LimitReached:
                return  # the next part that comes, or the next tick, tries again
            running += 1

    def _providers(self, first: PublicKey | None) -> tuple[PublicKey, ...]:
        """Whom to ask: one peer that should have it, and another in case that it is silent."""
        peers = self._context.peers
        others = (peer for peer in peers if peer != first)
        return tuple(peer for peer in (first, next(others, None)) if peer is not None and peer in peers)

    def _missing(self, post: Transaction, payload: bytes) -> Iterator[Part]:
        if post.sender == self._context.me:
            return
        for part in self._parts(post, payload):
            if self._is_ours(part[2], post.round) and (part[0] in self._keeping or not self._lookup.has(part[0])):
                yield part

    def _parts(self, post: Transaction, payload: bytes) -> Sequence[Part]:
        """What a checked post lists; nothing, if it cannot be read."""
        if not self.is_used:
            return ()
        if post.hash not in self._lists:
            self._lists[post.hash] = self._context.checks.parts(post, payload)
            if len(self._lists) > LISTS_MAX:
                self._lists.popitem(last=False)
        return self._lists[post.hash]

    def _is_ours(self, reader: int, posted_in: int) -> bool:
        """Whether this peer reads parts for ``reader``, posted in some round, now."""
        context, open_round = self._context, self._context.head.round
        if reader == EVERYBODY:
            return True
        if reader == AGGREGATOR:
            return context.me == context.genesis.aggregator_of(max(posted_in, open_round))
        if reader == NEXT_AGGREGATOR:  # where that one is silent, the next one after it takes over
            return context.me == context.genesis.aggregator_of(max(posted_in + 1, open_round))
        members = context.genesis.members
        return reader < len(members) and members[reader] == context.me
