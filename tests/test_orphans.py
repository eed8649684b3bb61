"""No process of a test outlives the tests."""

import os
import signal
import subprocess
import sys

import psutil

from tests.support.orphans import MARK
from tests.support.paths import ROOT

TESTS = """
import os, subprocess
from tests.support.orphans import end_with_this_process
end_with_this_process()
shell = subprocess.Popen(["sh", "-c", "sleep 600 & echo $!; wait"], stdout=subprocess.PIPE, start_new_session=True)
print(shell.pid, shell.stdout.readline().decode(), flush=True)
input()
"""


def test_what_a_killed_test_process_started_ends_with_it() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", TESTS], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as tests:
        assert tests.stdout is not None
        left = [psutil.Process(int(pid)) for pid in tests.stdout.readline().split()]
        tests.stdout.readline()
        os.kill(tests.pid, signal.SIGKILL)
    assert len(left) == 2
    _, alive = psutil.wait_procs(left, timeout=60)
    assert alive == []


def test_these_tests_are_watched() -> None:
    assert os.environ[MARK].startswith(f"{os.getpid()}-")
