"""A node's conduct: the choices that its shell makes for it, and that no other member has to agree with."""

from dataclasses import dataclass

from fedchain.node.core.checks import held_once
from fedchain.node.core.contents.content_cache import RECENT_SIZE_MAX, Intern
from fedchain.node.core.contents.part_lists import PartLookup
from fedchain.node.core.posts import NO_GOOD_POSTS, GoodPosts
from fedchain.node.core.voting.twins import KeyGuard


@dataclass(frozen=True, slots=True, kw_only=True)
class Conduct:
    """How a node goes about its work."""

    intern: Intern = held_once
    """Returns the copy of a content to hold, where many nodes share a process."""
    good_posts: GoodPosts = NO_GOOD_POSTS
    """Posts that other nodes of this process found good."""
    parts: PartLookup | None = None
    """The store of the parts that posts list by reference; None if posts are whole."""
    replays: bool = False
    """Whether every missed aggregate is recomputed, instead of joining at the head."""
    backfills: bool = False
    """Whether older blocks are fetched in the background after joining."""
    refills: bool = False
    """Whether missing payloads and knowledge of final blocks are fetched in the background."""
    recent_size_max: int = RECENT_SIZE_MAX
    """Bytes of contents of the last blocks that stay in memory; contents that the open height needs always stay."""
    wait_for: int = 0
    """Members, this one counted, that have to be connected before it posts or mines for the first time."""
    has_listened: bool = False
    """Whether this peer has listened for its key until now; a simulated peer follows the chain asleep."""
    neighbours: int | None = None
    """Number of members that the network ever connects this peer to; None for all."""
    guard: KeyGuard | None = None
    """Watches for another process with this key; None for the guard that every honest node has."""
