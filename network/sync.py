"""Catching up, the pure part: of whom final blocks are asked. Only blocks that prove themselves count, never claims."""

from dataclasses import dataclass

from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import FINALS_MAX, GetFinal

STALL_MS = 2_000
"""A peer that has not answered for this long is not waited for. (Bitcoin: block stalling timeout)"""

AT_ONCE = 2
"""Peers that are asked for the same blocks at a time: one that lies costs a copy, not time."""

IN_HAND_MAX = 8
"""With at most so many blocks to come, a peer that delivers is asked for the next ones: they travel meanwhile."""

PASSED_OVER_MS = 4_000
"""How long a peer that did not deliver is passed over; twice as long after each further time."""

PASSED_OVER_MS_MAX = 64_000
"""The longest time for which a peer is passed over."""

Request = tuple[PublicKey, GetFinal]
"""Whom to ask for which blocks."""


@dataclass(slots=True)
class _Source:
    """What one peer said, and what came of it."""

    height: int = 0
    """Height that it says it has."""
    asked_ms: int | None = None
    """When it was asked, or delivered last; None: nothing is expected of it."""
    asked_to: int = 0
    """Height of the last block that it was asked for."""
    is_delivering: bool = False
    """Whether our head has moved by its blocks since it was asked."""
    failures: int = 0
    """How often in a row it did not deliver."""
    rest_until_ms: int = 0
    """Until when it is passed over."""


class CatchUp:
    """Asks for the blocks above our head, of several peers at once.

    A claim costs its peer nothing and gets it a question, no more: whoever delivers a block that is final is asked
    for the next ones, and whoever does not is passed over for longer and longer.
    """

    def __init__(self) -> None:
        self._sources: dict[PublicKey, _Source] = {}
        self._highest = 0  # of all that was ever claimed

    def claim(self, peer: PublicKey, height: int) -> None:
        """A peer says that its head is at ``height``."""
        self._sources.setdefault(peer, _Source()).height = height
        self._highest = max(self._highest, height)

    def drop(self, peer: PublicKey) -> None:
        """The peer is gone."""
        self._sources.pop(peer, None)

    def claimed_by(self, count: int) -> int:
        """Height that at least ``count`` peers say they have; 0 where fewer spoke."""
        heights = sorted((source.height for source in self._sources.values()), reverse=True)
        return heights[count - 1] if 0 < count <= len(heights) else 0

    def at_least(self, height: int) -> list[PublicKey]:
        """Peers that say they are at ``height`` or above."""
        return [peer for peer, source in self._sources.items() if source.height >= height]

    def heard(self) -> int:
        """How many peers have said where they are."""
        return len(self._sources)

    def was_asked(self, peer: PublicKey, height: int) -> bool:
        """Whether a peer was asked for blocks up to a height at least: what nobody asked for has no seat."""
        source = self._sources.get(peer)
        return source is not None and height <= source.asked_to

    def delivered(self, peer: PublicKey, height: int, now_ms: int) -> None:
        """A peer sent the block that brought our head to ``height``."""
        if (source := self._sources.get(peer)) is not None:
            source.failures, source.rest_until_ms, source.is_delivering = 0, 0, True
            source.asked_ms = None if height >= source.asked_to else now_ms

    def ask(self, height: int, now_ms: int, gap_max: int, count: int = FINALS_MAX) -> list[Request]:
        """Questions for the blocks above ``height``, our head's.

        Args:
            height: our head's.
            now_ms: now, on the clock by which all other times here are given.
            gap_max: of who is further ahead, the last block alone is wanted.
            count: blocks to ask for at a time. No answer says that it was cut short, so no more than surely fit.
        """
        if height >= self._highest:
            return []
        for source in self._sources.values():
            if source.asked_ms is not None and now_ms - source.asked_ms >= STALL_MS:
                self._wait_no_more(source, now_ms)
        free, busy, requests = list[tuple[PublicKey, _Source]](), 0, list[Request]()
        for peer, source in self._sources.items():
            if source.height > height and self._may_be_asked(source, height, now_ms):
                free.append((peer, source))
            elif source.height > height and source.asked_ms is not None:
                busy += 1
        for peer, source in sorted(free, key=_merit)[: max(0, AT_ONCE - busy)]:
            is_far = source.height - height > gap_max
            below = height if source.asked_ms is None else source.asked_to
            source.asked_to = source.height if is_far else min(source.height, below + count)
            source.asked_ms, source.is_delivering = now_ms, False
            question = GetFinal(source.height, 1) if is_far else GetFinal(below + 1, count)
            requests.append((peer, question))
        return requests

    @staticmethod
    def _may_be_asked(source: _Source, height: int, now_ms: int) -> bool:
        """Whether a peer does not rest and owes nothing, or is delivering and owes little."""
        if source.asked_ms is None:
            return now_ms >= source.rest_until_ms
        return source.is_delivering and source.asked_to - height <= IN_HAND_MAX and source.asked_to < source.height

    def reached(self, height: int) -> None:
        """Our head moved on: what was asked for has come."""
        for source in self._sources.values():
            if source.height <= height:
                source.asked_ms = None

    @staticmethod
    def _wait_no_more(source: _Source, now_ms: int) -> None:
        """Who has sent a part of what it was asked for may have cut its answer short; who sent nothing is to rest."""
        source.asked_ms = None
        if source.is_delivering:
            return
        source.rest_until_ms = now_ms + min(PASSED_OVER_MS_MAX, PASSED_OVER_MS << min(source.failures, 8))
        source.failures += 1


def _merit(item: tuple[PublicKey, _Source]) -> tuple[int, int]:
    """Who delivered comes first; among equals, who was passed over longest ago."""
    return item[1].failures, item[1].rest_until_ms
