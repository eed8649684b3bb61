"""Measured processes: CPU and wall time of a command with all that it starts, and what others took of the machine."""

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench.memory import descendants

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

OTHERS_MAX = 0.05
"""Share of the machine from which what others took is warned of."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment in a measured process."""

    wall_s: float
    """A time of the monotonic clock."""
    cpu_s: float
    """CPU seconds of the process and of those that it started, up to then."""
    children_cpu_s: float
    """Those of the started ones alone, as far as they run."""


@dataclass(frozen=True, slots=True)
class Trained:
    """The work and cost of one side of a comparison."""

    steps: int
    """Local steps that were taken."""
    updates: int
    """Trainings of a client."""
    result: "NDArray[np.float32]"
    """The state after the last round: the model, or the prototypes by class; flat."""
    marks: tuple[Mark, ...]
    """The end of each round."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of one command: of its process and of all that it waited for."""

    cpu_s: float
    wall_s: float
    rss_gib: float
    others_share: float
    """CPU that everything else took meanwhile, as a share of all cores."""
    printed: dict[str, Any]


def measure(name: str, scenario: dict[str, Any], *arguments: object) -> Cost:
    """Run one of :mod:`tests.bench.measured` in a process of its own, imports included.

    Its temporary files are removed when all is measured. A user keeps a run's folder; and where some hundred files were
    deleted in the last minutes, some file systems take long to make others, so one turn would weigh on the next.
    """
    command = [sys.executable, "-m", "tests.bench.measured", name, json.dumps(scenario), *map(json.dumps, arguments)]
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    environment, begun, busy_s = os.environ | {"TMPDIR": folder}, time.perf_counter(), _busy_s()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        printed = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{name} failed")
    wall_s, busy_s = time.perf_counter() - begun, _busy_s() - busy_s
    cpu_s, rss_gib = usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 2**20
    others_s = max(0.0, busy_s - cpu_s)
    return Cost(cpu_s, wall_s, rss_gib, others_s / (wall_s * (os.cpu_count() or 1)), json.loads(printed))


def mark() -> Mark:
    """The cost of this process and of those that it started, so far."""
    children_s = sum(cpu_s(pid) for pid in descendants(os.getpid())[1:])
    return Mark(time.perf_counter(), time.process_time() + children_s, children_s)


def cpu_s(pid: int) -> float:
    """CPU seconds that a process has spent, of the user and of the system; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def machine_text() -> str:
    """How busy the machine is, and whether modules are compiled: neither belongs to what is compared."""
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return f"load of the machine {load} on {os.cpu_count()} cores; {bytecode_text()}"


def bytecode_text() -> str:
    """How many of the modules that a run imports have bytecode on the disk: without, each process compiles them."""
    script = (
        "import sys, fedchain.simulator.console, fedchain.learning.worker.learner, torch, os\n"
        "specs = [m.__spec__ for m in list(sys.modules.values()) if getattr(m, '__spec__', None)]\n"
        "files = [s.cached for s in specs if s.cached]\n"
        "print(sum(map(os.path.exists, files)), len(files))"
    )
    command = [sys.executable, "-B", "-c", script]
    there, count = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return f"bytecode of {there} of {count} modules is there"


def warning(costs: list[Cost]) -> str:
    """A line that warns of figures that others have disturbed; empty if none has."""
    shares = [cost.others_share for cost in costs]
    if not shares or max(shares) <= OTHERS_MAX:
        return ""
    return (
        f"others took {100 * min(shares):.0f} to {100 * max(shares):.0f} % of the machine meanwhile: "
        "CPU times are inflated, and wall times mean little"
    )


def _busy_s() -> float:
    """CPU seconds that the machine's cores were busy since it started."""
    user, nice, system, _, _, irq, softirq, *_ = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
