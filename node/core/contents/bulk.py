"""Payloads by reference: the parts that this peer reads, those of them that it lacks, and their download.

A post that lists parts counts for their readers once the parts are here, and for all other peers at once. So a reader's
vote asserts the content of its parts, and the others' votes the form of the list. Parts that the knowledge at the head
lists are in force: their readers fetch them, keep them, and drop them when nothing lists them any more.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fedchain.chain.exceptions import Invalid, LimitReached, Refused
from fedchain.chain.knowledge import PART_SIZE_MAX, Part
from fedchain.chain.post import Post
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.network.downloads import Request
from fedchain.network.sync import STALL_MS
from fedchain.node.core.contents.part_lists import PartLists, PartLookup
from fedchain.node.core.contents.turns import Turns
from fedchain.node.core.context import Context
from fedchain.node.core.effects import Compute, KeepParts
from fedchain.node.core.jobs import KeepPart

FETCHED_AT_ONCE = 8
"""Most parts that are fetched at a time; each is held in memory until it is complete, checked and written."""

PATIENCE_MS = 4 * STALL_MS
"""How long work on a phase waits for parts without a byte of them: a member may list parts that nobody has."""


TIMES_MAX = 30
"""Most doublings of the number of heights for which an author is not waited for, once its parts failed to come."""


@dataclass(frozen=True, slots=True)
class _Claim:
    """A listing of a part that this peer reads."""

    size: int
    """Bytes of the part, according to the listing."""
    author: PublicKey
    """The member that lists the part and should have it."""
    post: Post | None
    """The post of the open phase that lists it; None if the knowledge does, so that a quorum has accepted it."""
    payload: bytes
    """That post's list."""


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
    """Fetches, checks and keeps the parts that this peer reads.

    Few parts are fetched at a time, so authors take turns (``turns.py``): an author that withholds the parts it lists,
    or sends them slowly, holds up none of the others.
    """

    def __init__(self, context: Context, lookup: PartLookup) -> None:
        self._context, self._lookup = context, lookup
        self._wanted: dict[Hash, list[_Claim]] = {}  # parts that are being fetched, or wait for their turn
        self._turns = Turns(FETCHED_AT_ONCE, context.genesis.phase_timeout_ms // 2)
        self._keeping: dict[Hash, list[_Claim]] = {}  # parts that have come, and are being checked and written
        self._here: set[Hash] = set()  # parts that were found or written since the head moved
        self._spared: set[Hash] | None = None  # parts that the disk was told to keep, and those written since
        self._awaited: set[Hash] = set()  # parts that the knowledge lists for us and that are not here
        self._came_ms = 0  # when one of those, or the knowledge, came last
        self._given_up: set[Hash] = set()  # those of them that were awaited in vain
        self._paused_until_ms = 0  # when the disk may take parts again
        self._gave: dict[PublicKey, int] = {}  # when each peer gave a part last
        # authors that were awaited in vain: how often, and the height from which they are awaited again
        self._in_vain: dict[PublicKey, tuple[int, int]] = {}
        self._refused: set[PublicKey] = set()  # authors whose parts did not match their lists, this phase
        self._followed: dict[Hash, _Followed] = {}  # posts of the open phase that wait for parts
        self._judged: dict[tuple[Hash, Hash], bool] = {}  # (post, part): False while the check runs
        self._listed: set[Hash] = set()  # parts that the knowledge at the head lists
        self._was_listed: set[Hash] = set()  # parts of the knowledge before it: others may still fetch those
        self._own: dict[Hash, set[tuple[int, int]]] = {}  # (reader, round) of those in `_listed` that we posted
        self._were_own: dict[Hash, set[tuple[int, int]]] = {}  # the same for `_was_listed`
        self._looked_at: Hash = b""  # the head whose knowledge was read
        self._lists = PartLists(context)
        self.is_used = self._lists.are_used
        """Whether posts of any phase list parts."""

    # questions

    def reads_all(self, post: Post, payload: bytes) -> bool:
        """Whether this peer reads every part of a post, if any: only then it knows that others could get them."""
        return all(self._lists.is_ours(reader, post.round) for _, _, reader in self._lists.parts(post, payload))

    def lacks(self, post: Post, payload: bytes) -> bool:
        """Whether a part of a post that this peer reads is not here, or was not checked against that post's list."""
        return post.hash in self._followed or any(True for _ in self._unsettled(post, payload))

    def is_waiting(self) -> bool:
        """Whether parts that the knowledge lists are on their way, and have not been awaited for too long."""
        context = self._context
        has_stalled = context.now.ms - self._came_ms >= PATIENCE_MS
        if self._awaited and (has_stalled or context.since_head_ms >= context.genesis.phase_timeout_ms // 2):
            for author in {claim.author for part_hash in self._awaited for claim in self._claims(part_hash)}:
                self._pass_over(author)
            self._given_up |= self._awaited
            self._awaited.clear()
        return bool(self._awaited)

    def is_waited_for(self, author: PublicKey) -> bool:
        """Whether work and votes wait for the parts of an author; after a wait in vain they do not for a while."""
        _, height = self._in_vain.get(author, (0, 0))
        return self._context.head.height >= height

    def _pass_over(self, author: PublicKey) -> None:
        times, _ = self._in_vain.get(author, (0, 0))
        self._in_vain[author] = times + 1, self._context.head.height + (2 << min(times, TIMES_MAX))

    def withholds(self, peer: PublicKey, content_hash: Hash) -> bool:
        """Whether a content is a part that the peer may not have from us.

        Only its author gives a part, and only to the readers that its own post lists. A list by another member may be
        the lie of somebody that wants the part; so may a post that names it as its payload, until that was checked.
        """
        is_part = content_hash in self._wanted or content_hash in self._keeping or self._lookup.has(content_hash)
        if not is_part or self._context.contents.is_public(content_hash):
            return False
        return not any(self._lists.may_have(peer, reader, number) for reader, number in self._own_readers(content_hash))

    def _own_readers(self, part_hash: Hash) -> Iterator[tuple[int, int]]:
        """(reader, round) pairs: readers for which we list a part, and the rounds in which we posted it."""
        for known in (self._own, self._were_own):
            yield from known.get(part_hash, ())
        for post, payload in self._open_posts():
            if post.sender == self._context.me:
                yield from (
                    (reader, post.round)
                    for listed, _, reader in self._lists.parts(post, payload)
                    if listed == part_hash
                )

    def _open_posts(self) -> Iterator[tuple[Post, bytes]]:
        """Posts of the open phase with their lists, whether or not all of their parts are here."""
        yield from ((item.post, item.payload) for item in self._followed.values() if item.is_kept)
        for post in self._context.mempool.all():
            payload = self._context.content(post.payload_hash)
            if payload is not None:
                yield post, payload

    def wanted(self) -> set[Hash]:
        """Parts that are being fetched, or will be."""
        return {*self._wanted}

    def gathering(self) -> Iterator[Post]:
        """Posts of the open phase that wait for parts."""
        return (item.post for item in self._followed.values() if item.is_kept)

    def __contains__(self, content_hash: Hash) -> bool:
        return content_hash in self._wanted

    # arrivals

    def gather(self, post: Post, payload: bytes) -> None:
        """Keep a good post of the open phase until all of its parts that this peer reads are here."""
        self.fetch(post, payload)
        self._followed[post.hash].is_kept = True

    def fetch(self, post: Post, payload: bytes) -> None:
        """Fetch the parts of a post that this peer reads and lacks, from members that list them; check the others."""
        if post.hash in self._followed:
            return
        missing = {part_hash: size for part_hash, size, _ in self._unsettled(post, payload)}
        item = self._followed[post.hash] = _Followed(post, payload, missing)
        for part_hash in missing:
            self._pursue(item, part_hash)
        self._ask()

    def _pursue(self, item: _Followed, part_hash: Hash) -> None:
        """Fetch a part that a post lacks, or have it checked against the post's list if it is here."""
        post = item.post
        if part_hash in self._keeping or not self._has(part_hash):
            self._claim(part_hash, _Claim(item.missing[part_hash], post.sender, post, item.payload))
        elif (post.hash, part_hash) not in self._judged:
            self._judged[post.hash, part_hash] = False
            self._context.emit(Compute(KeepPart(self._context.head, post, item.payload, part_hash, None)))

    def on_bytes(self, part_hash: Hash, data: bytes, giver: PublicKey) -> None:
        """The bytes of a wanted part are complete and have the right hash; the last of them came from ``giver``."""
        claims = self._keeping[part_hash] = self._wanted.pop(part_hash)
        self._turns.end(part_hash, self._context.now.ms)
        self._gave[giver] = self._context.now.ms
        if part_hash in self._awaited:
            self._came_ms = self._context.now.ms
        claim = next((claim for claim in claims if claim.post is None), claims[0])
        self._context.emit(Compute(KeepPart(self._context.head, claim.post, claim.payload, part_hash, data)))

    def on_kept(self, job: KeepPart, result: Refused | None) -> list[tuple[Post, bytes]]:
        """A part was kept or refused; returns the posts that miss no part any more."""
        part_hash, now_ms = job.part_hash, self._context.now.ms
        if job.data is None:
            return self._on_judged(job, result)
        claims = self._keeping.pop(part_hash, [])
        if part_hash in self._awaited:
            self._came_ms = now_ms
        if result is None:
            self._here.add(part_hash)
            if self._spared is not None:
                self._spared.add(part_hash)
            self._awaited.discard(part_hash)
        elif isinstance(result, Invalid):  # the post's list may lie about another member's part
            claims = [claim for claim in claims if claim.post != job.post]
        else:  # the disk is full, and may have room again
            self._paused_until_ms = now_ms + PATIENCE_MS
        if result is not None:
            for claim in claims:
                self._claim(part_hash, claim)
        return self._on_judged(job, result)

    def _on_judged(self, job: KeepPart, result: Refused | None) -> list[tuple[Post, bytes]]:
        """A part was checked against one post's list; other posts that list it are checked by their own lists."""
        post, ready = job.post, list[tuple[Post, bytes]]()
        if post is not None:
            self._judged.pop((post.hash, job.part_hash), None)
            if result is None:
                self._judged[post.hash, job.part_hash] = True
            elif isinstance(result, Invalid):
                self._followed.pop(post.hash, None)
                self._refused.add(post.sender)
            elif job.data is None:  # it is not here after all, or damaged
                self._here.discard(job.part_hash)
        for post_hash, item in list(self._followed.items()):
            if job.part_hash in item.missing:
                if self._judged.get((post_hash, job.part_hash)):
                    del item.missing[job.part_hash]
                else:
                    self._pursue(item, job.part_hash)
            if not item.missing:
                del self._followed[post_hash]
                if item.is_kept:
                    ready.append((item.post, item.payload))
        self._ask()
        return ready

    # parts in force

    def on_head(self) -> None:
        """Another phase is open: drop posts of the last one that were not counted."""
        self._followed.clear()
        for author in self._refused:
            self._pass_over(author)
        self._refused.clear()
        self._awaited.clear()
        self._judged.clear()

    def advance(self) -> None:
        """Once the knowledge at the head is here, fetch parts that it lists for us, and drop those that nothing lists.

        This happens before we contribute to the phase: parts that our trainer writes for it are listed nowhere yet.
        """
        context, knowledge = self._context, self._context.knowledge()
        if not self.is_used or knowledge is None or self._looked_at == context.head.block_hash:
            return
        is_first, self._looked_at = not self._looked_at, context.head.block_hash
        known = context.checks.parts_known(knowledge)
        self._was_listed, self._listed = self._listed, {part_hash for _, (part_hash, _, _), _ in known}
        self._were_own, self._own = self._own, {}
        for number, (part_hash, _, reader), sender in known:
            if context.head.roster.members[sender] == context.me:
                self._own.setdefault(part_hash, set()).add((reader, number))
        self._look_for(known)
        posts = self._open_posts()
        listed = {part_hash for post, payload in posts for part_hash, _, _ in self._lists.parts(post, payload)}
        if not is_first:  # after a restart, our trainer may have left parts of a post that is not known yet
            needed = frozenset({*self._listed, *self._was_listed, *listed, *self._keeping, *self._wanted})
            self._spared = {*needed}
            context.emit(KeepParts(needed))
        self._ask()

    def _look_for(self, known: Sequence[tuple[int, Part, int]]) -> None:
        """Want the parts that the knowledge lists for us, and those that posts from the open phase on list."""
        context = self._context
        self._here.clear()
        self._turns.forget_waiting()
        claims: dict[Hash, list[_Claim]] = {}
        for posted_in, (part_hash, size, reader), sender in known:
            is_own = context.head.roster.members[sender] == context.me  # our trainer writes without telling us
            if not self._lists.is_ours(reader, posted_in) or (is_own and self._lookup.has(part_hash)):
                continue
            if part_hash in self._keeping or not self._has(part_hash):
                claims.setdefault(part_hash, []).append(_Claim(size, context.head.roster.members[sender], None, b""))
        self._given_up &= self._listed
        awaited = {
            part_hash for part_hash, found in claims.items() if any(self.is_waited_for(claim.author) for claim in found)
        }
        self._awaited, self._came_ms = awaited - self._given_up, context.now.ms
        for part_hash, posted in (*self._wanted.items(), *self._keeping.items()):
            still = [item for item in posted if item.post and (item.post.round, item.post.phase) >= context.phase]
            if still:
                claims.setdefault(part_hash, []).extend(still)
        for part_hash in self._keeping:
            self._keeping[part_hash] = claims.pop(part_hash, [])
        self._wanted = {}
        for part_hash in [running for running in self._turns.running() if running not in claims]:
            self._stop(part_hash)
        for part_hash, found in claims.items():
            for claim in found:
                self._claim(part_hash, claim)

    def on_tick(self) -> None:
        """Let stalled downloads make way, and begin others that there was no room for."""
        self._make_way()
        self._ask()

    # turns

    def _claim(self, part_hash: Hash, claim: _Claim) -> None:
        """Note a listing of a part that is missing."""
        context = self._context
        claims = self._keeping[part_hash] if part_hash in self._keeping else self._wanted.setdefault(part_hash, [])
        if claim in claims:
            return
        claims.append(claim)
        if part_hash in self._turns:
            if claim.author in context.peers:  # it may be the only author listing the part that has it
                self._want(part_hash, claim)
        elif part_hash in self._wanted:
            self._turns.wait(claim.author, part_hash)

    def _ask(self) -> None:
        """Begin downloads, up to the number that may run at a time."""
        context, now_ms = self._context, self._context.now.ms
        while self._room() > 0 and now_ms >= self._paused_until_ms:
            taken = self._turns.take_next(self._wanted.__contains__, context.peers, now_ms)
            if taken is None:
                return
            author, part_hash = taken
            try:
                for claim in self._claims_in_order(part_hash):
                    context.send(self._want(part_hash, claim))
            except LimitReached:
                self._turns.wait(author, part_hash)
                return  # the next part that comes, or the next tick, tries again
            self._turns.begin(author, part_hash, now_ms)

    def _want(self, part_hash: Hash, claim: _Claim) -> list[Request]:
        """Fetch a part from a member that lists it: nobody else gives it."""
        downloads, now_ms = self._context.contents.downloads, self._context.now.ms
        return downloads.want(part_hash, claim.size, claim.author, now_ms, PART_SIZE_MAX, asks_others=False)

    def _room(self) -> int:
        return FETCHED_AT_ONCE - len(self._turns) - len(self._keeping)

    def _make_way(self) -> None:
        """End downloads whose turn is over, in favour of others that wait."""
        downloads, is_wanted = self._context.contents.downloads, self._wanted.__contains__
        peers, now_ms = self._context.peers, self._context.now.ms
        for part_hash in self._turns.make_way(is_wanted, peers, downloads.arrived, self._room(), now_ms):
            self._context.contents.stop_part(part_hash)
            for author in {claim.author: None for claim in self._wanted[part_hash]}:
                self._turns.wait(author, part_hash)

    def _stop(self, part_hash: Hash) -> None:
        self._turns.end(part_hash, self._context.now.ms)
        self._context.contents.stop_part(part_hash)

    def _claims(self, part_hash: Hash) -> list[_Claim]:
        return self._wanted.get(part_hash) or self._keeping.get(part_hash) or []

    def _claims_in_order(self, part_hash: Hash) -> list[_Claim]:
        """Claims of connected authors, the author that gave a part most recently first."""
        claims = [claim for claim in self._wanted[part_hash] if claim.author in self._context.peers]
        return sorted(claims, key=lambda claim: -self._gave.get(claim.author, 0))

    def _unsettled(self, post: Post, payload: bytes) -> Iterator[Part]:
        """Parts of a post that this peer reads, and that are not here or not yet checked against its list."""
        if post.sender == self._context.me:
            return
        for part in self._lists.parts(post, payload):
            if self._lists.is_ours(part[2], post.round) and not self._is_settled(post, part[0]):
                yield part

    def _is_settled(self, post: Post, part_hash: Hash) -> bool:
        is_judged = self._judged.get((post.hash, part_hash), False)
        return is_judged and part_hash not in self._keeping and self._has(part_hash)

    def _has(self, part_hash: Hash) -> bool:
        """Whether a part is here and stays. While a phase is open the disk is asked once; it may be slow to drop."""
        if part_hash not in self._here:
            is_dropped = self._spared is not None and part_hash not in self._spared
            if part_hash in self._wanted or is_dropped or not self._lookup.has(part_hash):
                return False
            self._here.add(part_hash)
        return True
