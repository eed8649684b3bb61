"""Fetching of parts: those that this peer follows, and the downloads of those that it lacks.

Few parts are fetched at a time, so authors take turns (``turns.py``): an author that withholds the parts it lists, or
sends them slowly, holds up none of the others.
"""

from collections.abc import Collection, ItemsView

from fedchain.chain.exceptions import LimitReached
from fedchain.chain.knowledge import PART_SIZE_MAX
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.network.downloads import Request
from fedchain.node.core.contents.authors import Authors
from fedchain.node.core.contents.part_lists import PartLookup
from fedchain.node.core.contents.tracked_part import Claim, PartState, TrackedPart
from fedchain.node.core.contents.turns import Turns
from fedchain.node.core.context import Context

FETCHED_AT_ONCE = 8
"""Most parts that are fetched at a time; each is held in memory until it is complete, checked and written."""


class PartFetching:
    """Follows parts, and fetches each from the members that list it.

    Args:
        context: the node's memory.
        lookup: the parts on the disk.
        authors: which of them gave a part last.
    """

    def __init__(self, context: Context, lookup: PartLookup, authors: Authors) -> None:
        self._context, self._lookup, self._authors = context, lookup, authors
        self._parts: dict[Hash, TrackedPart] = {}  # those that are wanted stand in the order in which they became so
        self._has_spared = False  # whether the disk was told what to keep
        self._turns = Turns(FETCHED_AT_ONCE, context.head.rules.phase_timeout_ms // 2)
        self._paused_until_ms = 0  # when the disk may take parts again

    def __contains__(self, content_hash: Hash) -> bool:
        """Whether a content is a part that is being fetched, or will be."""
        part = self._parts.get(content_hash)
        return part is not None and part.state is PartState.WANTED

    def parts(self) -> ItemsView[Hash, TrackedPart]:
        """The parts that are followed, by hash."""
        return self._parts.items()

    def part(self, part_hash: Hash) -> TrackedPart:
        """A part, which is followed from now on."""
        part = self._parts.get(part_hash)
        if part is None:
            part = self._parts[part_hash] = TrackedPart()
        return part

    def is_here(self, part_hash: Hash) -> bool:
        """Whether a part is here and stays. While a phase is open the disk is asked once; it may be slow to drop."""
        part = self.part(part_hash)
        if part.state is PartState.UNKNOWN and (part.is_spared or not self._has_spared) and self._lookup.has(part_hash):
            part.find()
        return part.state is PartState.HERE

    def is_under_way(self, content_hash: Hash) -> bool:
        """Whether a content is a part that is being fetched or written."""
        part = self._parts.get(content_hash)
        return part is not None and part.is_under_way

    def is_settled(self, post_hash: Hash, part_hash: Hash) -> bool:
        """Whether a part is here and was checked against the list of a post."""
        part = self._parts.get(part_hash)
        return part is not None and part.judged.get(post_hash, False) and self.is_here(part_hash)

    def claim(self, part_hash: Hash, claim: Claim) -> None:
        """Note a listing of a part that is missing."""
        part = self.part(part_hash)
        if not part.is_under_way:
            part.begin()
            self._parts[part_hash] = self._parts.pop(part_hash)
        if claim in part.claims:
            return
        part.claims.append(claim)
        if part_hash not in self._turns and part.state is PartState.WANTED:
            self._turns.wait(claim.author, part_hash)

    def ask(self) -> None:
        """Begin downloads, up to the number that may run at a time."""
        context, now_ms = self._context, self._context.now.ms
        if now_ms < self._paused_until_ms:
            return
        for _ in range(self._room()):
            taken = self._turns.take_next(self.__contains__, context.peers, now_ms)
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

    def on_bytes(self, part_hash: Hash, giver: PublicKey) -> Claim:
        """The bytes of a part have come, the last of them from ``giver``; returns the listing by which it is checked.

        The part is being kept from now on.
        """
        now_ms = self._context.now.ms
        claim = self._parts[part_hash].arrive()
        self._turns.end(part_hash, now_ms)
        self._authors.on_part(giver, now_ms)
        return claim

    def pause(self, until_ms: int) -> None:
        """Begin no download until then: the disk is full."""
        self._paused_until_ms = until_ms

    def on_tick(self) -> None:
        """Let stalled downloads make way, and begin others that there was no room for."""
        self._make_way()
        self._name_authors()
        self.ask()

    # another head

    def doubt(self) -> None:
        """The head moved: the disk is asked again, no part waits for its turn, and turns are as long as it says."""
        for part in self._parts.values():
            part.doubt()
        self._turns.forget_waiting()
        self._turns.shared_ms = self._context.head.rules.phase_timeout_ms // 2

    def claim_anew(self, claims: dict[Hash, list[Claim]]) -> None:
        """Want the parts of these listings and of posts that may still be counted, and stop all other downloads."""
        is_pending = self._context.is_pending
        for part_hash, part in self._parts.items():
            still = [item for item in part.claims if item.post and is_pending(item.post.key)]
            if still:
                claims.setdefault(part_hash, []).extend(still)
        for part_hash, part in self._parts.items():
            part.claim_anew(claims.pop(part_hash, []) if part.state is PartState.KEEPING else ())
        for part_hash in [running for running in self._turns.running() if running not in claims]:
            self._turns.end(part_hash, self._context.now.ms)
            self._context.contents.stop_part(part_hash)
        for part_hash, found in claims.items():
            for claim in found:
                self.claim(part_hash, claim)

    def spare(self, needed: Collection[Hash]) -> None:
        """The disk is told to keep these parts and to drop the others."""
        self._has_spared = True
        for part_hash in needed:
            self.part(part_hash)
        for part_hash, part in self._parts.items():
            part.is_spared = part_hash in needed
        self._parts = {part_hash: part for part_hash, part in self._parts.items() if part.is_of_use()}

    # turns

    def _want(self, part_hash: Hash, claim: Claim) -> list[Request]:
        """Fetch a part from a member that lists it: nobody else gives it."""
        downloads, now_ms = self._context.contents.downloads, self._context.now.ms
        return downloads.want(part_hash, claim.size, claim.author, now_ms, PART_SIZE_MAX, asks_others=False)

    def _name_authors(self) -> None:
        """Have downloads ask authors that have listed the part, or have connected, since they began: the one that does
        may be the only one that has it, and one that has its next key connects anew."""
        for part_hash in self._turns.running():
            if part_hash in self._context.contents.downloads:
                for claim in self._claims_in_order(part_hash):
                    self._context.send(self._want(part_hash, claim))

    def _room(self) -> int:
        being_kept = sum(part.state is PartState.KEEPING for part in self._parts.values())
        return FETCHED_AT_ONCE - len(self._turns) - being_kept

    def _make_way(self) -> None:
        """End downloads whose turn is over, in favour of others that wait."""
        downloads, is_wanted = self._context.contents.downloads, self.__contains__
        peers, now_ms = self._context.peers, self._context.now.ms
        for part_hash in self._turns.make_way(is_wanted, peers, downloads.arrived, self._room(), now_ms):
            self._context.contents.stop_part(part_hash)
            for author in {claim.author: None for claim in self._parts[part_hash].claims}:
                self._turns.wait(author, part_hash)

    def _claims_in_order(self, part_hash: Hash) -> list[Claim]:
        """Claims of connected authors, the author that gave a part most recently first."""
        claims = [claim for claim in self._parts[part_hash].claims if claim.author in self._context.peers]
        return sorted(claims, key=lambda claim: -self._authors.gave_ms(claim.author))
