"""Random lives of small federations with every behaviour; ``make soak ARGS='consensus'`` has more."""

from dataclasses import replace
from typing import Literal

import pytest

from fedchain.simulator.disturbances import MemberChange, Traitors
from tests.support.simulator import schedules
from tests.support.simulator.schedules import NOBODY, Schedule, behaviours, draw_scenario, play

SIZES = (4, 7, 10, 5, 13)
PLAYED, QUICK, LONG = 100, 20, 40
"""The first 40 have nearly every behaviour once, 100 each of them with one traitor and with two."""

AT_ONCE = 10
LOSSES_PLAYED = 3
CHANGES_PLAYED = 3


def schedule(number: int) -> Schedule:
    """Behaviours in turn, then the next size."""
    names = behaviours()
    return Schedule(number, SIZES[number // len(names) % len(SIZES)], names[number % len(names)])


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(first, marks=pytest.mark.slow if first >= LONG else pytest.mark.long if first >= QUICK else ())
        for first in range(0, PLAYED, AT_ONCE)
    ],
)
def test_no_promise_is_broken(first: int) -> None:
    for number in range(first, first + AT_ONCE):
        played = play(schedule(number))
        assert played.violations == [], played.schedule.command
        assert played.healed_s is not None


@pytest.mark.parametrize(
    "peers", [pytest.param(4, marks=pytest.mark.long), *(pytest.param(n, marks=pytest.mark.slow) for n in (7, 10))]
)
def test_no_promise_is_broken_where_disks_are_lost(peers: int) -> None:
    for seed in range(LOSSES_PLAYED):
        played = play(Schedule(seed, peers, "recombiner", losses=True))
        assert played.violations == [], played.schedule.command


def test_a_post_that_was_made_while_cut_off_and_lost_with_the_store_holds_nobody_up() -> None:
    """A traitor withholds its own, so that the phase has too few posts without it."""
    played = play(Schedule(5125, 5, "stale-lock-voter", changes=True, losses=True))
    assert played.violations == [], played.schedule.command


def test_a_member_that_took_another_key_can_give_its_block_to_those_that_lack_it() -> None:
    """A traitor hides the block, and a member lost it with its store: one that they do not know by its key has it."""
    played = play(Schedule(881000, 4, "backfill-spoiler", changes=True, losses=True))
    assert played.violations == [], played.schedule.command


def test_a_node_that_was_started_again_lets_in_the_next_keys_of_a_block_that_it_knows() -> None:
    """Two members took other keys by a block that one of them alone has, and a traitor hides it: the rest forgot it."""
    played = play(Schedule(700001, 4, "payload-withholder", changes=True, losses=True))
    assert played.violations == [], played.schedule.command


@pytest.mark.parametrize("kind", ["rekey", "recover"])
def test_a_node_that_ends_with_its_key_goes_on_with_the_next_where_it_alone_has_the_block(
    kind: Literal["rekey", "recover"], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = Schedule(115, 4, "backfill-spoiler", changes=True, losses=True)
    scenario = replace(
        draw_scenario(drawn),
        loss=0.2,
        changes=tuple(MemberChange(round=4, kind=kind, peers=(number,)) for number in (0, 2)),
        adversaries=(Traitors(behaviour=drawn.behaviour, peers=(1,)),),
    )
    monkeypatch.setattr(schedules, "draw_scenario", lambda _: scenario)
    assert play(drawn).violations == []


@pytest.mark.parametrize(
    ("behaviour", "peers"),
    [
        ("change-liar", 5),
        pytest.param("mixture-1", 10, marks=pytest.mark.long),
        pytest.param(NOBODY, 7, marks=pytest.mark.slow),
    ],
)
def test_no_promise_is_broken_where_members_keys_and_rules_change(behaviour: str, peers: int) -> None:
    counted = 0
    for seed in range(CHANGES_PLAYED):
        played = play(Schedule(seed, peers, behaviour, changes=True))
        assert played.violations == [], played.schedule.command
        assert played.healed_s is not None
        counted += played.changes
    assert counted >= CHANGES_PLAYED, "or nothing was tried"


@pytest.mark.long
@pytest.mark.parametrize(("behaviour", "seeds"), [("yes-voter", range(1, 41)), ("recombiner", range(40))])
def test_two_liars_among_four_can_break_agreement_and_the_checker_sees_it(behaviour: str, seeds: range) -> None:
    """Otherwise the other tests would pass with a checker that is blind."""
    lives = (play(Schedule(seed, 4, behaviour, excess=1)) for seed in seeds)
    assert any(found.startswith("agreement: peer") for life in lives for found in life.violations)


def test_a_schedule_is_played_again_alike() -> None:
    first, again = (play(schedule(7)) for _ in range(2))
    assert (first.trace_hash, first.events) == (again.trace_hash, again.events)
