"""What all tests need."""

import os
import signal

import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell makes its background jobs deaf to Ctrl-C, and those make their children so; some tests press it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Two test processes share two cores: tensors on as many threads as there are cores would wait for each other's.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session", autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What the program keeps for its user is not kept for who runs tests."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
