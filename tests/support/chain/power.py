"""Members with unequal hash power under the rule of weights, without a network."""

import random
from collections.abc import Sequence

from fedchain.chain.membership.member import Member, Standing
from fedchain.chain.membership.weights import reweigh
from fedchain.crypto.hashing import sha256


def records_of(weights: Sequence[int]) -> list[Member]:
    """Records of active members with these weights."""
    return [
        Member(sha256(b"member %d" % seat), Standing.ACTIVE, Standing.ACTIVE, 0, weight=weight)
        for seat, weight in enumerate(weights)
    ]


def blocks_won(rates: Sequence[float] | Sequence[Sequence[float]], rounds: int, *, seed: int) -> list[int]:
    """Numbers of the members that win each block: who wins is drawn in proportion to rate and target.

    Args:
        rates: hash rate of each member, the same in all rounds, or of each member for each round.
        rounds: number of blocks.
        seed: of the draws.
    """
    draw, won = random.Random(seed), list[int]()
    rows = [list(row) if isinstance(row, Sequence) else [] for row in rates]
    constant = [float(rate) for rate in rates if not isinstance(rate, Sequence)]
    records = records_of([0] * len(constant or rows[0]))
    active, seats = {record.key for record in records}, range(len(records))
    for number in range(rounds):
        chances = [rate * 2.0**record.weight for rate, record in zip(constant or rows[number], records, strict=True)]
        (winner,) = draw.choices(seats, chances)
        won.append(winner)
        records = list(reweigh(records, active, records[winner].key))
    return won
