"""Retention: the contents that the last blocks need. Older ones may be dropped."""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.crypto.hashing import Hash


def contents_of(blocks: Iterable[Block]) -> set[Hash]:
    """Payloads that the blocks count, and the knowledge that they leave behind."""
    needed: set[Hash] = set()
    for block in blocks:
        needed.add(block.header.knowledge_root)
        needed.update(block.payload_hashes)
    return needed


def contents_in_order(blocks: Iterable[Block]) -> tuple[Hash, ...]:
    """The same contents, the newest block's first; in each block the knowledge precedes the payloads.

    Args:
        blocks: blocks that obey the rules, so that their hashes fix their contents; oldest first.
    """
    return _in_order(_Valid([*blocks]))


class Window:
    """Contents of the final blocks that a sweep to come keeps, known by the time of the sweep.

    Each block is looked at when it is final. Those of before a restart are read a few at each head: to read a thousand
    takes a second, for which the node would answer nobody.

    Args:
        final: the final block at a height with its certificate; None if it is not here.
    """

    def __init__(self, final: Callable[[int], tuple[Block, Certificate] | None]) -> None:
        self._final = final
        self._places = range(0)
        self._next = 0  # the first place that was not looked at since these are the places
        self._held: dict[int, tuple[Hash, ...]] = {}

    def follow(self, places: range, height: int) -> None:
        """The block at ``height`` is final; the sweep at the last of ``places`` will keep those of blocks there."""
        if places != self._places:
            self._held = {place: held for place, held in self._held.items() if place in places}
            self._places, self._next = places, places.start
        if height < places.start:
            return
        count = -(-(places.stop - self._next) // (places.stop - height))
        end = min(self._next + count, height + 1)
        for place in (*range(self._next, end), height):
            self._look(place)
        self._next = max(self._next, end)

    def contents(self) -> set[Hash]:
        """The contents, at the height of the sweep. Blocks that came late, as below a head that was joined, count."""
        for place in self._places:
            self._look(place)
        return set().union(*self._held.values())

    def _look(self, place: int) -> None:
        if place not in self._held and (found := self._final(place)) is not None:
            self._held[place] = contents_in_order(found[:1])


class _Valid:
    """Blocks that obey the rules, which equal others with the same hashes."""

    __slots__ = ("blocks", "hashes")

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.blocks, self.hashes = blocks, tuple([block.hash for block in blocks])

    def __hash__(self) -> int:
        return hash(self.hashes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Valid) and self.hashes == other.hashes


@lru_cache(maxsize=4)
def _in_order(valid: _Valid) -> tuple[Hash, ...]:
    """Cached: all peers of a simulation sweep at the same blocks, and keep the contents of the same one."""
    ordered: dict[Hash, None] = {}
    for block in reversed(valid.blocks):
        ordered |= dict.fromkeys((block.header.knowledge_root, *block.payload_hashes))
    return tuple(ordered)
