"""Messages about the progress of runs, on a terminal and in a log file; workers that are lost while they are idle."""

from collections import deque
from dataclasses import dataclass
from io import StringIO
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress

from fedchain.learning.executors.workers import Gone, WorkerDiedError
from fedchain.simulator.disturbances import MemberChange
from fedchain.simulator.reproduction import parallel
from fedchain.simulator.reproduction.parallel import LOSSES_MAX, RunsProgress, run_all
from fedchain.simulator.reproduction.run_workers import Begin, Finished
from fedchain.simulator.scenario import Scenario

LABELS = ["  dfpl, seed 0", "  fedavg, seed 3"]


def test_a_log_file_gets_a_line_for_every_tenth_of_the_rounds_and_for_every_run() -> None:
    lines = _said(Console(file=StringIO(), width=80))
    assert lines[0].startswith("rounds 10/100")
    assert lines[1].startswith("rounds 35/100")
    assert lines[2].startswith("1/2")
    assert lines[2].endswith("[first] is done")  # no markup
    assert lines[3] == "fedavg, seed 3, goes on with another worker; its own was lost: power"
    assert lines[4].startswith("2/2")
    assert len(lines) == 5


def test_a_terminal_has_a_bar_for_the_rounds() -> None:
    lines = _said(Console(file=StringIO(), width=80, force_terminal=True))
    assert not [line for line in lines if line.startswith("rounds")]


def _said(console: Console) -> list[str]:
    progress = Progress(console=console, auto_refresh=False)
    shown = RunsProgress(progress, [Scenario(rounds=60), Scenario(rounds=40, method="fedavg", seed=3)])
    for place in (0, 1):
        shown.begin(place)
    assert [task.description for task in progress.tasks] == ["runs 0/2, rounds 0/100", *LABELS]
    for number in (1, 10, 11, 35, 39):
        shown.update(0, number)
    shown.finish(0, "[first] is done")
    shown.lose(1, "power")
    shown.begin(1)
    shown.update(1, 1)
    shown.finish(1, "second is done")
    (task,) = progress.tasks
    assert task.description == "runs 2/2, rounds 100/100"
    assert task.finished
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


def test_a_run_that_goes_on_repeats_rounds_that_count_once() -> None:
    progress = Progress(console=Console(file=StringIO(), width=80), auto_refresh=False)
    shown, reached = RunsProgress(progress, [Scenario(rounds=60), Scenario(rounds=40)]), list[str]()
    shown.begin(0)
    shown.update(0, 30)
    shown.lose(0, "power")
    shown.begin(0)
    for number in (1, 30, 31):
        shown.update(0, number)
        reached.append(progress.tasks[0].description)
    assert reached == [f"runs 0/2, rounds {rounds}/100" for rounds in (30, 30, 31)]


def test_a_run_whose_members_move_its_end_is_whole_when_it_is_finished() -> None:
    """It was counted as the 4 rounds of the scenario, and the bar went back."""
    amended = MemberChange(round=1, kind="amend", values={"rounds": 6})
    progress = Progress(console=Console(file=StringIO(), width=80), auto_refresh=False)
    shown = RunsProgress(progress, [Scenario(rounds=4, changes=(amended,))])
    shown.begin(0)
    shown.update(0, 6)
    shown.finish(0, "done")
    (task,) = progress.tasks
    assert task.description == "runs 1/1, rounds 6/6"


def test_the_time_that_is_left_is_told_in_minutes() -> None:
    now = [0.0]
    console = Console(file=StringIO(), width=80)
    progress = Progress(console=console, auto_refresh=False, get_time=lambda: now[0], speed_estimate_period=1e6)
    shown = RunsProgress(progress, [Scenario(rounds=100)])
    shown.begin(0)
    for number in range(1, 11):
        now[0] += 60.0
        shown.update(0, number)
    assert isinstance(console.file, StringIO)
    assert console.file.getvalue().splitlines() == ["rounds 10/100, 90 min left"]


def test_no_more_workers_are_opened_than_there_are_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = list[int]()

    def opened(executor: str, count: int, *, cards: bool) -> Told:
        counts.append(count)
        return Told(deque([0, count - 1]), count=count)

    monkeypatch.setattr(parallel, "open_run_workers", opened)
    for jobs in (1, 9):
        scenarios = [Scenario(method="solo", peers=2, rounds=1, seed=seed) for seed in range(2)]
        run_all(scenarios, jobs, lambda place, result: "", Console(file=StringIO()))
    assert counts == [1, 2]


@dataclass
class Told:
    """Two workers that say what a list has: the number of one that finishes its run, or that lost its trainers, or the
    loss of one."""

    said: deque[int | Gone | tuple[int, WorkerDiedError]]
    has_room: bool = True
    count: int = 2

    def __post_init__(self) -> None:
        self.begun: dict[int, Begin] = {}
        self.sent: list[int] = []

    def send(self, worker: int, message: Begin) -> None:
        self.sent.append(worker)
        self.begun[worker] = message

    def receive(self, timeout_s: float) -> Finished | Gone:
        match self.said.popleft():
            case Gone() as gone:
                self.begun.pop(gone.worker, None)
                return gone
            case worker, error:
                return Finished(self.begun.pop(worker).place, error)
            case worker:
                begin = self.begun.pop(worker)
                return Finished(begin.place, {"seed": begin.scenario.seed})

    def replace(self, worker: int) -> bool:
        return self.has_room

    def close(self) -> None:
        pass


def _carried_out(workers: Told, monkeypatch: pytest.MonkeyPatch, done: list[int] | None = None) -> list[int]:
    """Carry out two runs; returns their seeds in the order of completion."""
    done = [] if done is None else done
    monkeypatch.setattr(parallel, "open_run_workers", lambda *args, **options: workers)

    def keep(place: int, result: dict[str, Any]) -> str:
        done.append(result["seed"])
        return ""

    scenarios = [Scenario(method="solo", peers=2, rounds=1, seed=seed) for seed in range(2)]
    run_all(scenarios, 2, keep, Console(file=StringIO()))
    return done


def test_an_idle_worker_that_is_lost_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = Told(deque([0, Gone(0, "power"), Gone(1, "power"), 0]))
    assert _carried_out(workers, monkeypatch) == [0, 1]
    assert workers.sent == [0, 1, 0]


def test_an_idle_worker_that_cannot_be_replaced_gets_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = Told(deque([1, Gone(1, "power"), 0]), has_room=False)
    assert _carried_out(workers, monkeypatch) == [1, 0]
    workers = Told(deque([0, Gone(0, "power"), Gone(1, "power")]), has_room=False)
    with pytest.raises(WorkerDiedError):
        _carried_out(workers, monkeypatch)
    assert workers.sent == [0, 1]


def test_a_run_whose_trainers_are_killed_goes_on_and_is_given_up_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    killed = WorkerDiedError("training process train-0 ended with exit code -9")
    workers = Told(deque([(0, killed), 0, 1]))
    assert _carried_out(workers, monkeypatch) == [0, 1]
    done: list[int] = []
    workers = Told(deque([*[(0, killed)] * (LOSSES_MAX + 1), 1]))
    with pytest.raises(WorkerDiedError, match=r"not finished: solo, seed 0 \(training process train-0") as lost:
        _carried_out(workers, monkeypatch, done)
    assert done == [1]
    assert "seed 1" not in str(lost.value)


@pytest.mark.parametrize(("device", "present", "cards"), [("cpu", 1, False), ("auto", 0, False), ("auto", 1, True)])
def test_runs_that_train_on_cards_get_one_each(
    device: str, present: int, cards: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def opened(executor: str, count: int, *, cards: bool) -> Told:
        asked.append(cards)
        return Told(deque([0]))

    monkeypatch.setattr(parallel, "open_run_workers", opened)
    monkeypatch.setattr("torch.cuda.device_count", lambda: present)
    scenario = Scenario(method="solo", peers=2, rounds=1, device=device)
    run_all([scenario], 1, lambda place, result: "", Console(file=StringIO()))
    assert asked == [cards]
