"""A terminal that is gone is told from a reader that is, and from a disk that fails."""

import os
import subprocess
import sys

import pytest

GONE = """
import errno, sys
from fedchain.cli.common.hangup import drop_output, is_hung_up
try:
    print("to nobody", flush=True)
except OSError as error:
    assert is_hung_up(error) == (sys.argv[1] == "terminal"), error
    assert not is_hung_up(OSError(errno.EIO, "a bad disk", "a file"))
    drop_output()
    print("goes on", file=sys.stderr)
"""


@pytest.mark.parametrize("kind", ["terminal", "pipe"])
def test_a_terminal_that_is_gone_is_told_from_a_reader_and_from_a_bad_disk(kind: str) -> None:
    reader, writer = os.openpty() if kind == "terminal" else os.pipe()
    os.close(reader)
    command = [sys.executable, "-c", GONE, kind]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "goes on\n")
