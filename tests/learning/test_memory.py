"""What a process that trains holds of the machine's memory."""

import platform
import subprocess
import sys

import pytest

HELD = """
import numpy as np
from pathlib import Path
from fedchain.learning.memory import return_large_blocks
{call}

def held_mb():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6

before, kept = held_mb(), []
for _ in range(2):  # what is freed first moves glibc's own bound
    blocks = []
    for _ in range(4):
        blocks.append(np.ones(5 << 19))  # of 20 MiB
        kept.append(np.ones(1 << 17))  # of 1 MiB, behind it
    del blocks
print(held_mb() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other libraries have no such bound")
@pytest.mark.parametrize(("call", "is_returned"), [("return_large_blocks()", True), ("", False)])
def test_large_blocks_go_back_to_the_system_when_they_are_freed(call: str, is_returned: bool) -> None:
    program = HELD.format(call=call)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (float(done.stdout) < 20) is is_returned
