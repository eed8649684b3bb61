"""The mempool: posts that are not in a final block yet, one per member and phase, for the open round and the next.

Where late posts count, those that are owed to earlier rounds are held, too.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from itertools import groupby
from operator import attrgetter

from fedchain.chain.post import Post, PostKey
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey

PhaseKey = tuple[int, int]
"""(round, phase)."""


_phase: Callable[[Post], PhaseKey] = attrgetter("round", "phase")


class Mempool:
    """Posts by phase and sender, each with its payload at hand. The first post of a sender counts.

    It is bounded by construction: a caller adds only posts of members and of phases inside the window, so it never
    holds more than members × phases of two rounds, and of those whose late posts count.
    """

    def __init__(self) -> None:
        self.changes = 0
        """Number of additions and drops so far."""
        self.useless: dict[PostKey, Post] = {}
        """Posts that were refused because of their payloads, one for each member and phase: not checked again."""
        self._posts: dict[PhaseKey, dict[PublicKey, Post]] = {}
        self._held_since_ms: dict[PhaseKey, array[int]] = {}  # of each post of a phase, in the order of `_posts`
        self._undemanded: dict[PhaseKey, set[PublicKey]] = {}  # senders on whose posts this peer does not insist

    def add(self, post: Post, now_ms: int, *, is_demanded: bool = True) -> bool:
        """Keep ``post``, unless its sender has one there already.

        A peer that does not read every part that a post lists cannot tell whether the parts are available, so it does
        not insist that blocks count the post (`is_demanded=False`).
        """
        phase = post.round, post.phase
        posts, sender = self.open(phase), post.sender
        if sender in posts:
            return False
        posts[sender] = post
        self._held_since_ms[phase].append(now_ms)
        if not is_demanded:
            self._undemanded.setdefault(phase, set()).add(sender)
        self.changes += 1
        return True

    def open(self, phase: PhaseKey) -> dict[PublicKey, Post]:
        """Posts of a phase by sender, to be added to; :meth:`note` is to be told of those that were added."""
        posts = self._posts.get(phase)
        if posts is None:
            posts, self._held_since_ms[phase] = self._posts.setdefault(phase, {}), array("q")
        return posts

    def note(self, since_ms: Sequence[int], phase: PhaseKey) -> None:
        """Note since when posts that were added to :meth:`open` are held, in the same order. They are demanded."""
        if since_ms:
            self._held_since_ms[phase].extend(since_ms)
            self.changes += len(since_ms)

    def get(self, phase: PhaseKey, sender: PublicKey) -> Post | None:
        """The post of ``sender`` in a phase; None if it is not held."""
        posts = self._posts.get(phase)
        return None if posts is None else posts.get(sender)

    def holds(self, post: Post) -> bool:
        """Whether this very post is held."""
        held = self.get((post.round, post.phase), post.sender)
        return held is post or held == post

    def others(self, posts: Iterable[Post]) -> list[tuple[Post, Post]]:
        """Each held post whose sender has another one for the same phase among ``posts``, with that one."""
        found: list[tuple[Post, Post]] = []
        for key, of_phase in groupby(posts, _phase):
            held = self.posts(key)
            others = [(mine, post) for post in of_phase if (mine := held.get(post.sender, post)) is not post]
            found += [(mine, post) for mine, post in others if mine.hash != post.hash]
        return found

    def posts(self, phase: PhaseKey) -> dict[PublicKey, Post]:
        """Posts of one phase by sender; do not change it."""
        return self._posts.get(phase, {})

    def held_before(self, phase: PhaseKey, time_ms: int) -> Set[PublicKey]:
        """Senders whose posts of a phase are demanded and have been held since before ``time_ms``."""
        return {sender for sender, since_ms in self._since(phase) if since_ms < time_ms}

    def held_by(self, phase: PhaseKey, time_ms: int) -> Set[PublicKey]:
        """Senders whose posts of a phase were held at ``time_ms``; if they are not demanded, since any time."""
        return self.posts(phase).keys() - {sender for sender, since_ms in self._since(phase) if since_ms > time_ms}

    def demanded(self, phase: PhaseKey) -> Set[PublicKey]:
        """Senders whose posts of a phase this peer insists on."""
        held, undemanded = self.posts(phase).keys(), self._undemanded.get(phase)
        return held - undemanded if undemanded else held

    def _since(self, phase: PhaseKey) -> Iterator[tuple[PublicKey, int]]:
        """Senders whose posts of a phase are demanded, and since when these are held."""
        held_since = zip(self.posts(phase), self._held_since_ms.get(phase, ()), strict=True)
        undemanded = self._undemanded.get(phase)
        return ((who, at_ms) for who, at_ms in held_since if who not in undemanded) if undemanded else held_since

    def all(self) -> Iterator[Post]:
        """All posts that are held."""
        return (post for posts in self._posts.values() for post in posts.values())

    def payload_hashes(self) -> Iterator[Hash]:
        """Payload hashes of all posts that are held."""
        return (post.payload_hash for post in self.all())

    def drop_before(self, phase: PhaseKey, is_owed: Callable[[PostKey], object] | None = None) -> None:
        """Forget the posts of phases before ``phase``, which are closed, except those that are still owed, if any."""
        for closed in [known for known in self._posts if known < phase]:
            posts, since_ms = self._posts.pop(closed), self._held_since_ms.pop(closed)
            undemanded = self._undemanded.pop(closed, set())
            kept = {sender: post for sender, post in posts.items() if is_owed(post.key)} if is_owed else {}
            if kept:
                self._posts[closed] = kept
                held_since = zip(posts, since_ms, strict=True)
                self._held_since_ms[closed] = array("q", [at_ms for who, at_ms in held_since if who in kept])
                if kept_undemanded := undemanded & kept.keys():
                    self._undemanded[closed] = kept_undemanded
        for key in [known for known in self.useless if known[:2] < phase and not (is_owed and is_owed(known))]:
            del self.useless[key]
        self.changes += 1

    def drop(self, post: Post) -> None:
        """Forget a post that turned out to be useless."""
        phase = post.round, post.phase
        if self.holds(post):
            posts = self._posts[phase]
            del self._held_since_ms[phase][[*posts].index(post.sender)]
            del posts[post.sender]
            self._undemanded.get(phase, set()).discard(post.sender)
            self.changes += 1

    def __len__(self) -> int:
        return sum(len(posts) for posts in self._posts.values())
