"""Leakage of a method's posts, and its accuracy: FedReg's Table 4 (Xu et al., ICLR 2022, section 4.5 and B.4).

The accuracy is that of a federation without a chain, which would not change it. The attacked posts are of one local
step on one example from the initial model, as such posts reveal most.
"""

from typing import Any

from fedchain.learning.leakage.descent import Search
from fedchain.simulator.leakage.attack import Setting, attack_updates
from fedchain.simulator.leakage.federation import Federation
from fedchain.simulator.leakage.report import row_of
from fedchain.simulator.leakage.settings import Inversion
from fedchain.simulator.reproduction.experiment import INVERSION_METRICS
from fedchain.simulator.reproduction.run_workers import OnRound
from fedchain.simulator.scenario import Scenario

VICTIMS = Inversion(images=10)
"""One image of each of the first ten clients."""

SEARCH = Search(iterations=400)
"""Search with fewer steps than the paper's 32,000, which find the same images more exactly."""


def run_inversion(scenario: Scenario, on_round: OnRound) -> dict[str, Any]:
    """Train and measure, then attack; rows as those of :func:`fedchain.simulator.reproduction.parallel.run_one`.

    The last row holds the results of the attacks.
    """
    federation = Federation(scenario)
    rows: list[dict[str, Any]] = []
    for number, knowledge in federation.play(scenario.rounds):
        if number == 0:
            continue
        row: dict[str, Any] = {"round": number, "taa": None, "test_accuracy_received": None}
        row |= dict.fromkeys(INVERSION_METRICS)
        if number == scenario.rounds or (scenario.test_every and number % scenario.test_every == 0):
            result = federation.learner.evaluate_received(0, number + 1, knowledge, evaluate_test=True)
            row["test_accuracy_received"] = None if result is None else result.test_accuracy
        rows.append(row)
        on_round(number)
    setting = Setting(name=scenario.method, method=scenario.method)
    for finding in attack_updates(scenario, setting, VICTIMS, ("cosine", "l2"), SEARCH):
        means = row_of(finding)
        rows[-1] |= {f"psnr_{finding.attack}": means.psnr, f"ssim_{finding.attack}": means.ssim}
        rows[-1] |= {"labels_recovered": means.labels_recovered, "psnr_class_mean": means.psnr_class_mean}
    return {"scenario": scenario.to_dict(), "rows": rows}
