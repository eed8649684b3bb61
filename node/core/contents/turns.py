"""Turns: whose part is downloaded next where few are at a time, and whose download makes way. Pure; no I/O.

Authors share the time for which places are held, as processes share a processor: who has held them for the least time
comes first, and who has held them longer by a turn makes way for whoever waits. So authors that give slowly, on purpose
and together, hold places for as long as their number allows, and no longer, however little by little they give.
(Linux: completely fair scheduler)
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Container
from dataclasses import dataclass

from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.network.sync import STALL_MS

TURN_MS_MIN = 2 * STALL_MS
"""The shortest turn; a download of which nothing comes for this long makes way for any other."""

DOUBLINGS_MAX = 6
"""How often the turn of an author doubles: what ends early begins again, and must come to its end some time."""


@dataclass(slots=True)
class _Running:
    """A part that is being downloaded."""

    author: PublicKey
    """Whose turn it is."""
    since_ms: int
    heard_ms: int
    """When something of it came last, as far as a tick has seen it."""
    arrived: int = 0
    """Bytes that had come then."""


class Turns:
    """Hands a few places out to authors whose parts wait.

    Args:
        places: downloads at a time.
        shared_ms: the time in which every author that waits is to have had its share of them.
    """

    def __init__(self, places: int, shared_ms: int) -> None:
        self._places, self._shared_ms = places, shared_ms
        self._waiting: dict[PublicKey, OrderedDict[Hash, None]] = {}  # who is next first; some parts may be done
        self._running: dict[Hash, _Running] = {}
        self._held_ms = Counter[PublicKey]()  # how long downloads that have ended held a place
        self._ended_early = Counter[PublicKey]()

    def __len__(self) -> int:
        return len(self._running)

    def __contains__(self, part_hash: Hash) -> bool:
        return part_hash in self._running

    def running(self) -> list[Hash]:
        """What is being downloaded."""
        return [*self._running]

    def wait(self, author: PublicKey, part_hash: Hash) -> None:
        """Note that a part of an author waits for its turn."""
        self._waiting.setdefault(author, OrderedDict())[part_hash] = None

    def forget_waiting(self) -> None:
        """Nothing waits any more; what an author has held counts half from now on."""
        self._waiting.clear()
        self._ended_early.clear()
        self._held_ms = Counter({author: held_ms // 2 for author, held_ms in self._held_ms.items() if held_ms > 1})

    def take_next(
        self, is_wanted: Callable[[Hash], bool], peers: Container[PublicKey], now_ms: int
    ) -> tuple[PublicKey, Hash] | None:
        """Take the part whose turn it is, with its author, out of those that wait and are still wanted.

        Only authors among ``peers`` have a turn: the others can give nothing.
        """
        authors = self._in_order(is_wanted, peers, now_ms)
        if not authors:
            return None
        author = authors[0]
        part_hash, _ = self._waiting[author].popitem(last=False)
        self._waiting[author] = self._waiting.pop(author)  # of those that are equal, the others come first
        return author, part_hash

    def begin(self, author: PublicKey, part_hash: Hash, now_ms: int) -> None:
        """The download of a part begins; it is the author's turn."""
        self._running[part_hash] = _Running(author, now_ms, now_ms)

    def end(self, part_hash: Hash, now_ms: int) -> None:
        """The download of a part is over, if there was one."""
        if (item := self._running.pop(part_hash, None)) is not None:
            self._held_ms[item.author] += now_ms - item.since_ms

    def make_way(
        self,
        is_wanted: Callable[[Hash], bool],
        peers: Container[PublicKey],
        arrived: Callable[[Hash], int],
        free: int,
        now_ms: int,
    ) -> list[Hash]:
        """End downloads for the sake of those that wait; ``free`` places are there for some of these anyway.

        ``arrived`` says how many bytes of a part have come.
        """
        waiting = self._in_order(is_wanted, peers, now_ms)
        for part_hash, item in self._running.items():
            if (size := arrived(part_hash)) > item.arrived:
                item.heard_ms, item.arrived = now_ms, size
        if not waiting:
            return []
        silent = [known for known, item in self._running.items() if now_ms - item.heard_ms >= TURN_MS_MIN]
        for part_hash in silent:
            self._end_early(part_hash, now_ms)
        ended, turn_ms = silent, self._turn_ms(waiting)
        for author in waiting[max(0, free) + len(silent) :]:
            found = self._that_makes_way(author, turn_ms, now_ms)
            if found is not None:
                ended.append(found)
                self._end_early(found, now_ms)
        return ended

    def _that_makes_way(self, author: PublicKey, turn_ms: int, now_ms: int) -> Hash | None:
        """The download that makes way for an author, if any: first of those who have held places longest."""
        running, held_ms = self._authors(), self._held_until(now_ms)
        longest = sorted(self._running.items(), key=lambda known: (-held_ms[known[1].author], known[1].arrived))
        for part_hash, item in longest:
            lasted_ms = now_ms - item.since_ms
            if lasted_ms < STALL_MS:
                continue
            if running[item.author] > 1 and not running[author]:  # it has another one
                return part_hash
            ahead_ms = held_ms[item.author] - held_ms[author]
            # Among equals, a turn after one that ended early is longer; who is ahead of others has no right to that.
            own_turn_ms = turn_ms << min(DOUBLINGS_MAX, self._ended_early[item.author])
            is_over = lasted_ms >= own_turn_ms or ahead_ms - lasted_ms >= turn_ms
            if ahead_ms >= turn_ms and is_over:
                return part_hash
        return None

    def _turn_ms(self, waiting: list[PublicKey]) -> int:
        """How long a turn is: an equal share of the places' time for each author."""
        return max(TURN_MS_MIN, self._places * self._shared_ms // len({*waiting, *self._authors()}))

    def _end_early(self, part_hash: Hash, now_ms: int) -> None:
        self._ended_early[self._running[part_hash].author] += 1
        self.end(part_hash, now_ms)

    def _in_order(self, is_wanted: Callable[[Hash], bool], peers: Container[PublicKey], now_ms: int) -> list[PublicKey]:
        """Authors with parts that wait, who is next first; the first part of each is one that does."""
        running, held_ms = self._authors(), self._held_until(now_ms)
        authors = [author for author in [*self._waiting] if author in peers and self._has_waiting(author, is_wanted)]
        return sorted(authors, key=lambda author: (running[author], held_ms[author]))

    def _has_waiting(self, author: PublicKey, is_wanted: Callable[[Hash], bool]) -> bool:
        waiting = self._waiting[author]
        while waiting:
            first = next(iter(waiting))
            if is_wanted(first) and first not in self._running:
                return True
            del waiting[first]
        del self._waiting[author]
        return False

    def _authors(self) -> Counter[PublicKey]:
        """How many parts of each author are being downloaded."""
        return Counter(item.author for item in self._running.values())

    def _held_until(self, now_ms: int) -> Counter[PublicKey]:
        """For how long each author has held places, in milliseconds of one place."""
        held_ms = self._held_ms.copy()
        for item in self._running.values():
            held_ms[item.author] += now_ms - item.since_ms
        return held_ms
