"""The members and the connections between them: a ring of few, a matrix of many, and tables of the same values."""

import csv
import io
import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedchain.crypto.address import address
from fedchain.web.chains import Chain

RING_MAX = 60
"""Most members that are drawn in a ring: lines between more could not be told apart."""

FIELDS_MAX = 50
"""Most rows of a matrix; of more members, each row stands for several."""

PAIRS_MAX = 200
"""Most rows of the table of connections; the file has all."""

LEVELS = 5
"""Widths of lines and depths of colour: each has as many lines or fields, as far as their bytes differ."""

SIZE, RADIUS = 640.0, 270.0
"""Units of the ring's drawing."""


@dataclass(frozen=True, slots=True)
class Pair:
    """The connection between two members, of whom ``one`` has the lower number."""

    one: int
    other: int
    there_bytes: int | None
    """Bytes from ``one`` to ``other``; None if no node told them."""
    back_bytes: int | None
    """Bytes from ``other`` to ``one``."""
    delay_ms: float | None
    """The mean time of a simulation's messages on their way, or the round trip between nodes; None if not known."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Connections as columns, in descending order of their bytes; -1 and NaN stand for what is not known."""

    one: NDArray[np.int64]
    other: NDArray[np.int64]
    there_bytes: NDArray[np.int64]
    back_bytes: NDArray[np.int64]
    delay_ms: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.one)

    def first(self, count: int | None = None) -> list[Pair]:
        """The first ``count`` connections; None: all."""
        columns = (self.one, self.other, self.there_bytes, self.back_bytes, self.delay_ms)
        return [
            Pair(one, other, _known(there), _known(back), None if math.isnan(delay_ms) else delay_ms)
            for one, other, there, back, delay_ms in zip(*(column[:count].tolist() for column in columns), strict=True)
        ]

    def totals(self) -> NDArray[np.int64]:
        """Bytes of each in both directions."""
        return np.maximum(self.there_bytes, 0) + np.maximum(self.back_bytes, 0)

    def directions(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Senders, receivers and bytes of both directions of all."""
        sent = np.maximum(np.concatenate([self.there_bytes, self.back_bytes]), 0)
        return np.concatenate([self.one, self.other]), np.concatenate([self.other, self.one]), sent


@dataclass(frozen=True, slots=True)
class Totals:
    """A member's connections together."""

    number: int
    connections: int
    sent_bytes: int
    received_bytes: int
    delay_ms: float | None
    """Mean of its connections' delays."""


@dataclass(frozen=True, slots=True)
class Level:
    """Lines or fields that are drawn alike."""

    path: str
    """All of them, as SVG's path has them."""
    least_bytes: int
    most_bytes: int


@dataclass(frozen=True, slots=True)
class Seat:
    """A member's place in the ring."""

    number: int
    x: float
    y: float
    label_x: float
    label_y: float


def network_page(chain: Chain) -> dict[str, Any]:
    """The values of the page: of the nodes that run, or of the simulation once it is finished."""
    pairs, count = pairs_of(chain), len(chain.head.roster)
    is_ring, size = count <= RING_MAX, -(-count // FIELDS_MAX)
    return {
        "members_count": count,
        "pairs": pairs.first(PAIRS_MAX),
        "pairs_count": len(pairs),
        "damaged": _links(chain)[1],
        "totals": totals_of(pairs, count),
        "seats": seats(count) if is_ring else (),
        "lines": _lines(pairs, count) if is_ring else (),
        "fields": () if is_ring else _fields(pairs, size, -(-count // size)),
        "rows": -(-count // size),
        "members_a_row": size,
        "files": {"links.csv": partial(pairs_text, pairs)},
    }


def pairs_of(chain: Chain) -> Pairs:
    """All connections."""
    count = len(chain.head.roster)
    found = _simulated(_links(chain)[0], count) if chain.is_simulated else _told(chain)
    order = np.lexsort((found.other, found.one, -found.totals()))
    return Pairs(*(getattr(found, column.name)[order] for column in fields(Pairs)))


def totals_of(pairs: Pairs, count: int) -> list[Totals]:
    """The connections of each member that has some, in descending order of its bytes."""
    senders, receivers, sent_bytes = pairs.directions()
    delays = np.concatenate([pairs.delay_ms, pairs.delay_ms])
    is_timed = ~np.isnan(delays)
    connections, timed = np.bincount(senders, minlength=count), np.bincount(senders[is_timed], minlength=count)
    sent = np.bincount(senders, sent_bytes, count).astype(np.int64)
    received = np.bincount(receivers, sent_bytes, count).astype(np.int64)
    delay_ms = np.bincount(senders[is_timed], delays[is_timed], count) / np.maximum(timed, 1)
    order = np.lexsort((np.arange(count), -sent - received))
    return [
        Totals(
            int(number),
            int(connections[number]),
            int(sent[number]),
            int(received[number]),
            float(delay_ms[number]) if timed[number] else None,
        )
        for number in order
        if connections[number]
    ]


def pairs_text(pairs: Pairs) -> str:
    """The connections as a CSV file."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["member", "other", "bytes to other", "bytes from other", "delay (ms)"])
    for pair in pairs.first():
        delay = "" if pair.delay_ms is None else f"{pair.delay_ms:.3f}"
        writer.writerow([pair.one, pair.other, pair.there_bytes, pair.back_bytes, delay])
    return file.getvalue()


def seats(count: int) -> tuple[Seat, ...]:
    """The members' places in the order of their numbers, clockwise from the top."""
    turns = [math.tau * number / count for number in range(count)]
    places = [(math.sin(turn), -math.cos(turn)) for turn in turns]
    half = SIZE / 2
    return tuple(
        Seat(number, *(round(half + radius * value, 1) for radius in (RADIUS, RADIUS + 24) for value in place))
        for number, place in enumerate(places)
    )


def _links(chain: Chain) -> tuple[NDArray[np.int64], int]:
    """The links of a simulation, and the number of lines that are none: damaged, of strangers, or of a link again."""
    file, count = chain.holders[0].measured, len(chain.head.roster)
    known = file.links[(file.links[:, :2].max(axis=1) < count) & (file.links[:, 0] != file.links[:, 1])]
    _, first = np.unique(known[:, 0] * count + known[:, 1], return_index=True)
    return known[first], file.links_damaged + len(file.links) - len(first)


def _simulated(links: NDArray[np.int64], count: int) -> Pairs:
    low, high = links[:, :2].min(axis=1), links[:, :2].max(axis=1)
    ends, place = np.unique(low * count + high, return_inverse=True)
    there, back, arrivals, delays_ms = (np.zeros(len(ends), np.int64) for _ in range(4))
    is_there = links[:, 0] == low
    np.add.at(there, place[is_there], links[is_there, 2])
    np.add.at(back, place[~is_there], links[~is_there, 2])
    np.add.at(arrivals, place, links[:, 3])
    np.add.at(delays_ms, place, links[:, 4])
    mean_ms = np.where(arrivals > 0, delays_ms / np.maximum(arrivals, 1), np.nan)
    return Pairs(ends // count, ends % count, there, back, mean_ms)


def _told(chain: Chain) -> Pairs:
    """The connections of running nodes. A sender's own count goes before that of the node at the other end."""
    numbers = {address(member): place for member, place in chain.head.roster.seats.items()}
    sent, heard = dict[tuple[int, int], int](), dict[tuple[int, int], int]()
    trips_ms = dict[tuple[int, int], list[float]]()
    for status in (holder.status for holder in chain.holders if holder.status is not None):
        me = numbers.get(status.get("address", ""))
        for name, link in status.get("links", {}).items():
            peer = numbers.get(name)
            if me is None or peer is None:
                continue
            told = trips_ms.setdefault((min(me, peer), max(me, peer)), [])
            if "round_trip_ms" in link:
                told.append(link["round_trip_ms"])
                sent[me, peer], heard[peer, me] = link["bytes_out"], link["bytes_in"]
    counted = heard | sent
    ends = np.array([*trips_ms], np.int64).reshape(-1, 2)
    there = np.array([counted.get((one, other), -1) for one, other in trips_ms], np.int64)
    back = np.array([counted.get((other, one), -1) for one, other in trips_ms], np.int64)
    delays = [sum(told) / len(told) if told else math.nan for told in trips_ms.values()]
    return Pairs(ends[:, 0], ends[:, 1], there, back, np.array(delays, np.float64))


def _known(count: int) -> int | None:
    return None if count < 0 else count


def _lines(pairs: Pairs, count: int) -> tuple[Level, ...]:
    places = [f"{seat.x} {seat.y}" for seat in seats(count)]
    ends = zip(pairs.totals().tolist(), pairs.one.tolist(), pairs.other.tolist(), strict=True)
    return _levels([(total, f"M{places[one]}L{places[other]}") for total, one, other in ends])


def _fields(pairs: Pairs, size: int, rows: int) -> tuple[Level, ...]:
    """Fields of the matrix that are not empty, of ``size`` members in each row, which sends, and each column."""
    senders, receivers, sent_bytes = pairs.directions()
    sums = np.zeros((rows, rows))
    np.add.at(sums, (senders // size, receivers // size), sent_bytes)
    filled = [item.tolist() for item in np.nonzero(sums)]
    return _levels([(int(sums[row, column]), f"M{column} {row}h1v1h-1z") for row, column in zip(*filled, strict=True)])


def _levels(shapes: Iterable[tuple[int, str]]) -> tuple[Level, ...]:
    """Shapes by their bytes, the fewest first: equal ones are on one level."""
    ordered = sorted(shapes, key=lambda shape: shape[0])
    limits = [ordered[len(ordered) * level // LEVELS][0] for level in range(1, LEVELS)] if ordered else []
    levels = [list[tuple[int, str]]() for _ in range(LEVELS)]
    for size, path in ordered:
        levels[sum(size >= limit for limit in limits)].append((size, path))
    return tuple(
        Level("".join(path for _, path in level), level[0][0], level[-1][0]) if level else Level("", 0, 0)
        for level in levels
    )
