"""Runs that are interrupted and go on: ``python -m tests.soak resume [--rounds 60] [--moments 10] [--seed 1]``.

One run is interrupted at random moments, by SIGINT and SIGKILL in turn, and goes on each time. Trace, tip, metrics and
pictures must be those of the run that was left alone. The time that is spent again is the processor time of all pieces
together beyond that of the run left alone, of which it is a share; it must be less than ``--share``. Starting the
program, which every piece does once, is in it, and is shown by itself, too.

The run is of four peers, whose training is most of it. Words behind ``--`` are settings of another run, such as
``-- --peers 20``.
Then one small run of every way of learning is interrupted, in this process, at random frames of its record.
"""

import argparse
import ctypes
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from fedchain.cli.common.exit_codes import EXIT_BAD_INPUT
from fedchain.files.layout import METRICS_FILE, RECORD_FOLDER
from fedchain.simulator.run import load_learner, simulate
from tests.soak._figures import Figures, campaign
from tests.support.simulator.interruptions import KINDS, found, play, scenario_of

SETTINGS = (
    *("--peers", "4", "--workers", "2", "--set", "mining_attempts=16", "--set", "test_every=5"),
    *("--set", "iteration_s=0.0003"),  # so that all of them train within a second
)
"""Options of the long run."""

IMPORTING = (sys.executable, "-c", "import fedchain.simulator.console")
"""The imports that every run begins with."""

POLL_S = 0.05

PR_SET_CHILD_SUBREAPER = 36
"""Linux's prctl: orphans of this process's children become its own, so that their time is counted."""

INTERRUPTIONS, FRAMES = 4, 4
"""Interruptions of each small run; fewer than so many frames are written before each."""

SAME = (
    "metrics.jsonl",
    "members.csv",
    "links.csv",
    "timeline.jsonl",
    "scenario.toml",
    "curves.png",
    "timeline.png",
    "classes.png",
)


def main() -> None:
    """Run the campaign."""
    parser = argparse.ArgumentParser(prog="resume", description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--moments", type=int, default=10)
    parser.add_argument("--steps", type=int, default=3000, help="local steps; 3,000 take a core of today two seconds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--share", type=float, default=0.1, help="of the time, at most so much is spent again")
    parser.add_argument("settings", nargs="*", help="options of fedchain simulate, behind --")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell makes its background jobs deaf to it
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    draw = random.Random(f"resume {options.seed}")
    with campaign("resume") as (figures, folder):
        settings = options.settings or (*SETTINGS, "--set", f"local_steps={options.steps}")
        settings = (*settings, "--rounds", str(options.rounds))
        interrupt_long_run(figures, folder, settings, options.rounds, options.moments, draw, options.share)
        for kind in KINDS:
            interrupt_small_run(figures, folder, kind, draw)


def interrupt_long_run(
    figures: Figures,
    folder: Path,
    settings: Sequence[str],
    rounds: int,
    moments: int,
    draw: random.Random,
    share_max: float,
) -> None:
    """Interrupt one run at ``moments`` random moments: each a while after a random round was closed."""
    start_s = min(run_process(IMPORTING)[1] for _ in range(3))
    whole_s, whole_cpu_s, _ = play_process(folder / "whole", settings)
    figures.show(f"left alone, {rounds} rounds take {whole_cpu_s:.0f} s of processor time in {whole_s:.0f} s")
    out, spent_s, size = folder / "run", 0.0, 0
    for place, after in enumerate(sorted(draw.randrange(rounds - 1) for _ in range(moments))):
        before, number = rounds_of(out), signal.SIGKILL if place % 2 else signal.SIGINT
        interruption = after, draw.random() * whole_s / rounds, number
        _, cpu_s, code = play_process(out, settings, interruption)
        spent_s += cpu_s
        size = max(size, sum(path.stat().st_size for path in (out / RECORD_FOLDER).rglob("*") if path.is_file()))
        figures.show(
            f"round {before + 1} to {rounds_of(out)}: {cpu_s:.1f} s of processor time, {number.name}, exit code {code}"
        )
        figures.require(code not in (0, EXIT_BAD_INPUT), "which interrupted it")
    _, cpu_s, code = play_process(out, settings)
    figures.require(code == 0, f"the last of them ends it: {cpu_s:.1f} s of processor time, exit code {code}")
    again_s = spent_s + cpu_s - whole_cpu_s
    figures.show(f"the record took {size / 2**20:.1f} MiB at most")
    figures.show(f"to go on once took {again_s / moments:.1f} s, of which {start_s:.1f} s begin the program")
    again = again_s / whole_cpu_s
    figures.require(again < share_max, f"{100 * again:.1f} % of processor time spent again in {moments} interruptions")
    for name in SAME:
        alike = (out / name).read_bytes() == (folder / "whole" / name).read_bytes()
        figures.require(alike, f"{name} is byte for byte that of the run left alone")
    result, expected = (json.loads((path / "result.json").read_text()) for path in (out, folder / "whole"))
    result["wall_s"] = expected["wall_s"]
    figures.require(result == expected, f"so are tip {result['tip'][:16]} and trace {result['trace_hash'][:16]}")


def interrupt_small_run(figures: Figures, folder: Path, kind: str, draw: random.Random) -> None:
    """Interrupt a small run of one way of learning at random frames of its record."""
    scenario = scenario_of(kind)
    whole = found(simulate(scenario, load_learner(scenario)))
    frames = [draw.randrange(FRAMES) for _ in range(INTERRUPTIONS)]
    got = [play(scenario, folder / kind, count) for count in (*frames, None)]
    figures.require(got[:-1] == [None] * INTERRUPTIONS and got[-1] == whole, f"{kind}: after {frames} frames, the same")


def play_process(
    out: Path, settings: Sequence[str], interruption: tuple[int, float, signal.Signals] | None = None
) -> tuple[float, float, int]:
    """Begin a run, or go on with it, as a user does.

    Args:
        out: its folder.
        settings: options of a run that begins.
        interruption: after which round it comes, how many seconds after, and by which signal; None: there is none.

    Returns:
        Seconds, seconds of processor time of all its processes, and the exit code.
    """
    words = ["--resume"] if out.exists() else settings
    command = [sys.executable, "-m", "fedchain", "simulate", *words, "--draw", "--out", str(out)]

    def interrupt(process: subprocess.Popen[bytes]) -> None:
        while interruption is not None and process.poll() is None:
            after, delay_s, number = interruption
            if rounds_of(out) >= after and (out / RECORD_FOLDER).exists():
                time.sleep(delay_s)
                process.send_signal(number)
                break
            time.sleep(POLL_S)

    return run_process(command, interrupt)


def run_process(
    command: Sequence[str], meanwhile: Callable[[subprocess.Popen[bytes]], None] = lambda process: None
) -> tuple[float, float, int]:
    """Run a command to its end, while something else is done; returns the same."""
    begun, before = time.perf_counter(), os.times()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        meanwhile(process)
        code = process.wait()
    while True:  # of a process that was killed, those that train come to this one
        try:
            os.wait()
        except ChildProcessError:
            break
    now = os.times()
    cpu_s = now.children_user + now.children_system - before.children_user - before.children_system
    return time.perf_counter() - begun, cpu_s, code


def rounds_of(out: Path) -> int:
    """How many rounds were closed."""
    path = out / METRICS_FILE
    return len(path.read_text().splitlines()) if path.exists() else 0


if __name__ == "__main__":
    main()
