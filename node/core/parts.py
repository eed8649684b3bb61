"""The parts of a node, each of which decides one thing, and the choices by which its shell builds them."""

from dataclasses import dataclass

from fedchain.chain.genesis import NEWEST_VERSION
from fedchain.chain.storage.store import Storage
from fedchain.crypto.hashing import Hash
from fedchain.node.core.answers import Answers
from fedchain.node.core.attendance import Attendance
from fedchain.node.core.block_import import BlockImport
from fedchain.node.core.contents.bulk import BulkParts
from fedchain.node.core.contents.content_cache import OWN_COPIES, RECENT_SIZE_MAX, Copies
from fedchain.node.core.contents.part_lists import NoParts, PartLookup
from fedchain.node.core.contents.sweeping import Sweeping
from fedchain.node.core.context import Context
from fedchain.node.core.contributing import Contributing
from fedchain.node.core.crimes import Crimes
from fedchain.node.core.following.announcing import Announcing
from fedchain.node.core.following.catching_up import CatchingUp
from fedchain.node.core.following.gathering import Gathering
from fedchain.node.core.following.light_joining import Waypoint
from fedchain.node.core.following.proving import Proving
from fedchain.node.core.following.refill import Refill
from fedchain.node.core.membership.changes import Changes
from fedchain.node.core.mining import Mining
from fedchain.node.core.observations import Observations
from fedchain.node.core.posts import NO_GOOD_POSTS, GoodPosts, Posts
from fedchain.node.core.voting.foreseeing import Foreseeing
from fedchain.node.core.voting.sessions import Sessions
from fedchain.node.core.voting.twins import KeyGuard, Twins
from fedchain.node.core.voting.voting import Voting


@dataclass(frozen=True, slots=True, kw_only=True)
class Conduct:
    """How a node goes about its work."""

    copies: Copies = OWN_COPIES
    """The contents that nodes of this process hold."""
    good_posts: GoodPosts = NO_GOOD_POSTS
    """Posts that other nodes of this process found good."""
    parts: PartLookup | None = None
    """The store of the parts that posts list by reference; None if posts are whole."""
    replays: bool = False
    """Whether every missed aggregate is recomputed, instead of joining at the head."""
    waypoint: Waypoint | None = None
    """Height and hash of a block that the chain has to contain, where members change: an invitation names it."""
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
    foresees: bool = True
    """Whether it looks ahead of the votes, so that its shell may train early."""
    speaks: int = NEWEST_VERSION
    """The newest version of the protocol that it knows."""
    guard: KeyGuard | None = None
    """Watches for another process with this key; None for the guard that every honest node has."""


class Parts:
    """The parts, in the order in which they stand on each other.

    Args:
        context: the node's memory.
        conduct: the choices that the shell makes for the node.
        session: 16 bytes, drawn at random for this process.
    """

    def __init__(self, context: Context, conduct: Conduct, session: bytes) -> None:
        self.twins = conduct.guard or Twins(context, has_listened=conduct.has_listened, neighbours=conduct.neighbours)
        self.sessions = Sessions(context, session, has_listened=conduct.has_listened)
        self.crimes = Crimes(context)
        self.changes = Changes(context, self.says_nothing, conduct.speaks)
        self.bulk = BulkParts(context, NoParts() if conduct.parts is None else conduct.parts)
        self.blocks = BlockImport(context, self.crimes, self.bulk)
        self.posts = Posts(context, self.crimes, self.bulk, conduct.good_posts)
        self.voting = Voting(context, self.crimes, self.blocks, self.says_nothing)
        self.attendance = Attendance(context)
        self.contributing = Contributing(context, self.attendance, self.bulk, self.says_nothing)
        self.mining = Mining(context, self.attendance, self.crimes, self.blocks, self.says_nothing)
        self.foreseeing = Foreseeing(context, self.voting, self.contributing.is_occupied, is_wanted=conduct.foresees)
        self.gathering = Gathering(context, conduct.wait_for)
        self.catching_up = CatchingUp(
            context,
            self.blocks,
            self.says_nothing,
            replays=conduct.replays,
            backfills=conduct.backfills,
            waypoint=conduct.waypoint,
        )
        self.proving = Proving(context)
        self.refill = Refill(context, is_wanted=conduct.refills)
        self.answers = Answers(context, self.bulk, self.posts.unshown, self.voting.early)
        self.announcing = Announcing(context, self.answers, self.voting)
        self.sweeping = Sweeping(context, self.blocks, self.catching_up, self.posts, self.bulk)
        self.observations = Observations(context, self.blocks, self.says_nothing)
        context.contents.wanted, context.contents.is_part = self.sweeping.wanted, self.bulk.__contains__

    def says_nothing(self) -> bool:
        """Whether our key is in use elsewhere, or may be for all we know."""
        return self.twins.is_silent() or self.sessions.is_ending()


def stored_range(storage: Storage, parts: PartLookup, content_hash: Hash, start: int, size: int) -> bytes | None:
    """A range of a stored content, or else of a stored part."""
    data = storage.content_part(content_hash, start, size)
    return parts.read_range(content_hash, start, size) if data is None else data
