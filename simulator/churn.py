"""Churn: in every round some members with data leave and as many join, as a scenario's seed draws it.

A newcomer gets the next number; leavers are drawn from those that count by then. The number of members stays what it
was at the founding, since leaving and joining hold from the same round on.
"""

import math
from collections.abc import Set
from functools import lru_cache
from random import Random

from fedchain.chain.genesis import FaultModel
from fedchain.chain.membership.change import ROUNDS_AHEAD
from fedchain.node.core.membership.change_pool import OPEN_MAX
from fedchain.simulator.disturbances import MemberChange

FIRST_ROUND = 2
"""Round of the first changes: a simulation proposes nothing before the first block."""

_ROUNDING = 1e-9
"""Added before a share of the members is rounded down: 0.1 times 30 is 3."""


def churn_most(members: int, fault_model: str) -> int:
    """How many of so many members the protocol lets leave and join in every round.

    A round adds a quarter at most, and takes out as many. The next changes are asked for while a block's become final,
    so a member has those of two rounds to approve of. The leavers of two rounds are on their way at a time, and without
    them as many members have to be left as tolerate a fault.
    """
    least = 4 if FaultModel(fault_model) is FaultModel.BYZANTINE else 1
    return max(0, min(max(1, members // 4), OPEN_MAX // 2, (members - least) // ROUNDS_AHEAD))


def churn_in_round(share: float, members: int) -> int:
    """The most members that leave in one round where this share does, in the long run."""
    return math.ceil(share * members - _ROUNDING)


@lru_cache(maxsize=8)
def draw_churn(
    share: float, peers: int, members: int, rounds: int, seed: int, staying: Set[int] = frozenset()
) -> tuple[MemberChange, ...]:
    """The changes of a run, by round; where the share is no whole number of members, more leave in some rounds.

    Args:
        share: of the peers with data that leave in a round.
        peers: number of founders with data, which have the lowest numbers.
        members: number of founders. A dedicated aggregator stays.
        rounds: number of rounds of the run; changes that would hold after the last are not made.
        seed: of the draw.
        staying: numbers of members that stay, such as the one whose chain is kept.
    """
    draw, changes = Random(f"churn {seed}"), list[MemberChange]()
    counting, coming, newest = list(range(peers)), dict[int, tuple[int, ...]](), members
    for number in range(FIRST_ROUND, rounds - ROUNDS_AHEAD + 1):
        counting += coming.pop(number, ())
        passed = number - FIRST_ROUND
        due = math.floor(share * peers * (passed + 1) + _ROUNDING) - math.floor(share * peers * passed + _ROUNDING)
        may_leave = [member for member in counting if member not in staying]
        leaving = tuple(sorted(draw.sample(may_leave, min(due, len(may_leave)))))
        if not leaving:
            continue
        joining = tuple(range(newest, newest + len(leaving)))
        newest += len(leaving)
        coming[number + ROUNDS_AHEAD + 1] = joining  # in its first round its own node may not know yet that it counts
        counting = [member for member in counting if member not in leaving]
        changes += (
            MemberChange(round=number, kind="join", peers=joining),
            MemberChange(round=number, kind="leave", peers=leaving),
        )
    return tuple(changes)
