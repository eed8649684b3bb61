"""An experiment that trains and attacks: accuracy in the rounds that are measured, what posts show in the last."""

import pytest

from fedchain.learning.leakage.descent import Search
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
