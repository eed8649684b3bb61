"""A run that needs neither data nor torch, and kills the process that carries it out."""

import os
import signal
from pathlib import Path
from typing import Any

from fedchain.simulator.reproduction.run_workers import OnRound
from fedchain.simulator.scenario import Scenario, ScenarioError


def carry_out(folder: Path, deaths: int, scenario: Scenario, on_round: OnRound) -> dict[str, Any]:
    """Say which process carries out a run; that of seed 1 dies in its second round so many times."""
    on_round(1)
    with (folder / str(scenario.seed)).open("a+") as log:
        log.seek(0)
        before = log.read().split()
        log.write(f"{os.getpid()} ")
    if scenario.seed == 1 and len(before) < deaths:
        os.kill(os.getpid(), signal.SIGKILL)
    if scenario.seed == 2 and deaths < 0:
        raise ScenarioError("no such thing")
    on_round(2)
    return {"seed": scenario.seed, "processes": [*before, str(os.getpid())]}
