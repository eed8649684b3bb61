"""Thieves of parts, and members that list parts that nobody has."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedchain.simulator.adversaries.part_liars import PartThief
from fedchain.simulator.disturbances import Traitors
from tests.support.simulator.relayed import SCENARIO, posts, run
from tests.support.simulator.relayed import outcome as outcome


def test_a_thief_gets_no_byte_of_a_part_that_others_read(monkeypatch: pytest.MonkeyPatch) -> None:
    thieves: list[PartThief] = []
    act = PartThief.act

    def act_and_note(thief: PartThief) -> None:
        thieves.append(thief)
        act(thief)

    monkeypatch.setattr(PartThief, "act", act_and_note)
    run(replace(SCENARIO, rounds=6, adversaries=(Traitors(behaviour="part-thief", peers=(3,)),)))
    thief = thieves[-1]
    assert thief.signed >= 6
    assert thief.stolen == 0


def test_a_thief_that_aggregates_has_nothing_to_answer_with_and_the_next_one_goes_on(tmp_path: Path) -> None:
    """It keeps from its own node what it was sent."""
    settings, thief = {"local_epochs": 0, "local_steps": 1}, Traitors(behaviour="part-thief", peers=(1,))
    rotating = replace(SCENARIO, aggregator="rotating", centralized=False, adversaries=(thief,))
    chosen = replace(rotating, method="fedgkt", model="split-mlp-1", hyperparameters=settings)
    found = run(chosen, tmp_path / "chain")
    assert [text.partition(";")[0] for text in found.not_posted] == [
        "member 1, round 1: no client's examples are of use here"
    ]
    assert posts(tmp_path / "chain")[2::2] == [0, 1, 1]


def test_rounds_close_although_parts_are_listed_that_nobody_has() -> None:
    """Readers wait for their author for some rounds as for one that is silent, and not after that."""
    liar = run(replace(SCENARIO, rounds=8, adversaries=(Traitors(behaviour="part-claimer", peers=(3,)),)))
    silent = run(replace(SCENARIO, rounds=8, adversaries=(Traitors(behaviour="silent", peers=(3,)),)))
    assert liar.virtual_s <= 1.5 * silent.virtual_s
