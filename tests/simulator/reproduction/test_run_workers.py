"""Whole runs by workers: each has a process, a lost one is replaced, and an error is the caller's."""

import os
import signal
import subprocess
import sys
from array import array
from collections.abc import Sequence
from fcntl import ioctl
from functools import partial
from io import StringIO
from multiprocessing import active_children
from multiprocessing.connection import Connection, wait
from pathlib import Path
from termios import FIONREAD
from typing import Any

import pytest
from rich.console import Console

from fedchain.learning.executors.workers import Gone, WorkerDiedError
from fedchain.node.operating.local_node import has_ended
from fedchain.simulator.reproduction.parallel import LOSSES_MAX, run_all
from fedchain.simulator.reproduction.run_workers import Begin, Closed, Finished, RunWork, SpawnedWorkers
from fedchain.simulator.scenario import Scenario, ScenarioError
from tests.support.hanging import no_hang
from tests.support.node.shell import wait_until
from tests.support.paths import ROOT
from tests.support.simulator.dying import carry_out, lose_interrupt, say_much, stay

SCENARIOS = [Scenario(method="solo", peers=2, rounds=2, seed=seed) for seed in range(3)]


def carried_out(
    folder: Path, deaths: int, results: dict[int, dict[str, Any]] | None = None
) -> tuple[dict[int, dict[str, Any]], Sequence[str]]:
    results = {} if results is None else results
    console = Console(file=StringIO(), width=200)

    def keep(place: int, result: dict[str, Any]) -> str:
        results[place] = result
        return f"run {place} is done"

    run_all(SCENARIOS, 2, keep, console, partial(carry_out, folder, deaths))
    assert isinstance(console.file, StringIO)
    return results, console.file.getvalue().splitlines()


def test_a_run_goes_on_when_its_process_is_killed(tmp_path: Path) -> None:
    results, lines = carried_out(tmp_path, 1)
    assert {place: result["seed"] for place, result in results.items()} == {0: 0, 1: 1, 2: 2}
    assert len(results[1]["processes"]) == len(set(results[1]["processes"])) == 2
    assert sum("solo, seed 1, goes on with another worker" in line and "exit code -9" in line for line in lines) == 1
    assert str(os.getpid()) not in {process for result in results.values() for process in result["processes"]}


def test_a_run_that_kills_its_processes_is_given_up(tmp_path: Path) -> None:
    results: dict[int, dict[str, Any]] = {}
    with pytest.raises(WorkerDiedError, match=r"for want of memory; .* not finished: solo, seed 1 \(its"):
        carried_out(tmp_path, 99, results)
    assert sorted(results) == [0, 2], "the others are finished"
    assert len((tmp_path / "1").read_text().split()) == LOSSES_MAX + 1


@pytest.mark.parametrize("deaths", [-1, -2])
def test_an_error_of_a_run_ends_all_even_if_it_cannot_be_pickled(deaths: int, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="no such thing"):
        carried_out(tmp_path, deaths)


def readable(pipe: Connection) -> int:
    """Bytes that wait in a pipe."""
    found = array("i", [0])
    ioctl(pipe.fileno(), FIONREAD, found)
    return found[0]


def test_a_process_that_is_killed_in_the_middle_of_its_word_is_noticed() -> None:
    workers = SpawnedWorkers(1)
    try:
        with no_hang():
            workers.send(0, Begin(0, 2, say_much, SCENARIOS[2]))
            process, pipe = workers._processes[0]
            while readable(pipe) < 2**12:  # its length is there, and a part of it
                wait([pipe])
            os.kill(process.pid or 0, signal.SIGKILL)
            assert workers.receive(60) == Gone(0, "its process ended with exit code -9")
    finally:
        workers.close()


BEGIN = """
import sys
from functools import partial
from pathlib import Path
from fedchain.simulator.reproduction.run_workers import Begin, SpawnedWorkers
from fedchain.simulator.scenario import Scenario
from tests.support.simulator.dying import stay

if __name__ == "__main__":
    workers = SpawnedWorkers(1)
    workers.send(0, Begin(0, 0, partial(stay, Path(sys.argv[1]), sys.argv[2] == "True"), Scenario()))
    while True:
        workers.receive(600)
"""


@pytest.mark.parametrize("is_deaf", [False, True])
def test_a_run_ends_with_the_process_that_began_it_however_that_ends(is_deaf: bool, tmp_path: Path) -> None:
    (tmp_path / "begin.py").write_text(BEGIN)
    said, path = tmp_path / "process", {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), *sys.path]))}
    command = [sys.executable, str(tmp_path / "begin.py"), str(tmp_path), str(is_deaf)]
    with subprocess.Popen(command, env=os.environ | path) as parent:
        wait_until(lambda: said.exists() and said.read_text().endswith("\n"), "the run begins")
        parent.kill()
    process = int(said.read_text())
    try:
        wait_until(lambda: has_ended(process), "the run has ended")
    finally:
        if not has_ended(process):
            os.kill(process, signal.SIGKILL)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGHUP])
def test_ctrl_c_reaches_no_process_that_has_just_begun(
    sent: signal.Signals, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    workers = SpawnedWorkers(1)
    try:
        workers.send(0, Begin(0, 0, partial(carry_out, tmp_path, 0), SCENARIOS[0]))
        (process,) = active_children()
        assert process.pid is not None
        os.kill(process.pid, sent)  # a terminal sends it to all
        said: Any = None
        while not isinstance(said, Finished | Gone):
            said = workers.receive(60.0)
    finally:
        workers.close()
    assert isinstance(said, Finished)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_process_that_loses_the_interrupt_ends_all_the_same(goes_on: bool, capfd: pytest.CaptureFixture[str]) -> None:
    """`fedchain compare` waited for ever for one that had, after Ctrl-C or SIGTERM."""
    workers = SpawnedWorkers(1)
    with no_hang():
        workers.send(0, Begin(0, 0, partial(lose_interrupt, goes_on), SCENARIOS[0]))
        assert workers.receive(60.0) == Closed(0, 1)
        workers.close()
    assert active_children() == []
    assert capfd.readouterr().err == "", "where it was lost is of no use to anybody"


def test_a_process_in_which_own_code_turned_off_the_signal_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`fedchain compare` waited for the end of its round after Ctrl-C, however long that was."""
    monkeypatch.setattr("fedchain.simulator.reproduction.run_workers.ENDING_S", 0.1)
    workers = SpawnedWorkers(1)
    with no_hang():
        workers.send(0, Begin(0, 0, partial(stay, tmp_path, True), SCENARIOS[0]))
        assert workers.receive(60.0) == Closed(0, 1)
        workers.close()
    assert active_children() == []


def test_an_actor_says_what_becomes_of_its_runs(tmp_path: Path) -> None:
    work = RunWork()
    try:
        said = list(work.do(Begin(7, 1, partial(carry_out, tmp_path, 1), SCENARIOS[1])))
        assert said == [Closed(1, 1), Gone(7, "its process ended with exit code -9")]
        said = list(work.do(Begin(7, 1, partial(carry_out, tmp_path, 1), SCENARIOS[1])))
        assert said[:2] == [Closed(1, 1), Closed(1, 2)]
        assert isinstance(said[2], Finished)
    finally:
        work.close()
