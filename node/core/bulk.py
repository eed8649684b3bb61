"""Payloads by reference: which parts this peer reads, which of them it lacks, and how they come here.

A post that lists parts counts for who reads them once they are here, and for everybody else at once. So the vote of a
reader asserts the content of its parts, and the others' votes the form of the list. Parts that the knowledge at the
head lists are in force: they are fetched by their readers, kept, and dropped when nothing lists them any more.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
class _Claim:
    """Somebody lists a part that this peer reads."""

    size: int
    """Bytes, as it says."""
    author: PublicKey
    """Who should have it."""
    post: Transaction | None
    """The post of the open phase that lists it; None: the knowledge at the head does, so a quorum let it pass."""
    payload: bytes
    """That post's list."""


@dataclass(slots=True)
class _Running:
    """A part that is being fetched."""

    author: PublicKey
    """Whose turn it was."""
    since_ms: int
    heard_ms: int
    """When something of it came last, as far as a tick has seen it."""
    arrived: int = 0
    """Bytes that had come then."""


class BulkParts:
    """Fetches, checks and keeps the parts that this peer reads.

    Few parts are fetched at a time, so authors take turns: whoever lists what it does not give, or gives slowly, holds
    up none of the others.
    """

    def __init__(self, context: Context, lookup: PartLookup) -> None:
        self._context, self._lookup = context, lookup
        self._wanted: dict[Hash, list[_Claim]] = {}  # what is being fetched, or waits for its turn
        self._waiting: dict[PublicKey, OrderedDict[Hash, None]] = {}  # by author, who is next first; some may be done
        self._running: dict[Hash, _Running] = {}
        self._keeping: dict[Hash, list[_Claim]] = {}  # what has come, and is being checked and written
        self._here: set[Hash] = set()  # what was found or written since the head moved
        self._spared: set[Hash] | None = None  # what the disk was told to keep, and what was written since
        self._lists: OrderedDict[Hash, Sequence[Part]] = OrderedDict()  # by post
        self._awaited: set[Hash] = set()  # what the knowledge lists for us and is not here
        self._came_ms = 0  # when some of that came last, or the knowledge did
        self._given_up: set[Hash] = set()  # what of it was waited for in vain
        self._paused_until_ms = 0  # when the disk may take parts again
        self._gave: dict[PublicKey, int] = {}  # when somebody gave a part that others list, too
        # posts of the open phase that wait for parts, with their lists and what is missing
        self._gathering: dict[Hash, tuple[Transaction, bytes, set[Hash]]] = {}
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
        has_stalled = context.now.ms - self._came_ms >= PATIENCE_MS
        if has_stalled or context.since_head_ms >= context.genesis.phase_timeout_ms // 2:
            self._given_up |= self._awaited
            self._awaited.clear()
        return bool(self._awaited)

    def wanted(self) -> set[Hash]:
        """What is being fetched, or will be."""
        return {*self._wanted}

    def gathering(self) -> Iterator[Transaction]:
        """Posts of the open phase that wait for parts."""
        return (post for post, _, _ in self._gathering.values())

    def __contains__(self, content_hash: Hash) -> bool:
        return content_hash in self._wanted

    # what comes

    def gather(self, post: Transaction, payload: bytes) -> None:
        """Keep a good post of the open phase until the parts of it are here that this peer reads."""
        self._gathering[post.hash] = post, payload, {part_hash for part_hash, _, _ in self._missing(post, payload)}
        self.fetch(post, payload)

    def fetch(self, post: Transaction, payload: bytes) -> None:
        """Fetch the parts of a post that this peer reads and lacks, first of all from its author."""
        for part_hash, size, _ in self._missing(post, payload):
            self._claim(part_hash, _Claim(size, post.sender, post, payload))
        self._ask()

    def on_bytes(self, part_hash: Hash, data: bytes, giver: PublicKey) -> None:
        """The bytes of a wanted part have come, the last of them from ``giver``, and hash to what was asked for."""
        claims = self._keeping[part_hash] = self._wanted.pop(part_hash)
        self._running.pop(part_hash, None)
        if len(claims) > 1:
            self._gave[giver] = self._context.now.ms
        if part_hash in self._awaited:
            self._came_ms = self._context.now.ms
        claim = next((claim for claim in claims if claim.post is None), claims[0])
        self._context.emit(Compute(KeepPart(self._context.head, claim.post, claim.payload, part_hash, data)))

    def on_kept(self, job: KeepPart, result: Refused | None) -> list[tuple[Transaction, bytes]]:
        """A part is here, or refused; the posts that wait for nothing any more."""
        part_hash, now_ms = job.part_hash, self._context.now.ms
        claims, ready = self._keeping.pop(part_hash, []), []
        if part_hash in self._awaited:
            self._came_ms = now_ms
        if result is None:
            self._here.add(part_hash)
            if self._spared is not None:
                self._spared.add(part_hash)
            self._awaited.discard(part_hash)
            for post, payload, missing in list(self._gathering.values()):
                missing.discard(part_hash)
                if not missing:
                    del self._gathering[post.hash]
                    ready.append((post, payload))
        elif isinstance(result, Invalid):  # its list may be a lie about a part of somebody else's
            claims = [claim for claim in claims if claim.post != job.post]
            if job.post is not None:
                self._gathering.pop(job.post.hash, None)
            if not claims:
                self._awaited.discard(part_hash)
        else:  # the disk is full, and may have room again
            self._paused_until_ms = now_ms + PATIENCE_MS
        if result is not None:
            for claim in claims:
                self._claim(part_hash, claim)
        self._ask()
        return ready

    # what is in force

    def on_head(self) -> None:
        """Another phase is open: nobody waits for what was posted before it and not counted."""
        self._gathering.clear()
        self._awaited.clear()

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
        self._look_for(known)
        held = [(post, context.content(post.payload_hash)) for post in context.mempool.all()]
        gathered = [(post, payload) for post, payload, _ in self._gathering.values()]
        posts = [*gathered, *((post, payload) for post, payload in held if payload is not None)]
        listed = {part_hash for post, payload in posts for part_hash, _, _ in self._parts(post, payload)}
        if not is_first:  # after a restart, parts are here of a post that our trainer made and nobody knows yet
            needed = self._known | self._before | listed | {*self._keeping, *self._wanted}
            self._spared = {*needed}
            context.emit(KeepParts(needed))
        self._ask()

    def _look_for(self, known: Sequence[tuple[int, Part, int]]) -> None:
        """Want what the knowledge lists for us, and of what was posted only what is of the open phase."""
        context = self._context
        self._here.clear()
        self._waiting.clear()
        claims: dict[Hash, list[_Claim]] = {}
        for posted_in, (part_hash, size, reader), sender in known:
            is_own = context.genesis.members[sender] == context.me  # our trainer writes without telling us
            if not self._is_ours(reader, posted_in) or (is_own and self._lookup.has(part_hash)):
                continue
            if part_hash in self._keeping or not self._has(part_hash):
                claims.setdefault(part_hash, []).append(_Claim(size, context.genesis.members[sender], None, b""))
        self._given_up &= self._known
        self._awaited, self._came_ms = claims.keys() - self._given_up, context.now.ms
        for part_hash, posted in (*self._wanted.items(), *self._keeping.items()):
            still = [item for item in posted if item.post and (item.post.round, item.post.phase) >= context.phase]
            if still:
                claims.setdefault(part_hash, []).extend(still)
        for part_hash in self._keeping:
            self._keeping[part_hash] = claims.pop(part_hash, [])
        self._wanted = {}
        for part_hash in [running for running in self._running if running not in claims]:
            self._stop(part_hash)
        for part_hash, found in claims.items():
            for claim in found:
                self._claim(part_hash, claim)

    def on_tick(self) -> None:
        """Let parts of which nothing comes make way, and go on with what could not be asked for."""
        self._make_way()
        self._ask()

    # whose turn it is

    def _claim(self, part_hash: Hash, claim: _Claim) -> None:
        """Note that somebody lists a part that is missing."""
        context = self._context
        claims = self._keeping[part_hash] if part_hash in self._keeping else self._wanted.setdefault(part_hash, [])
        if claim in claims:
            return
        claims.append(claim)
        if part_hash in self._running:
            if claim.author in context.peers:  # it may be the only one that has what another lists, too
                context.contents.downloads.want(part_hash, claim.size, claim.author, context.now.ms)
        elif part_hash in self._wanted:
            self._waiting.setdefault(claim.author, OrderedDict())[part_hash] = None

    def _ask(self) -> None:
        """Begin as many downloads as may run at a time."""
        context = self._context
        while len(self._running) + len(self._keeping) < FETCHED_AT_ONCE and context.now.ms >= self._paused_until_ms:
            author = self._next_author()
            if author is None or not context.peers:
                return
            part_hash, _ = self._waiting[author].popitem(last=False)
            self._waiting[author] = self._waiting.pop(author)  # the others come before it is its turn again
            claims, now_ms = self._wanted[part_hash], context.now.ms
            try:
                for provider in self._providers(claims):
                    context.send(context.contents.downloads.want(part_hash, claims[0].size, provider, now_ms))
            except LimitReached:
                self._waiting[author][part_hash] = None
                return  # the next part that comes, or the next tick, tries again
            self._running[part_hash] = _Running(author, now_ms, now_ms)

    def _next_author(self) -> PublicKey | None:
        """The author of which the fewest parts are being fetched, of those whose parts wait; its first one does."""
        running = Counter(item.author for item in self._running.values())
        for author in sorted(self._waiting, key=running.__getitem__):
            if self._has_waiting(author):
                return author
        return None

    def _has_waiting(self, author: PublicKey) -> bool:
        """Whether any part of an author waits, which then is its first."""
        waiting = self._waiting[author]
        while waiting:
            first = next(iter(waiting))
            if first in self._wanted and first not in self._running:
                return True
            del waiting[first]
        del self._waiting[author]
        return False

    def _make_way(self) -> None:
        """End downloads of which nothing comes, if others wait; and of an author's several, if another one has none."""
        context, downloads = self._context, self._context.contents.downloads
        waiting = [author for author in [*self._waiting] if self._has_waiting(author)]
        running = Counter(item.author for item in self._running.values())
        hungry = sum(1 for author in waiting if not running[author]) - (FETCHED_AT_ONCE - len(self._running))
        for part_hash, item in sorted(self._running.items(), key=lambda known: downloads.arrived(known[0])):
            arrived = downloads.arrived(part_hash)
            if arrived > item.arrived:
                item.heard_ms, item.arrived = context.now.ms, arrived
            is_crowding = hungry > 0 and running[item.author] > 1 and context.now.ms - item.since_ms >= STALL_MS
            if waiting and (is_crowding or context.now.ms - item.heard_ms >= 2 * STALL_MS):
                hungry -= 1
                running[item.author] -= 1
                self._stop(part_hash)
                for author in {claim.author: None for claim in self._wanted[part_hash]}:
                    self._waiting.setdefault(author, OrderedDict())[part_hash] = None

    def _stop(self, part_hash: Hash) -> None:
        del self._running[part_hash]
        self._context.contents.stop_part(part_hash)

    def _providers(self, claims: Sequence[_Claim]) -> list[PublicKey]:
        """Whom to ask: who lists a part, first of them whoever kept its word last, and another in case of silence."""
        peers = self._context.peers
        authors = {claim.author: None for claim in claims if claim.author in peers}
        others = [peer for peer in peers if peer not in authors]
        first = sorted(authors, key=lambda author: -self._gave.get(author, 0))
        return [*first, *others[self._context.now.ms // STALL_MS % len(others) :][:1]] if others else first

    def _missing(self, post: Transaction, payload: bytes) -> Iterator[Part]:
        if post.sender == self._context.me:
            return
        for part in self._parts(post, payload):
            if self._is_ours(part[2], post.round) and (part[0] in self._keeping or not self._has(part[0])):
                yield part

    def _has(self, part_hash: Hash) -> bool:
        """Whether a part is here, and stays; the disk is asked once while a phase is open, and may be slow to drop."""
        if part_hash not in self._here:
            is_dropped = self._spared is not None and part_hash not in self._spared
            if part_hash in self._wanted or is_dropped or not self._lookup.has(part_hash):
                return False
            self._here.add(part_hash)
        return True

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
