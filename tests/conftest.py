"""Set-up that all tests need."""

import gc
import logging
import os
import shutil
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.support.orphans import end_with_this_process
from tests.support.paths import ROOT
from tests.support.shares import import_share

end_with_this_process()

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell makes its background jobs deaf to Ctrl-C, and those make their children so; some tests press it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Two test processes share two cores: tensors on as many threads as there are cores would wait for each other's.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Stores commit thousands of times, and a disk takes milliseconds for each: tests write to memory that has room.
MEMORY = Path("/dev/shm")
if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 2 << 30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

# An example has 200 ms of the clock by default, which a busy machine takes for what is quick.
hypothesis.settings.register_profile("unhurried", deadline=None)
hypothesis.settings.load_profile("unhurried")

_LEFT_OUT = pytest.StashKey[int]()
"""How many tests a `-m` or `-k` leaves out, as one of the processes that collect them counts."""


@pytest.fixture
def quick_passphrases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open a file that a passphrase protects in a sixteenth of the half second that an attempt is to cost."""
    monkeypatch.setattr("fedchain.crypto.secret_file.SCRYPT_P", 1)


@pytest.fixture(autouse=True)
def own_log_names() -> Generator[None]:
    """Let a node that a test ran number members in no other test's log: handlers of pytest keep what they were told."""
    yield
    for handler in logging.getLogger().handlers:
        handler.filters.clear()


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect without a look for cycles; what was collected stays to the end, and no test looks through it again.

    Where several processes collect everything, each begins with a share of its own. Tests look for cycles more seldom
    than Python does, which takes a twentieth of their time.
    """
    gc.disable()
    try:
        worker: dict[str, Any] = getattr(session.config, "workerinput", {})
        if worker and session.config.args_source is pytest.Config.ArgsSource.TESTPATHS:
            import_share(sorted(ROOT.glob("tests/**/test_*.py")), int(worker["workerid"][2:]), worker["workercount"])
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(20_000, 10, 10)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that look at pages in a browser."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.browser)


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Count what is left out, in each process that collects."""
    config = items[0].config
    config.stash[_LEFT_OUT] = config.stash.get(_LEFT_OUT, 0) + len(items)
    if hasattr(config, "workeroutput"):
        config.workeroutput["left_out"] = config.stash[_LEFT_OUT]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Take the count of a process that ends; all of them collect the same."""
    node.config.stash[_LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say how many tests were left out by their marks, and how they are run."""
    left_out = config.stash.get(_LEFT_OUT, 0)
    if left_out and "not long" in (config.option.markexpr or ""):
        terminalreporter.write_line(f"{left_out} tests that take long were left out: `make test-all` runs them, too")
