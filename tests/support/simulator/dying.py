"""Runs that need neither data nor torch: one kills the process that carries it out, one stays for ever, also
in spite of a signal, one says more than a pipe holds, one loses an interrupt."""

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from fedchain.simulator.reproduction import run_workers
from fedchain.simulator.reproduction.run_workers import OnRound
from fedchain.simulator.scenario import Scenario, ScenarioError


class Locked(ScenarioError):
    """An error that cannot be pickled."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


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
        raise ScenarioError("no such thing") if deaths == -1 else Locked("no such thing")
    on_round(2)
    return {"seed": scenario.seed, "processes": [*before, str(os.getpid())]}


def stay(folder: Path, is_deaf: bool, scenario: Scenario, on_round: OnRound) -> dict[str, Any]:
    """Say which process carries out a run, and then nothing more.

    One that is deaf has turned off the signal that ends a process, as libraries do that want to end in order.
    """
    if is_deaf:
        run_workers.ENDING_S = 0.1
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    (folder / "process").write_text(f"{os.getpid()}\n")
    on_round(1)
    while True:
        time.sleep(60.0)


def say_much(scenario: Scenario, on_round: OnRound) -> dict[str, Any]:
    """A result that no pipe has room for."""
    return {"rows": "x" * 2**20}


class _Finalized:
    """Is finalized for ever, or until an interrupt, which Python then takes for no more than a word about it."""

    def __init__(self, on_round: OnRound) -> None:
        self._on_round = on_round

    def __del__(self) -> None:
        self._on_round(1)
        while True:
            time.sleep(0.01)


def lose_interrupt(goes_on: bool, scenario: Scenario, on_round: OnRound) -> dict[str, Any]:
    """Lose the first interrupt, as Python does where it comes in a finalizer; then end, or go on with more rounds."""
    _Finalized(on_round)
    while goes_on:
        on_round(2)
        time.sleep(0.01)
    return {}
