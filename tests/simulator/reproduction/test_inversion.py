"""An experiment that trains and attacks: accuracy in the rounds that are measured, what posts show in the last."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from fedchain.learning.leakage.descent import Search
from fedchain.simulator.leakage.attack import Finding, Setting
from fedchain.simulator.leakage.scores import Scores
from fedchain.simulator.leakage.settings import Inversion
from fedchain.simulator.reproduction import inversion
from fedchain.simulator.reproduction.experiment import INVERSION_METRICS
from fedchain.simulator.reproduction.inversion import run_inversion
from fedchain.simulator.scenario import Scenario

SCENARIO = Scenario(
    method="fedavg", peers=4, rounds=3, contributors_per_round=2, test_every=2, hyperparameters={"local_steps": 2}
)


def test_the_last_row_holds_what_posts_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inversion, "VICTIMS", Inversion(images=2))
    monkeypatch.setattr(inversion, "SEARCH", Search(iterations=200))
    closed: list[int] = []
    rows = run_inversion(SCENARIO, closed.append)["rows"]
    assert closed == [row["round"] for row in rows] == [1, 2, 3]
    assert [row["test_accuracy_received"] is not None for row in rows] == [False, True, True]
    assert all(rows[1][metric] is None for metric in INVERSION_METRICS)
    assert max(rows[2]["psnr_cosine"], rows[2]["psnr_l2"]) > rows[2]["psnr_class_mean"]
    assert rows[2]["labels_recovered"] == 1.0


def test_each_number_of_an_attack_stands_under_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Posts of the scenario's own method are attacked, which may show less than others'."""
    asked = list[Setting]()

    def attack(scenario: Scenario, setting: Setting, *more: object) -> Iterator[Finding]:
        asked.append(setting)
        for attack, start in (("cosine", 1.0), ("l2", 5.0)):
            images = [torch.zeros(2, 1, 8, 8)] * 3
            numbers = [torch.tensor([start + place, start + place + 1]) for place in (0.0, 10.0, 20.0, 30.0, 40.0)]
            yield Finding(setting.name, attack, Scores(*images, *numbers))

    monkeypatch.setattr(inversion, "attack_updates", attack)
    row = run_inversion(replace(SCENARIO, method="fedreg", rounds=1), lambda number: None)["rows"][-1]
    assert [setting.method for setting in asked] == ["fedreg"]
    assert {name: row[name] for name in INVERSION_METRICS} == {
        "psnr_cosine": 1.5,
        "psnr_l2": 5.5,
        "ssim_cosine": 11.5,
        "ssim_l2": 15.5,
        "labels_recovered": 45.5,
        "psnr_class_mean": 25.5,
    }
