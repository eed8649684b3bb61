"""Payloads by reference: the posts that list parts, and the parts that the knowledge keeps in force.

A post that lists parts counts for their readers once the parts are here, and for all other peers at once. So a reader's
vote asserts the content of its parts, and the others' votes the form of the list. Parts that the knowledge at the head
lists are in force: their readers fetch them, keep them, and drop them when nothing lists them any more.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from fedchain.chain.exceptions import Invalid, Refused
from fedchain.chain.knowledge import Part
from fedchain.chain.post import Post
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.network.source import STALL_MS
from fedchain.node.core.contents.authors import Authors
from fedchain.node.core.contents.own_parts import OwnParts
from fedchain.node.core.contents.part_fetching import PartFetching
from fedchain.node.core.contents.part_lists import PartLists, PartLookup
from fedchain.node.core.contents.tracked_part import Claim, PartState, TrackedPart
from fedchain.node.core.context import Context
from fedchain.node.core.effects import Compute, KeepParts
from fedchain.node.core.jobs import KeepPart

PATIENCE_MS = 4 * STALL_MS
"""How long work on a phase waits for parts without a byte of them: a member may list parts that nobody has."""


class Standing(Enum):
    """Whether a post counts, as far as its parts are concerned."""

    WAITS = "waits"
    """A part that this peer reads is not here, or was not checked against the post's list: it is fetched or checked."""
    COUNTS = "counts"
    """All parts that this peer reads are here, but it cannot tell whether other readers could get theirs."""
    IS_WHOLE = "is whole"
    """This peer reads all of its parts, if any, and has them: blocks have to count the post."""


@dataclass(slots=True)
class _Followed:
    """A post of the open phase that lists parts for this peer."""

    post: Post
    payload: bytes
    """Its list."""
    missing: dict[Hash, int]
    """Sizes of the parts that are not here, or were not checked against this list."""
    is_kept: bool = False
    """Whether the post counts as soon as nothing is missing; if not, only a candidate contains it."""


class BulkParts:
    """Has the parts that this peer reads fetched (``part_fetching.py``), checked and kept."""

    def __init__(self, context: Context, lookup: PartLookup) -> None:
        self._context, self._lookup = context, lookup
        self._authors = Authors()
        self._fetching = PartFetching(context, lookup, self._authors)
        self._came_ms = 0  # when a part that is awaited, or the knowledge, came last
        self._read_ms = 0  # when the knowledge came
        self._followed: dict[Hash, _Followed] = {}  # posts of the open phase that wait for parts
        self._listed: set[Hash] = set()  # parts that the knowledge at the head lists
        self._was_listed: set[Hash] = set()  # parts of the knowledge before it: others may still fetch those
        self._looked_at: Hash = b""  # the head whose knowledge was read
        self._lists = PartLists(context)
        self._own = OwnParts(context, self._lists)
        self.is_used = self._lists.are_used
        """Whether posts of any phase list parts."""

    # questions

    def is_waiting(self) -> bool:
        """Whether parts that the knowledge lists are on their way, and have not been awaited for too long."""
        context, awaited = self._context, [part for _, part in self._fetching.parts() if part.is_awaited]
        has_stalled = context.now.ms - self._came_ms >= PATIENCE_MS
        half_ms = context.head.rules.phase_timeout_ms // 2
        if awaited and (has_stalled or context.since_head_ms >= half_ms):
            if context.now.ms - self._read_ms < min(STALL_MS, half_ms // 2):
                return False  # the knowledge was late, and the authors had no time to answer
            for author in {claim.author for part in awaited for claim in part.claims}:
                self._authors.pass_over(author, context.head.height)
            for part in awaited:
                part.give_up()
            return False
        return bool(awaited)

    def is_waited_for(self, author: PublicKey) -> bool:
        """Whether work and votes wait for the parts of an author; after a wait in vain they do not for a while."""
        return self._authors.is_waited_for(author, self._context.head.height)

    def withholds(self, peer: PublicKey, content_hash: Hash) -> bool:
        """Whether a content is a part that the peer may not have from us."""
        if not (self._fetching.is_under_way(content_hash) or self._lookup.has(content_hash)):
            return False  # the usual case, before a stored content is read as a whole
        return not self._context.contents.is_public(content_hash) and not self._own.may_have(peer, content_hash)

    def _open_posts(self) -> Iterator[tuple[Post, bytes]]:
        """Posts of the open phase with their lists, whether or not all of their parts are here."""
        yield from ((item.post, item.payload) for item in self._followed.values() if item.is_kept)
        for post in self._context.mempool.all():
            payload = self._context.content(post.payload_hash)
            if payload is not None:
                yield post, payload

    def wanted(self) -> set[Hash]:
        """Parts that are being fetched, or will be."""
        return {part_hash for part_hash, part in self._fetching.parts() if part.state is PartState.WANTED}

    def gathering(self) -> Iterator[Post]:
        """Posts of the open phase that wait for parts."""
        return (item.post for item in self._followed.values() if item.is_kept)

    def __contains__(self, content_hash: Hash) -> bool:
        return content_hash in self._fetching

    # arrivals

    def gather(self, post: Post, payload: bytes) -> Standing:
        """Keep a good post of the open phase until all of its parts that this peer reads are here."""
        if not self.is_used:
            return Standing.IS_WHOLE
        if self.fetch(post, payload):
            self._followed[post.hash].is_kept = True
            return Standing.WAITS
        return Standing.IS_WHOLE if self._lists.are_all_ours(post, payload) else Standing.COUNTS

    def fetch(self, post: Post, payload: bytes) -> bool:
        """Fetch the parts of a post that this peer reads and lacks, from members that list them; check the others.

        Returns whether there are any that were not checked against the post's list yet.
        """
        if post.hash in self._followed:
            return True
        if post.sender == self._context.me:
            return False
        ours, is_settled = self._lists.ours(post, payload), self._fetching.is_settled
        missing = {part_hash: size for part_hash, size, _ in ours if not is_settled(post.hash, part_hash)}
        if not missing:
            return False
        item = self._followed[post.hash] = _Followed(post, payload, missing)
        for part_hash in missing:
            self._pursue(item, part_hash)
        self._fetching.ask()
        return True

    def _pursue(self, item: _Followed, part_hash: Hash) -> None:
        """Fetch a part that a post lacks, or have it checked against the post's list if it is here."""
        post, part = item.post, self._fetching.part(part_hash)
        if not self._fetching.is_here(part_hash):
            self._fetching.claim(part_hash, Claim(item.missing[part_hash], post.sender, post, item.payload))
        elif post.hash not in part.judged:
            part.judged[post.hash] = False
            self._context.emit(Compute(KeepPart(self._context.head, post, item.payload, part_hash, None)))

    def on_bytes(self, part_hash: Hash, data: bytes, giver: PublicKey) -> None:
        """The bytes of a wanted part are complete and have the right hash; the last of them came from ``giver``."""
        claim = self._fetching.on_bytes(part_hash, giver)
        if self._fetching.part(part_hash).is_awaited:
            self._came_ms = self._context.now.ms
        self._context.emit(Compute(KeepPart(self._context.head, claim.post, claim.payload, part_hash, data)))

    def on_kept(self, job: KeepPart, result: Refused | None) -> list[tuple[Post, bytes]]:
        """A part was kept or refused; returns the posts that miss no part any more."""
        part, now_ms = self._fetching.part(job.part_hash), self._context.now.ms
        if job.data is not None:
            if part.is_awaited:
                self._came_ms = now_ms
            if result is None:
                part.keep()
            else:
                claims = part.refuse()
                if isinstance(result, Invalid):  # the post's list may lie about another member's part
                    claims = [claim for claim in claims if claim.post != job.post]
                else:  # the disk is full, and may have room again
                    self._fetching.pause(now_ms + PATIENCE_MS)
                for claim in claims:
                    self._fetching.claim(job.part_hash, claim)
        if job.post is not None:
            self._on_judged(job, job.post, part, result)
        return self._settle(job.part_hash, part)

    def _on_judged(self, job: KeepPart, post: Post, part: TrackedPart, result: Refused | None) -> None:
        """A part was checked against one post's list."""
        part.judged.pop(post.hash, None)
        if result is None:
            part.judged[post.hash] = True
        elif isinstance(result, Invalid):
            self._followed.pop(post.hash, None)
            self._authors.on_refused(post.sender)
        elif job.data is None:  # it is not here after all, or damaged
            part.doubt()

    def _settle(self, part_hash: Hash, part: TrackedPart) -> list[tuple[Post, bytes]]:
        """The posts that miss no part any more. Those that list this part are judged each by its own list."""
        ready = list[tuple[Post, bytes]]()
        for post_hash, item in list(self._followed.items()):
            if part_hash in item.missing:
                if part.judged.get(post_hash):
                    del item.missing[part_hash]
                else:
                    self._pursue(item, part_hash)
            if not item.missing:
                del self._followed[post_hash]
                if item.is_kept:
                    ready.append((item.post, item.payload))
        self._fetching.ask()
        return ready

    # parts in force

    def on_head(self) -> None:
        """Another phase is open: drop posts of the last one that were not counted."""
        self._followed.clear()
        self._authors.on_head(self._context.head.height, self._context.head.roster)
        for _, part in self._fetching.parts():
            part.is_awaited = False
            part.judged.clear()

    def advance(self) -> None:
        """Once the knowledge at the head is here, fetch parts that it lists for us, and drop those that nothing lists.

        This happens before we contribute to the phase: parts that our trainer writes for it are listed nowhere yet.
        """
        context, knowledge = self._context, self._context.knowledge()
        if not self.is_used or knowledge is None or self._looked_at == context.head.block_hash:
            return
        is_first, self._looked_at = not self._looked_at, context.head.block_hash
        known = context.checks.rules.parts_known(knowledge)
        self._was_listed, self._listed = self._listed, {part_hash for _, (part_hash, _, _), _ in known}
        self._own.on_knowledge(known)
        self._look_for(known)
        posts = self._open_posts()
        listed = {part_hash for post, payload in posts for part_hash, _, _ in self._lists.parts(post, payload)}
        # After a restart, our trainer may have left parts of a post that is not known yet, or, if we lost the chain, of
        # one for a phase that is still to come.
        if not is_first and not any((post.round, post.phase) >= context.phase for post in context.journal.posts):
            under_way = (part_hash for part_hash, part in self._fetching.parts() if part.is_under_way)
            needed = frozenset({*self._listed, *self._was_listed, *listed, *under_way})
            self._fetching.spare(needed)
            context.emit(KeepParts(needed))
        self._fetching.ask()

    def _look_for(self, known: Sequence[tuple[int, Part, int]]) -> None:
        """Want the parts that the knowledge lists for us, and those that posts from the open phase on list."""
        context, members = self._context, self._context.head.roster.members
        self._fetching.doubt()
        claims: dict[Hash, list[Claim]] = {}
        for posted_in, (part_hash, size, reader), sender in known:
            is_own = members[sender] == context.me  # our trainer writes without telling us
            if not self._lists.is_ours(reader, posted_in) or (is_own and self._lookup.has(part_hash)):
                continue
            if not self._fetching.is_here(part_hash):
                claims.setdefault(part_hash, []).append(Claim(size, members[sender], None, b""))
        for part_hash, part in self._fetching.parts():
            part.is_given_up = part.is_given_up and part_hash in self._listed
        for part_hash, found in claims.items():
            part = self._fetching.part(part_hash)
            part.is_awaited = not part.is_given_up and any(self.is_waited_for(claim.author) for claim in found)
        self._came_ms = self._read_ms = context.now.ms
        self._fetching.claim_anew(claims)

    def on_tick(self) -> None:
        """Let stalled downloads make way, and begin others that there was no room for."""
        self._fetching.on_tick()
