"""Posts: how a member's post gets into the mempool, and the reasons for which it is refused.

The author of a post is blamed for what it signed. A peer that passes a post on is blamed only for what it could have
known: a bad signature, or an author that is no member.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from fedchain.chain.exceptions import (
    AlreadyKnown,
    Equivocation,
    Invalid,
    InvalidPayload,
    InvalidPost,
    MethodFailed,
    OutOfWindow,
    Refused,
)
from fedchain.chain.knowledge import check_size
from fedchain.chain.post import Post, PostKey
from fedchain.chain.state import State
from fedchain.chain.storage.store import Contents
from fedchain.chain.validation import POST_ROUNDS_AHEAD, validate_content, validate_post, validate_window
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import Chunk
from fedchain.node.core.attendance import Quiet
from fedchain.node.core.contents.bulk import BulkParts, Standing
from fedchain.node.core.context import Context
from fedchain.node.core.crimes import Crimes
from fedchain.node.core.effects import Blame, Compute, Persist
from fedchain.node.core.jobs import CheckPost, KeepPart


class _Stage(Enum):
    """The thing that a post waits for, once its payload is here."""

    EARLY = "its phase, or the knowledge that it was made from"
    CHECKING = "the check of its payload"
    GATHERING = "parts that this peer reads"


@dataclass(frozen=True, slots=True)
class _UnderWay:
    """A post that does not count yet."""

    post: Post
    payload: bytes
    stage: _Stage


class GoodPosts(Protocol):
    """Posts of the open phase that are good; nodes that share a process may share it."""

    def note(self, state: State, post: Post, payload: bytes) -> None:
        """Note that post and payload are good at ``state``."""

    def at(self, state: State) -> Mapping[Hash, bytes]:
        """Payloads of those that were noted at ``state``, by post; each is the very object that was noted.

        Two states whose open phases differ have two mappings.
        """


class _NoGoodPosts:
    """Remembers nothing."""

    def note(self, state: State, post: Post, payload: bytes) -> None:
        """See :class:`GoodPosts`."""

    def at(self, state: State) -> Mapping[Hash, bytes]:
        """See :class:`GoodPosts`."""
        return {}


NO_GOOD_POSTS = _NoGoodPosts()
"""For a node alone in its process, which checks each post once anyway."""


class Arrival:
    """A post that comes to some nodes of a process at one moment, with what each of them notes of it.

    Args:
        post: the post.
        payload: its payload, if it came with it.
        now_ms: now, by the monotonic clock.
    """

    __slots__ = ("content", "now_ms", "payload", "post")

    def __init__(self, post: Post, payload: bytes | None, now_ms: int) -> None:
        self.post, self.payload, self.now_ms = post, payload, now_ms
        self.content = post.payload_hash, payload or b""


class Lull:
    """A span of the open phase in which a good post changes nothing but the mempool, so that it needs no whole turn.

    It is over with the node's next event. In a simulation of many peers nearly all posts come in lulls. The
    payloads of these posts, and since when they are held, are noted at its end.

    Args:
        context: the node's memory.
        good: good posts of the head, as of :meth:`GoodPosts.at`.
        quiet: the posts that make no difference.
    """

    __slots__ = ("_context", "apart", "good", "is_over", "left", "phase", "posts", "taken", "until_ms")

    def __init__(self, context: Context, good: Mapping[Hash, bytes], quiet: Quiet) -> None:
        self._context, self.good, self.phase = context, good, context.phase
        self.posts = context.mempool.open(context.phase)
        self.left = quiet.posts
        self.until_ms = math.inf if quiet.until_ms is None else quiet.until_ms
        self.apart = context.me, quiet.but_of  # whose posts mean more
        self.taken: list[Arrival] = []
        """Posts that were taken."""
        self.is_over = False
        """Whether it takes no posts any more."""

    def end(self) -> None:
        """Note what is left to note of the posts that were taken."""
        if not self.is_over:
            self.is_over, self.left = True, 0
            self._context.mempool.note([arrival.now_ms for arrival in self.taken], self.phase)
            self._context.contents.hold_all([arrival.content for arrival in self.taken])


def taken_in_lulls(arrival: Arrival, numbers: Sequence[int], first: int, lulls: Sequence[Lull | None]) -> int:
    """Have nodes take a post, one after the other, as long as that is all that a whole turn of each would do.

    Args:
        arrival: the post.
        numbers: places of the nodes that get it.
        first: place of the first one among ``numbers``.
        lulls: the lull of each node, by its place; None if there is none.

    Returns:
        The place among ``numbers`` of the first node that has not taken it; their number if there is none.
    """
    post, payload, now_ms = arrival.post, arrival.payload, arrival.now_ms
    sender, good, is_good = post.sender, None, False
    for place in range(first, len(numbers)):
        lull = lulls[numbers[place]]
        if lull is None or lull.left <= 0 or now_ms >= lull.until_ms:
            return place
        if lull.good is not good:  # peers at one head share it
            good = lull.good
            is_good = payload is not None and good.get(post.hash) is payload
            is_good = is_good and (post.round, post.phase) == lull.phase
        if not is_good or sender in lull.posts or sender in lull.apart:
            return place
        lull.posts[sender] = post
        lull.taken.append(arrival)
        lull.left -= 1
    return len(numbers)


class Posts:
    """Takes posts and payloads."""

    def __init__(self, context: Context, crimes: Crimes, bulk: BulkParts, good: GoodPosts = NO_GOOD_POSTS) -> None:
        self._context, self._crimes, self._bulk, self._good = context, crimes, bulk, good
        self._under_way: dict[PostKey, _UnderWay] = {}
        self._awaits_knowledge = False  # whether early posts of the open phase are among them

    def on_post(self, peer: PublicKey, post: Post, payload: bytes | None) -> bool:
        """Check a member's post, find its payload and keep it; returns whether it counts now.

        Raises:
            Refused: it is not taken.
        """
        context, head = self._context, self._context.head
        held = context.mempool.get((post.round, post.phase), post.sender)
        if held is None and context.mempool.useless:
            held = context.mempool.useless.get(post.key)
        under_way = self._under_way.get(post.key) if self._under_way else None
        pending = None if under_way is None else under_way.post
        if post in (held, pending):
            raise AlreadyKnown("post", f"{post.hash.hex()} is held")
        first = held or context.contents.waiting(post.key) or pending
        if first is None and payload is not None and self._is_known(post, payload):
            self._keep(post, payload)
            return True
        validate_window(head, post)
        try:
            validate_post(context.genesis, head, post, context.signatures)
        except InvalidPost as error:  # its author signed it, and others may know less
            context.emit(Blame(post.sender, error))
            raise OutOfWindow("post", str(error)) from None
        if first is not None and first != post:  # the first post counts; both together are a crime
            self._crimes.accuse(first, post)
            raise Equivocation("one post per phase", f"{post.hash.hex()} found, {first.hash.hex()} is held")
        try:
            check_size(context.genesis, context.checks.rules, post)
        except InvalidPayload as error:
            self._refuse(post, error)
            return False
        if payload is not None:
            validate_content(post.payload_hash, post.payload_size, payload)
            if not self._check(post, payload):
                return False
            self._good.note(head, post, payload)
            return True
        payload = context.content(post.payload_hash)
        if payload is not None:
            return self._take(post, payload)
        requests = context.contents.await_payload(post, peer, context.now.ms)
        if post.sender in context.peers:  # its author has the payload, unlike perhaps the peer that passed it on
            context.contents.add_provider(post.sender, post.sender, context.now.ms)
        context.send(requests)
        return False

    def _is_known(self, post: Post, payload: bytes) -> bool:
        """Whether a peer of this process has found a post good at our head, and what it was made from is here, too."""
        known = self._good.at(self._context.head).get(post.hash)
        return known is payload and self._context.base_of(post.key) is not None

    def lull(self, quiet: Quiet) -> Lull:
        """The lull that is now, if there is one: otherwise it takes no posts.

        Nothing may be under way that a post of the open phase could meet: an early post, one that waits for its payload
        or was refused, parts, or peers that wait for its payload. Its base has to be here.
        """
        context = self._context
        is_busy = self._under_way or context.mempool.useless or context.contents.has_askers or self._bulk.is_used
        is_ready = not (is_busy or context.contents.has_waiting) and context.knowledge() is not None
        return Lull(context, self._good.at(context.head) if is_ready else {}, quiet)

    def on_chunk(self, peer: PublicKey, chunk: Chunk) -> bool:
        """Take a part of a content; returns whether it completes something. Raises InvalidPayload."""
        context = self._context
        try:
            content, requests = context.contents.on_chunk(peer, chunk, context.now.ms)
        except InvalidPayload:
            context.send(context.contents.downloads.go_on(chunk.content_hash, context.now.ms))
            raise
        context.send(requests)
        if content is None:
            return False
        if chunk.content_hash in self._bulk:
            self._bulk.on_bytes(chunk.content_hash, content, peer)
        context.send(context.contents.take_askers(chunk.content_hash))
        if chunk.content_hash in context.head.knowledge_roots:
            context.publish(chunk.content_hash)
            context.emit(Persist((Contents({chunk.content_hash: content}),)))
        for post in context.contents.take_waiting(chunk.content_hash):
            self._take(post, content)
        return True

    def on_checked(self, job: CheckPost, result: Refused | None) -> None:
        """A payload was checked: the post counts, or its author is blamed.

        A post of ours that was given up while it was checked was never said, and our key may have said another one.
        """
        context, post = self._context, job.post
        if not self._forget(post, _Stage.CHECKING) and post.sender == context.me:
            return
        if isinstance(result, Refused):
            self._refuse(post, result)
        elif context.is_countable(post.key):
            self._keep(post, job.payload)

    def on_kept(self, job: KeepPart, result: Refused | None) -> None:
        """A part of a post was checked and kept, or its author is blamed."""
        for post, payload in self._bulk.on_kept(job, result):
            self._keep(post, payload)
        if job.post is not None and isinstance(result, Invalid):
            self._forget(job.post, _Stage.GATHERING)
            self._refuse(job.post, result)

    def on_head(self) -> None:
        """Another phase is open: check the posts that arrived early for it, and go on gathering parts of late ones."""
        context = self._context
        self._under_way = {key: item for key, item in self._under_way.items() if context.is_pending(key)}
        for item in [item for item in self._under_way.values() if item.stage is _Stage.GATHERING]:
            self._keep(item.post, item.payload)
        self._awaits_knowledge = True
        self.advance()

    def advance(self) -> None:
        """Check early posts that can be counted now, once the knowledge needed for that is here."""
        if self._awaits_knowledge and self._context.knowledge() is not None:
            self._awaits_knowledge = False
            for item in [*self._under_way.values()]:
                if item.stage is _Stage.EARLY:
                    self._check(item.post, item.payload)

    def unshown(self, sender: PublicKey) -> list[Post]:
        """The posts of a member, for the open phase and later ones, that are known here and do not count, so that no
        status shows them: they wait for their phase, a payload, a check or parts, or are useless."""
        context, under_way, useless = self._context, self._under_way, self._context.mempool.useless
        if not (under_way or useless or context.contents.has_waiting):  # as a rule; each status asks
            return []
        found = list[Post]()
        for number in range(context.head.round, context.head.round + POST_ROUNDS_AHEAD + 1):
            for phase in range(len(context.genesis.phases_of(number))):
                if (number, phase) >= context.phase:
                    key = number, phase, sender
                    item = under_way.get(key)
                    post = context.contents.waiting(key) if item is None else item.post
                    post = post or useless.get(key)
                    found += [] if post is None else [post]
        return found

    def waiting_payloads(self) -> set[Hash]:
        """Payloads of posts that are not in the mempool yet."""
        return {item.post.payload_hash for item in self._under_way.values()}

    def sizes(self) -> Iterator[tuple[str, int]]:
        """Numbers of held items, by the names that `Node.sizes` gives them."""
        yield "posts under way", len(self._under_way)

    def _take(self, post: Post, payload: bytes) -> bool:
        """Check the bytes with the hash that a post names: its author may have signed another size."""
        if len(payload) == post.payload_size:
            return self._check(post, payload)
        found = f"{len(payload)} bytes found, {post.payload_size} signed"
        self._refuse(post, InvalidPayload("payload size", found))
        return False

    def _check(self, post: Post, payload: bytes) -> bool:
        """Have the method check a payload, once the knowledge for that is here; returns whether it passed before."""
        context, key = self._context, post.key
        is_countable = context.is_countable(key)
        knowledge = context.base_of(key) if is_countable else None
        if knowledge is None:
            self._under_way[key] = _UnderWay(post, payload, _Stage.EARLY)
            self._awaits_knowledge |= is_countable
            return False
        if context.checks.has_passed(context.head, post):
            self._keep(post, payload)
            return True
        self._under_way[key] = _UnderWay(post, payload, _Stage.CHECKING)
        context.emit(Compute(CheckPost(context.head, knowledge, post, payload)))
        return False

    def _keep(self, post: Post, payload: bytes) -> None:
        """Let a countable post count, once all of its parts that this peer reads are here."""
        self._context.publish(post.payload_hash)
        standing = self._bulk.gather(post, payload)
        if standing is Standing.WAITS:
            self._under_way[post.key] = _UnderWay(post, payload, _Stage.GATHERING)
            return
        if self._under_way:
            self._forget(post)
        is_demanded = standing is Standing.IS_WHOLE
        if self._context.mempool.add(post, self._context.now.ms, is_demanded=is_demanded):
            self._context.contents.put(post.payload_hash, payload)

    def _refuse(self, post: Post, error: Refused) -> None:
        """Remember a bad post, so that its payload is not checked again when it is passed on again."""
        self._context.contents.release(post.payload_hash)
        if isinstance(error, Invalid | MethodFailed):
            self._context.mempool.useless[post.key] = post
        if isinstance(error, Invalid):
            self._context.emit(Blame(post.sender, error))

    def _forget(self, post: Post, stage: _Stage | None = None) -> bool:
        """The post is under way no more, if it is in this stage, None for any; returns whether it was."""
        item = self._under_way.get(post.key)
        was_under_way = item is not None and item.post == post and stage in (None, item.stage)
        if was_under_way:
            del self._under_way[post.key]
        return was_under_way
