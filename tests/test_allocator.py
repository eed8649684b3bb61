"""A node's memory goes back to the system when large contents are freed; a large heap is in huge pages."""

import ctypes
import mmap
import subprocess
import sys
from pathlib import Path

import pytest

from fedchain import allocator
from fedchain.allocator import GROWTH_SIZE, HUGE_SIZE, HugePages, gather

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


GROWTH = """
import re
from fedchain.allocator import GROWTH_SIZE, HugePages

def huge_mib():
    return int(re.search(r"AnonHugePages: *([0-9]+)", open("/proc/self/smaps_rollup").read())[1]) // 1024

pages, before = HugePages(), huge_mib()
held = [(number, str(number)) for number in range(100)]
pages.look()
print(huge_mib() - before)
held += [(number, str(number)) for number in range(GROWTH_SIZE // 64)]
pages.look()
print(huge_mib() - before)
"""


def _can_gather(size: int) -> bool:
    """Whether the kernel puts huge pages in place of small ones when it is asked, and has room for so many now."""
    with mmap.mmap(-1, size + HUGE_SIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        memory.write(bytes(size + HUGE_SIZE))
        return gather(-(-address // HUGE_SIZE) * HUGE_SIZE, size)


@pytest.mark.skipif(not _can_gather(HUGE_SIZE), reason="the kernel gathers no pages")
def test_a_heap_that_has_grown_by_much_is_gathered_into_huge_pages() -> None:
    done = subprocess.run([sys.executable, "-c", GROWTH], capture_output=True, text=True, check=True)
    small, large = map(int, done.stdout.split())
    assert small < 8
    if large <= 32 and not _can_gather(GROWTH_SIZE):
        pytest.skip("the kernel has no room for so many huge pages now")
    assert large > 32


def test_where_the_system_says_nothing_of_memory_nothing_is_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator, "_STATM", Path("/nowhere"))
    monkeypatch.setattr(allocator, "_gather", pytest.fail)
    HugePages().look()


def test_where_the_system_hides_the_heap_the_process_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = iter([0, GROWTH_SIZE])
    monkeypatch.setattr(allocator, "_resident_size", lambda: next(sizes))
    monkeypatch.setattr(allocator, "_MAPS", Path("/nowhere"))
    HugePages().look()


def test_the_heap_is_gathered_once_each_time_that_it_has_grown_by_much(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = iter([0, GROWTH_SIZE - 1, GROWTH_SIZE, 2 * GROWTH_SIZE - 1, 9, 2 * GROWTH_SIZE])
    calls = list[None]()
    monkeypatch.setattr(allocator, "_resident_size", lambda: next(sizes))
    monkeypatch.setattr(allocator, "_gather", lambda: calls.append(None))
    pages, counts = HugePages(), list[int]()
    for _ in range(5):
        pages.look()
        counts.append(len(calls))
    assert counts == [0, 1, 1, 1, 2]
