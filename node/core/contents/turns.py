"""Turns: the order in which authors' parts are downloaded, few at a time, and which downloads make way. Pure; no I/O.

Authors share the download places as processes share a processor: the author that has held places for the least time
comes first, and an author that has held them longer by a turn makes way for one that waits. So authors that conspire to
send slowly hold places only for the share of time that their number allows, in however small pieces they send.
(Linux: completely fair scheduler)
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Container
from dataclasses import dataclass

from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.network.source import STALL_MS

TURN_MS_MIN = 2 * STALL_MS
"""The shortest turn. A download that gets no byte for this long makes way for any other."""

DOUBLINGS_MAX = 6
"""Most doublings of an author's turn: a download that was ended early begins again, and must finish some time."""


@dataclass(slots=True)
class _Running:
    """A part that is being downloaded."""

    author: PublicKey
    """The author whose turn it is."""
    since_ms: int
    heard_ms: int
    """Time of the last tick that found new bytes, or of its beginning."""
    arrived: int = 0
    """Bytes that had arrived then."""


class Turns:
    """Gives a few download places to authors whose parts wait.

    Args:
        places: downloads at a time.
        shared_ms: the time within which each waiting author is to get its share of the places.
    """

    def __init__(self, places: int, shared_ms: int) -> None:
        self._places, self.shared_ms = places, shared_ms
        """See the argument; another one may be given at any time."""
        self._waiting: dict[PublicKey, OrderedDict[Hash, None]] = {}  # the next author first; some parts may be done
        self._running: dict[Hash, _Running] = {}
        self._held_ms = Counter[PublicKey]()  # how long finished downloads held a place
        self._ended_early = Counter[PublicKey]()

    def __len__(self) -> int:
        return len(self._running)

    def __contains__(self, part_hash: Hash) -> bool:
        return part_hash in self._running

    def running(self) -> list[Hash]:
        """Parts that are being downloaded."""
        return [*self._running]

    def wait(self, author: PublicKey, part_hash: Hash) -> None:
        """Note that a part of an author waits for its turn."""
        self._waiting.setdefault(author, OrderedDict())[part_hash] = None

    def forget_waiting(self) -> None:
        """Forget all waiting parts, and halve the time that each author has held places."""
        self._waiting.clear()
        self._ended_early.clear()
        self._held_ms = Counter({author: held_ms // 2 for author, held_ms in self._held_ms.items() if held_ms > 1})

    def take_next(
        self, is_wanted: Callable[[Hash], bool], peers: Container[PublicKey], now_ms: int
    ) -> tuple[PublicKey, Hash] | None:
        """Take the next part, with its author, from those that wait and are still wanted.

        Only authors among ``peers`` have a turn: the others can send nothing.
        """
        authors = self._in_order(is_wanted, peers, now_ms)
        if not authors:
            return None
        author = authors[0]
        part_hash, _ = self._waiting[author].popitem(last=False)
        self._waiting[author] = self._waiting.pop(author)  # among equals, the others come first
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
        """End downloads in favour of parts that wait, beyond those for which ``free`` places are left anyway.

        ``arrived`` returns the number of bytes of a part that have arrived.
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
        """The download that makes way for an author, if any; authors that have held places longest are tried first."""
        running, held_ms = self._authors(), self._held_until(now_ms)
        longest = sorted(self._running.items(), key=lambda known: (-held_ms[known[1].author], known[1].arrived))
        for part_hash, item in longest:
            lasted_ms = now_ms - item.since_ms
            if lasted_ms < STALL_MS:
                continue
            if running[item.author] > 1 and not running[author]:  # its author has another one
                return part_hash
            ahead_ms = held_ms[item.author] - held_ms[author]
            # Among equals, a turn after one that ended early is longer; an author that is ahead has no right to that.
            own_turn_ms = turn_ms << min(DOUBLINGS_MAX, self._ended_early[item.author])
            is_over = lasted_ms >= own_turn_ms or ahead_ms - lasted_ms >= turn_ms
            if ahead_ms >= turn_ms and is_over:
                return part_hash
        return None

    def _turn_ms(self, waiting: list[PublicKey]) -> int:
        """Length of a turn, in milliseconds: an equal share of the places' time for each author."""
        return max(TURN_MS_MIN, self._places * self.shared_ms // len({*waiting, *self._authors()}))

    def _end_early(self, part_hash: Hash, now_ms: int) -> None:
        self._ended_early[self._running[part_hash].author] += 1
        self.end(part_hash, now_ms)

    def _in_order(self, is_wanted: Callable[[Hash], bool], peers: Container[PublicKey], now_ms: int) -> list[PublicKey]:
        """Authors with waiting parts, the next one first; the first part in each author's queue does wait."""
        if not self._waiting:
            return []
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
        """Number of each author's parts that are being downloaded."""
        return Counter(item.author for item in self._running.values())

    def _held_until(self, now_ms: int) -> Counter[PublicKey]:
        """Time for which each author has held places, in milliseconds of one place."""
        held_ms = self._held_ms.copy()
        for item in self._running.values():
            held_ms[item.author] += now_ms - item.since_ms
        return held_ms
