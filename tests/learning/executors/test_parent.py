"""Processes that train, or carry out runs, go with the one that began them, however it ends."""

import os
import signal
import subprocess
import sys

import pytest

from tests.support.hanging import no_hang
from tests.support.paths import ROOT


@pytest.mark.parametrize(
    ("kind", "sent"),
    [
        ("train", signal.SIGKILL),
        *(
            pytest.param(kind, sent, marks=pytest.mark.slow)
            for kind, sent in (
                ("train", signal.SIGINT),
                ("train", signal.SIGTERM),
                ("run", signal.SIGINT),
                ("run", signal.SIGTERM),
                ("run", signal.SIGKILL),
            )
        ),
    ],
)
def test_nobody_is_left(kind: str, sent: signal.Signals) -> None:
    """A terminal sends Ctrl-C to all of them; others send their signals to the program alone."""
    command = [sys.executable, "-m", "tests.support.working_parent", kind]
    with (
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as program,
        no_hang(),
    ):
        assert program.stdout is not None
        bystander = int(program.stdout.readline())
        try:
            if sent == signal.SIGINT:
                os.killpg(program.pid, sent)
            else:
                program.send_signal(sent)
            assert program.stdout.read() == b"", "it ends when nobody is left who could print"
        finally:
            os.kill(bystander, signal.SIGKILL)
            program.kill()  # or leaving the block would wait for it
