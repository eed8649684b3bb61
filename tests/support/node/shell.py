"""Common parts of tests of the shell: trio, waiting on conditions, and looking at the processes of this machine."""

import os
import signal
import time
from collections.abc import Awaitable, Callable
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

import anyio

from fedchain.learning.application import Application
from fedchain.learning.config import LearningConfig
from fedchain.node.founding.task import found_federation
from tests.support.chain.builders import CREATED_MS, EASY_BITS, keys

P = ParamSpec("P")

TIMEOUT_S = 60.0
"""Only reached when something is broken."""

DIGITS = LearningConfig(method="dfpl", hyperparameters={"local_steps": 2}, dataset="digits", clients=2)


def on_trio(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Run a test on trio."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def main() -> None:
            with anyio.fail_after(2 * TIMEOUT_S):
                await test(*args, **kwargs)

        anyio.run(main, backend="trio")

    return run


async def until(condition: Callable[[], object], what: str) -> None:
    """Wait for a condition; how long depends on it alone."""
    with anyio.move_on_after(TIMEOUT_S):
        while not condition():
            await anyio.sleep(0.005)
        return
    raise AssertionError(f"after {TIMEOUT_S:.0f} s still not: {what}")


def wait_until(condition: Callable[[], object], what: str, timeout_s: float = TIMEOUT_S) -> None:
    """The same for tests of whole processes."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"after {timeout_s:.0f} s still not: {what}"
        time.sleep(0.05)


def workers_of(process: int, kind: str) -> list[int]:
    """Worker processes (``train`` or ``mine``) whose parent is ``process``."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and is_worker(int(folder.name), kind):
            try:
                parent = int((folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
            except OSError:
                continue  # it has just ended
            if parent == process:
                found.append(int(folder.name))
    return found


def is_worker(process: int, kind: str) -> bool:
    """Whether ``process`` runs and is such a worker; an ended process has no command line."""
    try:
        words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"fedchain.node.workers.process" in words and kind.encode() in words


async def kill_worker(kind: str) -> int:
    """Kill our worker as soon as there is one, and say which it was."""
    await until(lambda: workers_of(os.getpid(), kind), f"a worker that does {kind}")
    (process,) = workers_of(os.getpid(), kind)
    os.kill(process, signal.SIGKILL)
    return process


def write_genesis(path: Path, config: LearningConfig = DIGITS, **consensus: Any) -> Path:
    """A genesis document of ``keys(config.clients)``."""
    members = [key.public_key for key in keys(config.clients)]
    fields: dict[str, Any] = {"initial_bits": EASY_BITS, "proof_function": "sha256d"}
    genesis = found_federation(
        config, Application(config), members, name="test", created_ms=CREATED_MS, **(fields | consensus)
    )
    path.write_bytes(genesis.encode())
    return path
