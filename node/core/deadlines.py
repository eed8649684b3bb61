"""Deadlines: how long a phase waits for posts, for parts, and for blocks that count more.

In version 2 the wait for expected posts follows from the delays of earlier rounds on the chain. In version 3 members
have budgets of it (``chain/membership/patience.py``).
"""

from functools import lru_cache
from statistics import median_low

from fedchain.chain.genesis import Genesis
from fedchain.chain.state import State

DELAYS_MIN = 4
"""Rounds needed for a useful median; until then a phase waits for its whole timeout."""

INTERVALS_FROM = 2
"""The first round that has a predecessor."""

DEVIATIONS = 4
"""Median absolute deviations above the median delay after which a post is late."""

GRACE = 4
"""If the quorum itself came late, stragglers get its time divided by this (a quarter of it) in addition."""

PARTS_MS, PARTS_MINING_TIMES = 8_000, 2
"""A block whose parts do not come is held back for this many milliseconds plus this many mining times."""

MINING_TIMES = 8
"""An omission is forgiven after a timeout plus this many mining times: bad luck lasts longer only one time in 3,000."""


def opens_after_ms(state: State) -> int:
    """Milliseconds between the head's move and the opening of the next phase: rounds have an interval.

    The setup and the first round begin at once, since nothing precedes them.
    """
    return state.rules.round_interval_ms if state.phase == 0 and state.round >= INTERVALS_FROM else 0


def deadline_ms(state: State) -> int:
    """Version 2: deadline of the expected posts of the open phase, in milliseconds since the head moved.

    The median of the last rounds' delays, four median absolute deviations and the slack of the network; never below
    the floor nor above the phase's timeout, both counted from when the phase opens. One slow member costs a little, not
    a whole timeout.
    """
    opens_ms = opens_after_ms(state)
    timeout_ms = opens_ms + state.rules.phase_timeout_ms
    floor_ms = opens_ms + min(state.rules.phase_floor_ms, state.rules.phase_timeout_ms)
    delays_ms = state.delays_ms[state.phase] if state.round else ()
    if len(delays_ms) < DELAYS_MIN:
        return timeout_ms
    return min(max(_late_ms(delays_ms) + state.rules.omission_slack_ms, floor_ms), timeout_ms)


@lru_cache(maxsize=64)
def _late_ms(delays_ms: tuple[int, ...]) -> int:
    """Delay after which a post is late, without slack. Cached: it is asked at most turns of a node, and by many."""
    middle_ms = median_low(delays_ms)
    return middle_ms + DEVIATIONS * median_low(sorted(abs(delay_ms - middle_ms) for delay_ms in delays_ms))


def forgiven_after_ms(rules: Genesis) -> int:
    """How long a block that omits a post waits for one that counts it, in milliseconds since the block arrived.

    Mining times are exponentially distributed. One timeout alone, where blocks take about as long, would let a censor's
    block through whenever the others have no luck.
    """
    return rules.phase_timeout_ms + MINING_TIMES * rules.target_mining_time_ms


def parts_forgiven_after_ms(rules: Genesis) -> int:
    """How long a block waits for another one if parts of a post do not come, in milliseconds since it arrived."""
    return PARTS_MS + PARTS_MINING_TIMES * rules.target_mining_time_ms


def patience_ms(state: State, quorum_after_ms: int | None) -> int:
    """Version 2: when to go on without those that are missing, in milliseconds since the head moved.

    Args:
        state: the head.
        quorum_after_ms: when enough posts for a block were in; None if they are not.
    """
    due_ms = deadline_ms(state)
    if quorum_after_ms is None or quorum_after_ms <= due_ms:
        return due_ms
    took_ms = quorum_after_ms - opens_after_ms(state)
    return quorum_after_ms + min(took_ms // GRACE, state.rules.phase_timeout_ms)
