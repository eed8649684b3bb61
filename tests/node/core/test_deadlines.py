"""How long a phase is waited for."""

import pytest

from fedchain.node.core.deadlines import (
    DELAYS_MIN,
    DEVIATIONS,
    GRACE,
    deadline_ms,
    patience_ms,
)
from tests.support.chain.builders import UPDATE, ChainBuilder, genesis

TIMEOUT_S, SLACK_S, MINING_S = 60, 2, 4


def test_before_enough_rounds_a_phase_waits_for_its_whole_timeout() -> None:
    chain = ChainBuilder(genesis(4, phase_timeout_ms=50_000))
    for _ in range(DELAYS_MIN):
        assert deadline_ms(chain.state) == 50_000
        chain.extend()
    chain.extend()
    assert deadline_ms(chain.state) < 50_000


def _after_rounds(**options: int) -> ChainBuilder:
    """A chain whose blocks come every 10 s, of which 4 s are mining."""
    chain = ChainBuilder(genesis(4, **options))
    chain.extend_many(10)
    return chain


def test_a_phase_waits_for_what_was_usual_and_the_networks_slack() -> None:
    chain = _after_rounds()
    assert set(chain.state.delays_ms[0]) == {6_000}
    assert deadline_ms(chain.state) == 6_000 + 1_000 * SLACK_S


def test_one_slow_round_costs_little() -> None:
    chain = _after_rounds()
    last = chain.blocks[chain.tip]
    late = chain.certificate(last, clock_ms=chain.genesis.created_ms + 10 * 10_000 + 40_000)
    chain.extend(certificate=late)
    assert max(chain.state.delays_ms[0]) == 46_000
    assert deadline_ms(chain.state) == 8_000, "median and median deviation are as before"


def test_delays_that_differ_are_waited_for_longer() -> None:
    chain = ChainBuilder(genesis(4))
    time_ms = chain.genesis.created_ms
    for number in range(12):
        time_ms += 9_000 + 1_000 * (number % 3)
        certificate = None if number == 0 else chain.certificate(chain.tip, clock_ms=time_ms)
        chain.extend(certificate=certificate)
    delays = sorted(chain.state.delays_ms[0])
    middle = delays[(len(delays) - 1) // 2]
    assert deadline_ms(chain.state) == middle + DEVIATIONS * 1_000 + 1_000 * SLACK_S


@pytest.mark.parametrize(("floor_ms", "timeout_ms", "expected"), [(20_000, 60_000, 20_000), (5_000, 7_000, 7_000)])
def test_the_deadline_is_between_floor_and_timeout(floor_ms: int, timeout_ms: int, expected: int) -> None:
    chain = _after_rounds(phase_floor_ms=floor_ms, phase_timeout_ms=timeout_ms)
    assert deadline_ms(chain.state) == expected


def test_where_the_quorum_came_late_its_stragglers_get_a_part_of_that_time() -> None:
    chain = _after_rounds()
    due_ms = deadline_ms(chain.state)
    assert patience_ms(chain.state, None) == due_ms
    assert patience_ms(chain.state, due_ms) == due_ms
    assert patience_ms(chain.state, 40_000) == 40_000 + 40_000 // GRACE
    far_ms = 10 * chain.genesis.phase_timeout_ms
    assert patience_ms(chain.state, far_ms) == far_ms + chain.genesis.phase_timeout_ms


def test_floor_and_stragglers_time_are_counted_from_when_the_phase_opens() -> None:
    interval_ms = 9_000
    chain = _after_rounds(round_interval_ms=interval_ms, phase_floor_ms=20_000)
    assert deadline_ms(chain.state) == interval_ms + 20_000
    assert patience_ms(chain.state, 40_000) == 40_000 + (40_000 - interval_ms) // GRACE


def test_each_phase_waits_for_what_is_usual_in_it() -> None:
    chain = ChainBuilder(genesis(4, phases=(UPDATE, UPDATE)))
    time_ms = chain.genesis.created_ms
    for number in range(4 * DELAYS_MIN):  # the certificate in a block tells the time of the one before
        certificate = None if number == 0 else chain.certificate(chain.tip, clock_ms=time_ms)
        chain.extend(certificate=certificate)
        time_ms += 10_000 if chain.state.phase else 30_000
    usual = [{*delays} for delays in chain.state.delays_ms]
    assert usual == [{6_000}, {26_000}]
    for expected_ms in (6_000, 26_000):
        assert deadline_ms(chain.state) == expected_ms + 1_000 * SLACK_S
        chain.extend(certificate=chain.certificate(chain.tip, clock_ms=time_ms))
        time_ms += 10_000 if chain.state.phase else 30_000
