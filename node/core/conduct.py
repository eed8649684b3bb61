"""A node's conduct: what its shell chooses for it, and what no other member has to agree with."""

from dataclasses import dataclass

from fedchain.crypto.hashing import Hash
from fedchain.node.core.contents.content_cache import RECENT_SIZE_MAX, Intern
from fedchain.node.core.contents.part_lists import PartLookup
from fedchain.node.core.voting.twins import KeyGuard


def held_once(_: Hash, data: bytes) -> bytes:
    """Hold a content as it came: there is one node in this process."""
    return data


@dataclass(frozen=True, slots=True, kw_only=True)
class Conduct:
    """How a node goes about its work."""

    intern: Intern = held_once
    """The copy of a content to hold, where many nodes share a process."""
    parts: PartLookup | None = None
    """Where the bytes are that posts list by reference; None: posts are whole."""
    replays: bool = False
    """Whether every aggregate that was missed is recomputed, instead of joining at the head."""
    backfills: bool = False
    """Whether older blocks are fetched in the background after joining."""
    refills: bool = False
    """Whether missing payloads and knowledge of final blocks are."""
    recent_size_max: int = RECENT_SIZE_MAX
    """Bytes of contents of the last blocks that stay in memory; what the open height needs always does."""
    wait_for: int = 0
    """Members, this one counted, that have to be connected before it posts or mines for the first time."""
    has_listened: bool = False
    """Whether this key was listened for until now: a simulated peer sleeps, and follows the chain."""
    neighbours: int | None = None
    """Members that the network ever connects this peer to; None: all."""
    guard: KeyGuard | None = None
    """What watches for another process that has this key; None: the guard of every honest node."""
