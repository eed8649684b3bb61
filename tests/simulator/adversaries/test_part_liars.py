"""Thieves of parts, and members that list parts that nobody has."""

from dataclasses import replace

import pytest

from fedchain.simulator.adversaries.part_liars import PartThief
from fedchain.simulator.disturbances import Traitors
from tests.support.simulator.relayed import SCENARIO, run
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


def test_rounds_close_although_parts_are_listed_that_nobody_has() -> None:
    """Readers wait for their author for some rounds as for one that is silent, and not after that."""
    liar = run(replace(SCENARIO, rounds=8, adversaries=(Traitors(behaviour="part-claimer", peers=(3,)),)))
    silent = run(replace(SCENARIO, rounds=8, adversaries=(Traitors(behaviour="silent", peers=(3,)),)))
    assert liar.virtual_s <= 1.5 * silent.virtual_s
