"""Processes of a campaign: each is told what to do and answers, one JSON value a line."""

import json
import logging
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trio

DIALLED = 4
"""Earlier peers that each peer connects to."""

TIMEOUT_S = 60.0
"""How long something may take that should take no time."""


class Child:
    """A process of ours, seen from the campaign."""

    def __init__(self, module: str, *arguments: object) -> None:
        command = [sys.executable, "-m", module, *map(str, arguments)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def tell(self, **command: Any) -> None:
        """Have something done."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def hear(self) -> Any:
        """The next answer. Raises RuntimeError if the process has ended."""
        assert self._process.stdout is not None
        if line := self._process.stdout.readline():
            return json.loads(line)
        raise RuntimeError(f"process {self._process.pid} ended with {self._process.wait()}")

    def ask(self, **command: Any) -> Any:
        """Have something done, and wait for the answer."""
        self.tell(**command)
        return self.hear()

    def rss_mb(self) -> float:
        """Memory that it holds, in MB."""
        return rss_mb(self._process.pid)

    def kill(self) -> None:
        """End it without a word, as SIGKILL does."""
        self._process.kill()
        self._process.wait()


@contextmanager
def children(count: int, module: str, *arguments: object) -> Iterator[list[Child]]:
    """``count`` processes of a module, told their number first; they end with the context."""
    started: list[Child] = []
    try:
        started.extend(Child(module, number, count, *arguments) for number in range(count))
        for child in started:
            child.hear()  # imports take a while
        yield started
    finally:
        for child in started:
            child.kill()


def connect(peers: Sequence[Child], dialled: int = DIALLED) -> list[str]:
    """Connect each process to some of those before it and wait until all have neighbours; their addresses."""
    places: list[str] = []
    draw = random.Random(1)
    for child in peers:
        places += child.ask(dial=draw.sample(places, min(dialled, len(places))))
    for number, child in enumerate(peers):
        wanted = min(number, dialled)
        wait_until(lambda child=child, wanted=wanted: child.ask(neighbours=True) >= max(1, wanted), "a mesh")  # type: ignore[misc]
    time.sleep(2.0)  # the mesh is balanced with the next heartbeats
    return places


def wait_until(condition: Callable[[], object], what: str, timeout_s: float = TIMEOUT_S, step_s: float = 0.05) -> None:
    """Wait for a condition. Raises RuntimeError."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"after {timeout_s:.0f} s still not: {what}")
        time.sleep(step_s)


async def told() -> AsyncIterator[dict[str, Any]]:
    """Say that this process is ready, and give what it is told, one command at a time."""
    logging.getLogger("fedchain").setLevel(logging.ERROR)  # peers that are killed are missed by the others
    answer("ready")
    while line := await trio.to_thread.run_sync(sys.stdin.readline):
        yield json.loads(line)


def answer(value: Any) -> None:
    """Answer the campaign."""
    print(json.dumps(value), flush=True)


def rss_mb(process: int) -> float:
    """Memory of a process, in MB."""
    lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024
