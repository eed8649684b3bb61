"""One node process of a test network: started, asked, stopped, and started again by whoever likes."""

import os
import select
import shlex
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedchain.files.layout import LOG_FILE, START_FILE
from fedchain.files.spool import naming
from fedchain.learning.registry import MODULES_VARIABLE
from fedchain.node.operating.status import ask_status

STOP_TIMEOUT_S = 20.0
"""Time that a node may take to stop."""

STOP_STEP_S = 0.1
"""Time between two looks at a node that stops."""

LINE_SIZE_MAX = 2**16
"""Most bytes of a log's end in which its last line is looked for."""


@dataclass(slots=True)
class LocalNode:
    """One node of the test network; its output is in ``node.log`` in its folder."""

    number: int
    folder: Path
    address: str
    """Multiaddr of the node, with its peer id."""
    command: list[str]
    """The command that starts it, the first time and after it was killed."""
    process: "subprocess.Popen[bytes] | None" = None
    status: dict[str, Any] = field(default_factory=dict)
    """Its last status; empty before the first one."""
    modules: Path | None = None
    """Folder of the method's module, if Python would not find it otherwise."""
    ended: str = ""
    """How it ended; empty while it runs."""
    told: int = 0
    """Process that somebody else started, and that was sent a signal: it answers no more before it has ended."""

    def start(self) -> None:
        """Start the process, and leave a script beside its log that starts it again."""
        script = self.folder / START_FILE
        lines = ["#!/bin/sh", f"cd {shlex.quote(os.getcwd())}"]
        if self.modules is not None:
            lines.append(f"export {MODULES_VARIABLE}={shlex.quote(str(self.modules))}")
        log_file = shlex.quote(str(self.folder / LOG_FILE))
        lines.append(f"exec {shlex.join(self.command)} >>{log_file} 2>&1 </dev/null")
        with naming(script):
            script.write_text("\n".join(lines) + "\n", encoding="utf-8")
        script.chmod(0o755)
        with (self.folder / LOG_FILE).open("ab") as log:
            # A session of its own: Ctrl-C is ours to pass on, once.
            self.process = subprocess.Popen(
                self.command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env=_environment(self.modules),
            )

    def look(self) -> dict[str, Any]:
        """Ask for its status, and see whether it has ended; somebody may have started it again. Returns the status."""
        answer = ask_status(self.folder)
        self.status = answer or self.status
        code = None if self.process is None else self.process.poll()
        if answer is not None or code is None:
            self.ended = ""
        elif code < 0:
            self.ended = f"ended by signal {-code}"
        else:
            self.ended = f"ended with code {code}: {_last_line(self.folder / LOG_FILE)}"
        return self.status

    def send(self, number: signal.Signals) -> None:
        """Send a signal to its process, ours or the one that answers in its folder."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)
        elif (told := (ask_status(self.folder) or {}).get("pid", self.told)) and not has_ended(told):
            self.told = told
            with suppress(ProcessLookupError):
                os.kill(told, number)

    def is_running(self) -> bool:
        """Whether a process runs in its folder, ours or one that somebody started after it."""
        if (self.process is not None and self.process.poll() is None) or ask_status(self.folder) is not None:
            return True
        return bool(self.told) and not has_ended(self.told)


def has_ended(process: int) -> bool:
    """Whether a process has ended, also where nobody has waited for it yet."""
    try:
        descriptor = os.pidfd_open(process)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], 0)[0])
    finally:
        os.close(descriptor)


def _environment(modules: Path | None) -> dict[str, str]:
    """Environment of a process that also imports from a folder."""
    return dict(os.environ) if modules is None else os.environ | {MODULES_VARIABLE: str(modules)}


def stop_all(nodes: Sequence[LocalNode]) -> None:
    """Stop every node that runs, as Ctrl-C would; kill those that do not stop."""
    running = [node for node in nodes if node.is_running()]
    for node in running:
        node.send(signal.SIGINT)
    deadline_s = time.monotonic() + STOP_TIMEOUT_S
    for node in running:
        while node.is_running() and time.monotonic() < deadline_s:
            time.sleep(STOP_STEP_S)
        if node.is_running():
            node.send(signal.SIGKILL)  # its workers end with it
        if node.process is not None:
            node.process.wait()


def _last_line(path: Path) -> str:
    try:
        with path.open("rb") as log:  # which a node of weeks has made long, and which is looked at again and again
            log.seek(max(0, os.fstat(log.fileno()).st_size - LINE_SIZE_MAX))
            lines = log.read(LINE_SIZE_MAX).decode("utf-8", errors="replace").strip().splitlines()
    except FileNotFoundError:  # it was moved away
        lines = []
    return lines[-1] if lines else "no reason was given"
