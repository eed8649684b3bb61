"""The cost of a round of the protocol where all peers are awake and learn nothing, by their number."""

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import mean

from rich.table import Table

from tests.bench.processes import Cost, measure, warning

SCALE = {"rounds": 4, "committee_size": 32, "proof_function": "sha256d"}
PEERS = 20, 100, 400


def bench_scale(*, quick: bool) -> list[Table | str]:
    """CPU seconds of a round after the first, and with which power of the number of peers they grow."""
    peers = PEERS[:2] if quick else PEERS
    costs = [measure("rounds", SCALE | {"peers": count, "committee_size": min(32, count)}) for count in peers]
    table = Table("awake peers, committee of 32", "CPU of a round (s)", "exponent", "memory (GiB)", box=None)
    spent = [mean(cost.printed["cpu_s"]) for cost in costs]
    grown = ["", *(f"{power:.2f}" for power in exponents(peers, spent))]
    for count, cost, seconds, power in zip(peers, costs, spent, grown, strict=True):
        table.add_row(f"{count:,}", f"{seconds:.3f}", power, f"{cost.rss_gib:.2f}")
    return [table, *_warned(costs)]


def exponents(sizes: Sequence[int], costs: Sequence[float]) -> list[float]:
    """The power of the size with which the cost grows from each to the next."""
    points = list(zip(sizes, costs, strict=True))
    return [math.log(cost / less) / math.log(size / smaller) for (smaller, less), (size, cost) in pairwise(points)]


def _warned(costs: list[Cost]) -> list[str]:
    return [text for text in [warning(costs)] if text]
