"""``python -m tests.soak decoders``: ten million damaged inputs for everything that reads what strangers send."""

import argparse
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from rich.console import Console
from rich.table import Table

from tests.fuzz.__main__ import report
from tests.fuzz.decoders import DECODERS
from tests.fuzz.engine import Outcome, fuzz

TARGETS = {target.name: target for target in DECODERS}

TRIAL_S = 2.0
"""How long each target is timed first, so that all can be given the same time."""


def main() -> None:
    """Run every decoder for the same time, many at once, and exit with 1 after a finding."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak decoders", description=__doc__)
    parser.add_argument("--executions", type=int, default=10_000_000, help="of all decoders together (%(default)s)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="at a time (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the mutations (%(default)s)")
    options = parser.parse_args()
    trial_s = min(TRIAL_S, options.executions / 1e5)
    rates = {name: _rate(name, trial_s) for name in TARGETS}
    share = options.executions / options.processes / sum(rates.values())
    jobs = [(name, place) for name in TARGETS for place in range(options.processes)]
    begun, executions, found = time.perf_counter(), Counter[str](), Counter[str]()
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
        futures = [
            pool.submit(_run, name, options.seed * options.processes + place, max(1, round(share * rates[name]) + 1))
            for name, place in jobs
        ]
        for future in as_completed(futures):
            name, outcome = future.result()
            report(TARGETS[name], outcome)
            executions[name] += outcome.executions
            found[name] += len(outcome.findings)
            done = executions.total()
            print(f"{done:>12,} executions, {found.total()} findings", file=sys.stderr, flush=True)
    seconds, done = time.perf_counter() - begun, executions.total()
    table = Table("decoder", "executions", "findings")
    for column in table.columns[1:]:
        column.justify = "right"
    for name in TARGETS:
        table.add_row(name, f"{executions[name]:,}", str(found[name]))
    Console().print(table)
    print(f"{done:,} executions in {seconds:.0f} s, {done / seconds:,.0f} per second, {found.total()} findings")
    sys.exit(1 if found.total() or done < options.executions else 0)


def _rate(name: str, seconds: float) -> float:
    """Executions per second of one target."""
    outcome = fuzz(TARGETS[name], 0, seconds=seconds)
    return outcome.executions / max(outcome.seconds, 1e-3)


def _run(name: str, seed: int, executions: int) -> tuple[str, Outcome]:
    return name, fuzz(TARGETS[name], seed, executions_max=executions)


if __name__ == "__main__":
    main()
