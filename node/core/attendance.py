"""Attendance: which expected contributors' posts are missing, and whether others are worth waiting for."""

from collections.abc import Iterable, Set
from itertools import islice
from typing import NamedTuple

from fedchain.chain.state import State, expected_contributors, posts_required
from fedchain.crypto.keys import PublicKey
from fedchain.node.core.context import Context
from fedchain.node.core.deadlines import opens_after_ms
from fedchain.node.core.voting.vote_policy import (
    granted_until_ms,
    is_patience_over,
    longest_awaited,
    patience_ends_ms,
)


class Quiet(NamedTuple):
    """Posts of the open phase that make no difference."""

    posts: int
    """Number of posts, after which one does."""
    until_ms: int | None
    """Time from which each does; None if there is none."""
    but_of: PublicKey | None
    """Member whose post does; None if there is none."""


class Attendance:
    """Looks at the posts of the open phase."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._expected: Set[PublicKey] = frozenset()  # contributors that the open phase waits for
        self._lacking = 0  # their number whose posts are missing
        self._seen_changes, self._seen_posts = -1, 0  # of the mempool, when it was last examined
        self._quiet_below = 0  # below this count of mempool changes, another post makes no difference
        self._quiet_until_ms: int | None = None  # nor until this time, if there is one
        self._longest: PublicKey | None = None  # but for the post of this member, in version 3
        self._required: tuple[State | None, int] = None, 0  # a head, and the posts required there

    @property
    def missing(self) -> frozenset[PublicKey]:
        """Expected contributors whose posts are missing."""
        if not self._context.head.finished:
            self.look()
        return frozenset(self._expected - self._context.mempool.posts(self._context.phase).keys())

    @property
    def is_complete(self) -> bool:
        """Whether no post was missing when the posts were last examined."""
        return not self._lacking

    def waits_for_more(self) -> bool:
        """Whether the newest post makes no difference yet: no candidate is here, and other posts are awaited.

        A whole turn would do one thing besides: tell the operator that this node still listens for others before it
        speaks. That is then told at the next tick at the latest.
        """
        context, until_ms = self._context, self._quiet_until_ms
        if context.ledger.entries:
            return False
        if context.mempool.changes >= self._quiet_below or self._longest in context.mempool.posts(context.phase):
            self.look()
            if not self._lacking or self._quiet_until_ms != until_ms:  # a whole turn asks to be woken then
                return False
        return self._quiet_until_ms is None or context.now.ms < self._quiet_until_ms

    def quiet(self) -> Quiet:
        """The posts after which :meth:`waits_for_more`, as far as that is certain now."""
        context = self._context
        posts = 0 if context.ledger.entries else self._quiet_below - 1 - context.mempool.changes
        return Quiet(posts, self._quiet_until_ms, self._longest)

    def on_head(self) -> None:
        """Another phase is open."""
        self._seen_changes, self._quiet_below, self._longest = -1, 0, None

    def finish(self) -> None:
        """No phase is open any more."""
        self._expected, self._lacking = frozenset(), 0

    def opens_in_ms(self) -> int:
        """Milliseconds until the open phase takes posts; 0 once it does."""
        context = self._context
        return max(0, opens_after_ms(context.head) - context.since_head_ms)

    def wakes_at_ms(self) -> int | None:
        """Time at which the phase opens, or waiting for missing posts ends; None if neither is ahead."""
        context = self._context
        if opens_in_ms := self.opens_in_ms():
            return context.now.ms + opens_in_ms
        if not self._lacking or context.clock.quorum_ms is None or is_patience_over(context):
            return None
        return patience_ends_ms(context)

    def look(self) -> None:
        """If the mempool has changed, note the missing contributors and the time at which posts were enough."""
        context, head, changes = self._context, self._context.head, self._context.mempool.changes
        if self._seen_changes == changes:
            return
        posts = context.mempool.posts(context.phase)
        added = len(posts) - self._seen_posts
        if self._seen_changes >= 0 and changes - self._seen_changes == added:  # all changes are new posts
            came: Iterable[PublicKey] = islice(reversed(posts), added)
        else:
            self._expected = expected_contributors(head)
            came, self._lacking = posts, len(self._expected)
        self._lacking -= sum(map(self._expected.__contains__, came))
        self._seen_changes, self._seen_posts = changes, len(posts)
        lacking = self._lacking
        if context.clock.quorum_ms is None:
            if self._required[0] is not head:
                self._required = head, posts_required(context.genesis, head)
            required = self._required[1]
            # the cheap test first: counting only the contributors' posts costs more
            if len(posts) >= required and len(posts.keys() & head.roster.contributors) >= required:
                context.clock.quorum_ms = context.now.ms
            else:
                lacking = min(lacking, required - len(posts))
        self._quiet_below, quorum_ms = changes + lacking, context.clock.quorum_ms
        if quorum_ms is None:
            self._quiet_until_ms = None
        elif head.records:
            self._longest = longest_awaited(context, posts.keys())
            self._quiet_until_ms = granted_until_ms(context, quorum_ms, self._longest)
        else:
            self._quiet_until_ms = patience_ends_ms(context)
