"""Two hundred random lives of small federations with every behaviour; ``make soak ARGS='consensus'`` has more."""

import pytest

from tests.simulator.schedules import SIZES, Schedule, behaviours, play

PLAYED = 200
AT_ONCE = 10


def schedule(number: int) -> Schedule:
    """Behaviours and sizes in turn, so that in 200 every behaviour is played several times."""
    names = behaviours()
    return Schedule(number, SIZES[number // len(names) % len(SIZES)], names[number % len(names)])


@pytest.mark.parametrize("first", range(0, PLAYED, AT_ONCE))
def test_no_promise_is_broken(first: int) -> None:
    for number in range(first, first + AT_ONCE):
        played = play(schedule(number))
        assert played.violations == [], played.schedule.command
        assert played.healed_s is not None


def test_two_liars_among_four_can_break_agreement_and_the_checker_sees_it() -> None:
    """Otherwise the other tests would pass with a checker that is blind."""
    lives = (play(Schedule(seed, 4, "yes-voter", excess=1)) for seed in range(1, 41))
    assert any(found.startswith("agreement: peer") for life in lives for found in life.violations)


def test_a_schedule_is_played_again_alike() -> None:
    first, again = (play(schedule(7)) for _ in range(2))
    assert (first.trace_hash, first.events) == (again.trace_hash, again.events)
