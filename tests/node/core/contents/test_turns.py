"""Turns: an author that gives slowly, with however many others, holds up nobody for longer than its share."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest

from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import PublicKey
from fedchain.network.source import STALL_MS
from fedchain.node.core.contents.turns import TURN_MS_MIN, Turns

PLACES, SHARED_MS, TICK_MS = 8, 15_000, 1_000
HONEST, COLLUDING = 24, 12

Lasts = Callable[[int], int]
"""How long the download of an author's part takes, by the part's number, in milliseconds; without an end: FOREVER."""

FOREVER = 10**9


@dataclass
class Author:
    """Somebody whose parts are wanted."""

    name: PublicKey
    parts: int
    lasts_ms: Lasts
    from_ms: int = 0
    """When its post comes."""
    done_ms: list[int] = field(default_factory=list)
    """When its parts were there."""


def author(number: int, parts: int, lasts_ms: Lasts, from_ms: int = 0) -> Author:
    return Author(bytes([number]) * 32, parts, lasts_ms, from_ms)


def run(authors: list[Author], limit_ms: int, places: int = PLACES) -> None:
    """Download everybody's parts, as `BulkParts` does; something of each part that runs comes at every tick."""
    turns, wanted = Turns(places, SHARED_MS), dict[Hash, tuple[Author, int]]()
    began, names = dict[Hash, int](), {item.name for item in authors}
    events: list[tuple[int, int, Hash | None]] = [(0, 0, None)]

    def begin(now_ms: int) -> None:
        while len(turns) < places and (taken := turns.take_next(wanted.__contains__, names, now_ms)) is not None:
            name, part_hash = taken
            turns.begin(name, part_hash, now_ms)
            began[part_hash] = now_ms
            item, number = wanted[part_hash]
            heapq.heappush(events, (now_ms + item.lasts_ms(number), 1, part_hash))

    while events and events[0][0] <= limit_ms:
        now_ms, _, part_hash = heapq.heappop(events)
        if part_hash is None:
            for item in authors:
                if item.from_ms <= now_ms < item.from_ms + TICK_MS:
                    for number in range(item.parts):
                        name = sha256(item.name + bytes([number]))
                        wanted[name] = item, number
                        turns.wait(item.name, name)
            free = places - len(turns)
            arrived = {known: now_ms - began[known] for known in turns.running()}
            for ended in turns.make_way(wanted.__contains__, names, arrived.__getitem__, free, now_ms):
                turns.wait(wanted[ended][0].name, ended)
            heapq.heappush(events, (now_ms + TICK_MS, 0, None))
        elif part_hash in turns and began[part_hash] + wanted[part_hash][0].lasts_ms(wanted[part_hash][1]) == now_ms:
            turns.end(part_hash, now_ms)
            wanted.pop(part_hash)[0].done_ms.append(now_ms)
        begin(now_ms)


def late_ms(authors: list[Author]) -> int:
    """When the last part of all of them was there."""
    assert [len(item.done_ms) for item in authors] == [item.parts for item in authors]
    return max(item.done_ms[-1] for item in authors)


def colluders(lasts_ms: Lasts, parts: int = 100, every_ms: int = 0) -> list[Author]:
    return [author(100 + number, parts, lasts_ms, every_ms * number) for number in range(COLLUDING)]


STRATEGIES: dict[str, Callable[[], list[Author]]] = {
    "without an end": lambda: colluders(lambda part: FOREVER),
    "one part each": lambda: colluders(lambda part: FOREVER, parts=1),
    "just in time": lambda: colluders(lambda part: TURN_MS_MIN - 1),
    "one after the other": lambda: colluders(lambda part: FOREVER, every_ms=2 * TICK_MS),
    "now this, now that": lambda: colluders(lambda part: 100 if part % 2 else FOREVER),
}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("parts", [1, 4])
def test_a_third_of_the_authors_cannot_hold_up_the_others(strategy: str, parts: int) -> None:
    honest = [author(number, parts, lambda part: 500) for number in range(HONEST)]
    run([*STRATEGIES[strategy](), *honest], 10 * SHARED_MS)
    assert late_ms(honest) <= SHARED_MS + HONEST * parts * 500 // PLACES


def test_a_long_part_comes_to_its_end_beside_those_that_have_none() -> None:
    honest = author(0, 1, lambda part: 20_000)
    run([*colluders(lambda part: FOREVER), honest], 20 * SHARED_MS)
    assert late_ms([honest]) <= 20 * 20_000


@pytest.mark.parametrize("seed", range(8))
def test_nobody_has_to_begin_again_where_there_is_time_for_all(seed: int) -> None:
    """Places that are held for less than the shared time altogether are held to the end of each download."""
    draw = Random(seed)
    fair_ms = PLACES * SHARED_MS // HONEST
    times = [[draw.randrange(1, fair_ms)] for _ in range(HONEST)]
    honest = [author(number, 1, mine.__getitem__) for number, mine in enumerate(times)]
    run(honest, 10 * SHARED_MS)
    busy_ms = sum(sum(mine) for mine in times)
    assert late_ms(honest) <= busy_ms // PLACES + fair_ms, "no time went into what was begun again"


def test_whose_parts_are_alone_keeps_its_places() -> None:
    honest = author(0, PLACES, lambda part: 100_000)
    run([honest], 200_000)
    assert honest.done_ms == [100_000] * PLACES


def test_a_part_of_which_nothing_comes_makes_way_for_the_next() -> None:
    turns = Turns(1, SHARED_MS)
    for part_hash in (b"a", b"b"):
        turns.wait(b"author", part_hash)
    wanted, peers = {b"a", b"b"}.__contains__, {b"author"}
    assert turns.take_next(wanted, peers, 0) == (b"author", b"a")
    turns.begin(b"author", b"a", 0)
    assert turns.make_way(wanted, peers, lambda _: 0, 0, TURN_MS_MIN - 1) == []
    assert turns.make_way(wanted, peers, lambda _: 0, 0, TURN_MS_MIN) == [b"a"]
    assert turns.take_next(wanted, peers, TURN_MS_MIN) == (b"author", b"b")


def test_an_author_that_is_not_connected_has_no_turn() -> None:
    turns = Turns(1, SHARED_MS)
    turns.wait(b"gone", b"a")
    turns.wait(b"here", b"b")
    wanted, here = {b"a", b"b"}.__contains__, {b"here"}
    assert turns.take_next(wanted, here, 0) == (b"here", b"b")
    turns.begin(b"here", b"b", 0)
    assert turns.make_way(wanted, here, lambda _: 0, 0, 10 * TURN_MS_MIN) == [], "nobody waits that could give anything"
    turns.end(b"b", 10 * TURN_MS_MIN)
    assert turns.take_next(wanted, here, 10 * TURN_MS_MIN) is None
    assert turns.take_next(wanted, {b"gone", b"here"}, 10 * TURN_MS_MIN) == (b"gone", b"a")


# --- who is next, and who makes way


A, B = b"author A", b"author B"
BOTH = {A, B}


def everything(part_hash: Hash) -> bool:
    return True


def waiting(turns: Turns, *parts: tuple[PublicKey, Hash]) -> None:
    for name, part_hash in parts:
        turns.wait(name, part_hash)


def hold(turns: Turns, name: PublicKey, for_ms: int) -> None:
    """A download of somebody that has ended."""
    turns.begin(name, b"done", 0)
    turns.end(b"done", for_ms)


def way_made(turns: Turns, now_ms: int, free: int = 0, **arrived: int) -> list[Hash]:
    """Downloads that make way if something of each has come since the last look; ``arrived`` names amounts."""
    return turns.make_way(everything, BOTH, lambda part: arrived.get(part.decode()[0], now_ms), free, now_ms)


def test_what_an_author_held_counts_half_with_each_phase() -> None:
    turns = Turns(1, SHARED_MS)
    hold(turns, A, 4_000)
    hold(turns, B, 3_000)
    turns.forget_waiting()
    waiting(turns, (A, b"a"), (B, b"b"))
    assert turns.take_next(everything, BOTH, 0) == (B, b"b"), "it is not forgotten"
    hold(turns, B, 600)
    waiting(turns, (B, b"b"))
    assert turns.take_next(everything, BOTH, 0) == (A, b"a"), "2,000 ms against 2,100"


def test_of_authors_that_held_places_equally_long_each_comes_in_its_turn() -> None:
    turns = Turns(1, SHARED_MS)
    waiting(turns, (A, b"a"), (A, b"more of A"), (B, b"b"))
    taken = list[Hash]()
    while (found := turns.take_next(everything, BOTH, 0)) is not None:
        taken.append(found[1])
    assert taken == [b"a", b"b", b"more of A"]


def test_a_part_that_two_authors_list_is_downloaded_once() -> None:
    turns = Turns(2, SHARED_MS)
    waiting(turns, (A, b"a"), (B, b"a"), (B, b"b"))
    turns.begin(*turns.take_next(everything, BOTH, 0) or (b"", b""), 0)
    assert turns.take_next(everything, BOTH, 0) == (B, b"b")


def test_who_held_places_for_long_makes_way_at_once_but_not_before_anything_can_have_come() -> None:
    turns = Turns(1, 0)
    hold(turns, A, 10 * TURN_MS_MIN)
    turns.begin(A, b"a", 0)
    waiting(turns, (B, b"b"))
    assert way_made(turns, STALL_MS - 1) == []
    assert way_made(turns, STALL_MS) == [b"a"]


def test_nobody_makes_way_where_a_place_is_free_or_before_its_turn_is_over() -> None:
    turns = Turns(1, 2 * SHARED_MS)
    turns.begin(A, b"a", 0)
    waiting(turns, (B, b"b"))
    for now_ms in range(1_000, SHARED_MS, 1_000):
        assert way_made(turns, now_ms) == [], "something comes of it"
    assert way_made(turns, SHARED_MS, free=1) == []
    assert way_made(turns, SHARED_MS) == [b"a"]


def test_of_an_author_with_two_places_the_part_makes_way_of_which_less_has_come() -> None:
    turns = Turns(2, 10 * SHARED_MS)
    turns.begin(A, b"a", 0)
    turns.begin(A, b"more of A", 0)
    waiting(turns, (B, b"b"))
    assert way_made(turns, STALL_MS, a=2, m=1) == [b"more of A"]


def test_turns_are_short_again_in_the_next_phase() -> None:
    turns = Turns(1, 2 * TURN_MS_MIN)
    turns.begin(A, b"a", 0)
    waiting(turns, (B, b"b"))
    assert way_made(turns, TURN_MS_MIN) == [b"a"]
    for _ in range(TURN_MS_MIN.bit_length()):  # until what it held is forgotten, too
        turns.forget_waiting()
    turns.begin(A, b"a", 0)
    waiting(turns, (B, b"b"))
    assert way_made(turns, TURN_MS_MIN) == [b"a"]
