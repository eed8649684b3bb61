"""Messages about the progress of runs, on a terminal and in a log file."""

from io import StringIO

from rich.console import Console
from rich.progress import Progress

from fedchain.simulator.reproduction.parallel import RunsProgress
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
