"""Miners that want their own in the next committee, under different ways to draw it, without a network.

Each member wins blocks by its rate and its difficulty of its own, as on a chain of version 3. A coalition publishes no
block after which the next committee is not one that it wants.
"""

import random

from fedchain.chain.membership.weights import reweigh
from tests.support.chain.power import records_of

BY_HASH, BY_REVEAL, BY_HEIGHT = "hash", "reveal", "height"
"""Ways to draw a committee: by the hash of the block below; by a value that the miner of the block below was bound to
before, one for each member and height; by the height alone."""


def wanted_share(drawn_by: str, members: int, liars: int, chance: float, heights: int, *, seed: int) -> float:
    """Share of the heights whose committee is one that the coalition wants.

    Args:
        drawn_by: the way to draw committees.
        members: number of members, the coalition's first.
        liars: number of members in the coalition, which all have the same rate as the others.
        chance: probability that the coalition wants a committee which nobody has chosen.
        heights: number of blocks.
        seed: of the draws.
    """
    draw, wanted = random.Random(seed), 0
    records, seats = records_of([0] * members), range(members)
    active = {record.key for record in records}
    for _ in range(heights):
        own = [1.0] * liars
        if drawn_by == BY_HASH:  # a solution that is thrown away costs the time for the next one
            own = [chance] * liars
        elif drawn_by == BY_REVEAL:  # a member has one value to reveal, and no more
            own = [float(draw.random() < chance) for _ in range(liars)]
        rates = own + [1.0] * (members - liars)
        (winner,) = draw.choices(
            seats, [rate * 2.0**record.weight for rate, record in zip(rates, records, strict=True)]
        )
        is_chosen = winner < liars and drawn_by != BY_HEIGHT
        wanted += is_chosen or draw.random() < chance
        records = list(reweigh(records, active, records[winner].key))
    return wanted / heights
