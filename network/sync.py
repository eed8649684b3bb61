"""Catching up, the pure part: which peers are asked for final blocks. Only blocks that prove themselves count.

Claims alone prove nothing, and only members have one each. A height is confirmed when more members claim it than may
lie: one of them is honest.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from fedchain.chain.state import NUMBER_MAX
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import FINALS_MAX, GetFinal
from fedchain.network.source import STALL_MS

AT_ONCE = 2
"""Peers that are asked for the same blocks at a time: one that lies costs a copy, not time."""

IN_HAND_MAX = 8
"""A peer that delivers is asked for the next blocks once at most this many are to come: they travel meanwhile."""

PASSED_OVER_MS = 4_000
"""How long a peer that did not deliver is passed over; twice as long after each further time."""

PASSED_OVER_MS_MAX = 64_000
"""The longest time for which a peer is passed over."""

PACE_MS_MAX = 250
"""Milliseconds a block at which a peer is good enough to be asked alone, and again first."""

COMPARE_MS = 8_000
"""How often another peer is asked beside one that is good enough: it may be far better."""

OWED_MAX = 32
"""Blocks that are remembered as asked of one peer, two answers full: one may be late, and is taken all the same."""

Request = tuple[PublicKey, GetFinal]
"""The peer to ask, and the blocks to ask it for."""


class Wanted(Enum):
    """Why a block was asked for."""

    NEXT = auto()
    """To follow it in its turn."""
    HEAD = auto()
    """To stand on it."""


@dataclass(slots=True)
class _Source:
    """One peer as a source of blocks: what it was asked for, and what it delivered."""

    asked_ms: int | None = None
    """When it was asked; None: nothing is expected of it."""
    asked_last_ms: int = -1
    """When it was asked last, whether it answered or not."""
    asked_to: int = 0
    """Height of the last block that it was asked for."""
    owed: dict[int, Wanted] = field(default_factory=dict)
    """Heights that it was asked for and has not answered, in the order of the questions."""
    came: int = 0
    """Blocks of its answer that turned out to be final."""
    pace_ms: int = STALL_MS
    """Milliseconds that one of them took."""
    failures: int = 0
    """How often in a row it did not deliver."""
    rest_until_ms: int = 0
    """Until when it is passed over."""

    def owe(self, heights: Iterable[int], wanted: Wanted) -> None:
        """It is asked for blocks; of very many the first are forgotten."""
        for height in heights:
            self.owed.pop(height, None)
            self.owed[height] = wanted
        for height in [*self.owed][:-OWED_MAX]:
            del self.owed[height]


class CatchUp:
    """Asks for the blocks above our head, of several peers at once.

    A claim costs its peer nothing and gets it a question, no more. A peer that delivers final blocks, and quickly, is
    asked for the next ones; a peer that takes long makes way for others; a peer that does not deliver, or delivers
    something that is refused, is passed over for longer and longer.

    Args:
        members: the peers that have a say, one claim each.
        faulty: how many of them may lie, f.
        hears_all: whether blocks are asked of other connected peers, too: members may have come that are not known
            yet. They have no say.
    """

    def __init__(self, members: Collection[PublicKey], faulty: int, *, hears_all: bool = False) -> None:
        self._members, self._faulty, self._hears_all = frozenset(members), faulty, hears_all
        self._heights: dict[PublicKey, int] = {}  # that peers say they have
        self._sources: dict[PublicKey, _Source] = {}
        self._highest = 0  # of all claims
        self._above = 0  # claims above the confirmed height
        self._heard = 0  # members that have stated a height
        self._owing: set[PublicKey] = set()  # peers that were asked for blocks and have not answered all
        self._compared_ms = 0  # when another peer was asked beside a good one last
        self.confirmed = 0
        """Height that more members than may lie have stated as theirs: the chain is there, and never goes back."""

    def track(self, members: Collection[PublicKey], faulty: int) -> None:
        """Take the members at another height, and how many of them may lie; who is gone has no say any more."""
        if self._members != (now := frozenset(members)):
            for peer in () if self._hears_all else self._heights.keys() - now:
                self.drop(peer)
            self._members = now
            self._heard = len(now & self._heights.keys())
            self._above = self.claims_above(self.confirmed)
        self._faulty = faulty

    @property
    def highest(self) -> int:
        """The largest height of all claims."""
        return self._highest

    @property
    def enough(self) -> int:
        """Number of members of which at least one is honest, f + 1."""
        return self._faulty + 1

    def claim(self, peer: PublicKey, height: int) -> None:
        """A peer says that its head is at ``height``. A peer that is no member has no say.

        No state is above ``NUMBER_MAX``, and questions about a block there would name heights beyond 64 bits.
        """
        has_say, height = peer in self._members, min(height, NUMBER_MAX)
        if not has_say and not self._hears_all:
            return
        if (before := self._heights.get(peer)) is None:
            before = 0
            self._heard += has_say
        self._heights[peer] = height
        self._above += has_say * ((height > self.confirmed) - (before > self.confirmed))
        self._highest = max(self._highest, height)
        if height < before == self._highest:
            self._highest = max(self._heights.values())
        if height > self.confirmed and self._above >= self.enough:
            self.confirmed = self.claimed_by(self.enough)
            self._above = self.claims_above(self.confirmed)

    def drop(self, peer: PublicKey) -> None:
        """The peer is gone."""
        if (height := self._heights.pop(peer, None)) is not None:
            self._heard -= peer in self._members
            self._above -= peer in self._members and height > self.confirmed
            self._sources.pop(peer, None)
            self._owing.discard(peer)
            self._highest = max(self._heights.values(), default=0)

    def claimed_by(self, count: int) -> int:
        """Height that at least ``count`` members say they have; 0 where fewer spoke."""
        heights = sorted((self._heights[peer] for peer in self._heights.keys() & self._members), reverse=True)
        return heights[count - 1] if 0 < count <= len(heights) else 0

    def claims_above(self, height: int) -> int:
        """How many members say they are above ``height``."""
        return sum(claimed > height for peer, claimed in self._heights.items() if peer in self._members)

    def claims(self) -> dict[PublicKey, int]:
        """Heights that members say they have, one of each."""
        return {peer: height for peer, height in self._heights.items() if peer in self._members}

    def at_least(self, height: int) -> list[PublicKey]:
        """Peers that say they are at ``height`` or above."""
        return [peer for peer, claimed in self._heights.items() if claimed >= height]

    def heard(self) -> int:
        """Number of members that have stated their height."""
        return self._heard

    def sources(self) -> int:
        """Number of peers that have, members or not."""
        return len(self._heights)

    def owed(self) -> int:
        """How many blocks are asked for and have not come."""
        return sum(len(self._sources[peer].owed) for peer in self._owing)

    # questions and answers

    def expect(self, peer: PublicKey, height: int) -> None:
        """A peer is asked whether it has a head at ``height``, which another peer handed out."""
        if peer in self._heights:
            self._owe(peer, (height,), Wanted.HEAD)

    def take(self, peer: PublicKey, height: int) -> Wanted | None:
        """A peer hands out a block: why it was asked for; None: it was not, or has answered already."""
        source = self._sources.get(peer)
        wanted = None if source is None else source.owed.pop(height, None)
        if source is not None and not source.owed:
            self._owing.discard(peer)
        return wanted

    def delivered(self, peer: PublicKey, height: int, now_ms: int) -> None:
        """The block at ``height`` that a peer sent is final."""
        if peer not in self._heights:
            return
        source = self._source(peer)
        source.failures, source.rest_until_ms, source.came = 0, 0, source.came + 1
        if source.asked_ms is not None:
            source.pace_ms = (now_ms - source.asked_ms) // source.came
            if height >= source.asked_to:
                source.asked_ms = None

    def failed(self, peer: PublicKey, now_ms: int) -> None:
        """An answer of a peer was refused: others are asked."""
        if peer in self._heights:
            source = self._source(peer)
            source.came = 0
            self._wait_no_more(source, now_ms)

    def goes_on(self, peer: PublicKey, now_ms: int) -> None:
        """A peer has sent something on the way to the head that it was asked for: it has as long again for the rest."""
        if (source := self._sources.get(peer)) is not None and source.asked_ms is not None:
            source.asked_ms = now_ms

    def reached(self, height: int) -> None:
        """Our head moved on: the blocks that were asked for have come."""
        for peer, source in self._sources.items():
            if self._heights[peer] <= height:
                source.asked_ms = None

    def ask(
        self, height: int, now_ms: int, gap_max: int, count: int = FINALS_MAX, *, is_walking: bool = False
    ) -> list[Request]:
        """Questions for the blocks above ``height``, our head's or that of the last block that waits above it.

        Args:
            height: the last block that is here.
            now_ms: now, on the clock by which all other times here are given.
            gap_max: from a peer that is further ahead than this, only the last block is wanted.
            count: blocks to ask for at a time. No answer says that it was cut short, so no more than surely fit.
            is_walking: whether last blocks wait already: peers that are further ahead are left to themselves meanwhile.
        """
        if height >= self._highest:
            return []
        heights = self._heights
        if is_walking:
            heights = {peer: claimed for peer, claimed in heights.items() if claimed - height <= gap_max}
        for peer, source in self._sources.items():
            if peer in heights and source.asked_ms is not None and now_ms - source.asked_ms >= STALL_MS:
                self._wait_no_more(source, now_ms)
        peers = {peer: claimed for peer, claimed in heights.items() if claimed > height}
        requests = list[Request]()
        for peer in self._choose(peers, height, now_ms, gap_max):
            source, claimed = self._source(peer), peers[peer]
            is_far = claimed - height > gap_max
            below = height if source.asked_ms is None else source.asked_to
            source.asked_to = claimed if is_far else min(claimed, below + count)
            source.asked_ms = source.asked_last_ms = now_ms
            source.came = 0
            if is_far:
                self._owe(peer, (claimed,), Wanted.HEAD)
            else:
                self._owe(peer, range(below + 1, source.asked_to + 1), Wanted.NEXT)
            requests.append((peer, GetFinal(claimed, 1) if is_far else GetFinal(below + 1, count)))
        return requests

    def _owe(self, peer: PublicKey, heights: Iterable[int], wanted: Wanted) -> None:
        self._source(peer).owe(heights, wanted)
        self._owing.add(peer)

    def _source(self, peer: PublicKey) -> _Source:
        """A peer that has stated its height, as a source."""
        source = self._sources.get(peer)
        if source is None:
            source = self._sources[peer] = _Source()
        return source

    def _choose(self, peers: Mapping[PublicKey, int], height: int, now_ms: int, gap_max: int) -> list[PublicKey]:
        """The peers to ask, of those that say they are above us: one that is good enough alone, but for a comparison at
        times; otherwise all take turns."""

        def in_turn(peer: PublicKey) -> tuple[bool, int, int]:
            source = self._source(peer)
            # Single blocks from a peer far below the others would never get us to their height.
            return peers[peer] + gap_max < self.confirmed, source.failures, source.asked_last_ms

        free, busy = list[PublicKey](), list[PublicKey]()
        for peer, claimed in peers.items():
            source = self._source(peer)
            if self._may_be_asked(source, claimed, height, now_ms):
                free.append(peer)
            elif source.asked_ms is not None:
                busy.append(peer)
        places = AT_ONCE - len(busy)
        if places <= 0:
            return []
        good = {peer for peer in free + busy if not in_turn(peer)[0] and self._sources[peer].pace_ms <= PACE_MS_MAX}
        if not good:
            return sorted(free, key=in_turn)[:places]
        best = min(good & {*free}, key=lambda peer: (self._sources[peer].pace_ms, peer), default=None)
        chosen = [best] if best is not None and good.isdisjoint(busy) else []
        others = [peer for peer in free if peer not in chosen]
        if others and len(chosen) < places and now_ms - self._compared_ms >= COMPARE_MS:
            self._compared_ms = now_ms
            chosen.append(min(others, key=in_turn))
        return chosen

    @staticmethod
    def _may_be_asked(source: _Source, claimed: int, height: int, now_ms: int) -> bool:
        """Whether a peer does not rest and owes nothing, or is delivering and owes little."""
        if source.asked_ms is None:
            return now_ms >= source.rest_until_ms
        return source.came > 0 and source.asked_to - height <= IN_HAND_MAX and source.asked_to < claimed

    @staticmethod
    def _wait_no_more(source: _Source, now_ms: int) -> None:
        """Stop waiting: a peer that sent some blocks may have cut its answer short; one that sent none is to rest."""
        source.asked_ms = None
        if source.came:
            source.pace_ms = STALL_MS // source.came
            return
        source.pace_ms = STALL_MS
        source.rest_until_ms = now_ms + min(PASSED_OVER_MS_MAX, PASSED_OVER_MS << min(source.failures, 8))
        source.failures += 1
