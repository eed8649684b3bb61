"""A node's memory goes back to the system when large contents are freed."""

import ctypes
import subprocess
import sys

import pytest

SCRIPT = """
import sys
from fedchain.allocator import return_large_blocks

def rss_mib():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 2**20

if sys.argv[1] == "fixed":
    assert return_large_blocks()
before, pinned = rss_mib(), []
bytes(b"x" * (8 << 20))  # a first large block that is freed
for _ in range(25):
    pinned.append((b"x" * (4 << 20), b"y" * 100_000))  # what lives on lies behind it
held = rss_mib() - before
pinned = [small for _, small in pinned]
print(held, rss_mib() - before)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library is not glibc")
def test_large_blocks_between_small_ones_are_returned() -> None:
    held, left = _measure("fixed")
    assert held > 80
    assert left < 30
    _, kept = _measure("free")
    assert kept > left + 30, "without it, they stay"


def _measure(how: str) -> tuple[float, float]:
    """MiB held, and left after the large blocks were freed."""
    done = subprocess.run([sys.executable, "-c", SCRIPT, how], capture_output=True, text=True, check=True)
    held, left = map(float, done.stdout.split())
    return held, left
