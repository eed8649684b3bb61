"""A shell that types what a page says, in a folder of its own, and keeps variables from command to command.

It finds no compiler: a reader's machine may have none.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.orphans import MARK
from tests.support.paths import ROOT

COMPILERS = ("cc", "c++", "gcc", "g++", "clang", "clang++", "c99", "cpp", "ld", "as")
"""Programs that are not there for what is typed."""

_MARK = "--- the command is over ---"


class Shell:
    """bash without a terminal; what commands leave behind in the background ends with it."""

    def __init__(self, folder: Path) -> None:
        self._typed = folder.parent / f"{folder.name}.typed"
        path = os.pathsep.join((str(_without_compilers(folder)), str(Path(sys.executable).parent), os.environ["PATH"]))
        kept = {name: os.environ[name] for name in ("HOME", "FEDCHAIN_DATA", "LANG", MARK) if name in os.environ}
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
            start_new_session=True,
            env={
                "PATH": path,
                "CC": "/bin/false",
                "CXX": "/bin/false",
                "PYTHONPATH": str(ROOT / "src"),
                "COLUMNS": "100",
                "OMP_NUM_THREADS": "1",
                **kept,
            },
        )

    def run(self, command: str) -> tuple[str, int]:
        """Run a command, and return what it printed, without trailing blanks, and its exit code."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._typed.write_text(command + "\n", encoding="utf-8")
        over = f"status=$?; printf '\\n%s %d\\n' '{_MARK}' $status; (exit $status)"
        print(f". {self._typed} < /dev/null; {over}", file=self._process.stdin, flush=True)
        lines: list[str] = []
        for line in self._process.stdout:
            if line.startswith(_MARK):
                return "\n".join(lines).rstrip("\n"), int(line.split()[-1])
            lines.append(line.rstrip())
        raise AssertionError(f"the shell ended: {lines}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, number)
                self._process.wait(timeout=10)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue
        self._process.communicate()


def _without_compilers(folder: Path) -> Path:
    """A folder that hides what is behind it on the path: each compiler is not found, as bash says it."""
    hidden = folder.parent / f"{folder.name}.bin"
    hidden.mkdir()
    for name in COMPILERS:
        program = hidden / name
        program.write_text('#!/bin/sh\necho "$0: command not found" >&2\nexit 127\n', encoding="utf-8")
        program.chmod(0o755)
    return hidden
