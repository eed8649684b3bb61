"""Memory of a whole simulation: this process and those that train, pages that they share counted once."""

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fedchain.simulator.scenario import Scenario

SAMPLE_S = 0.5
"""Seconds between two looks at all processes."""


@dataclass(slots=True)
class Peak:
    """The most that was seen at a time."""

    pss_bytes: int = 0
    """Proportional set size, summed over the processes."""
    simulating_bytes: int = 0
    """This process's part of it."""
    training_bytes: int = 0
    """The largest part of a process that trains."""


def run(scenario: Scenario) -> dict[str, float | str]:
    """Simulate with real training, and watch."""
    from fedchain.simulator.run import load_learner, simulate

    with watched() as peak:
        outcome = simulate(scenario, load_learner(scenario))
    assert not outcome.violations, outcome.violations
    return {
        "gb": peak.pss_bytes / 1e9,
        "simulating_gb": peak.simulating_bytes / 1e9,
        "training_gb": peak.training_bytes / 1e9,
        "tip": outcome.tip,
    }


@contextmanager
def watched() -> Iterator[Peak]:
    """Sample this process and its descendants until the block ends."""
    peak, is_over = Peak(), threading.Event()

    def watch() -> None:
        while not is_over.wait(SAMPLE_S):
            mine, *others = (pss_bytes(process) for process in descendants(os.getpid()))
            if mine + sum(others) > peak.pss_bytes:
                peak.pss_bytes = mine + sum(others)
                peak.simulating_bytes, peak.training_bytes = mine, max(others, default=0)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        is_over.set()
        watcher.join()


def descendants(process: int) -> list[int]:
    """A process and all that it started, and those started, itself first."""
    found = [process]
    for parent in found:
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found += map(int, children.read_text().split())
            except OSError:  # a thread has ended meanwhile
                continue
    return found


def pss_bytes(process: int) -> int:
    """A process's memory; a page that n processes map counts 1/n. 0 if it has ended."""
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
    except OSError:
        return 0
    found = re.search(r"^Pss:\s+(\d+) kB$", text, re.MULTILINE)
    return 0 if found is None else int(found[1]) * 1024
