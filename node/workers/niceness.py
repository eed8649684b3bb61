"""Going last: what a worker computes must not slow its node down, nor anything else on the machine.

A worker runs in a session of its own, so that Ctrl-C in the terminal is the node's affair alone. Linux schedules
sessions against each other first ("autogroup", on in most distributions), and processes by their niceness only within
one. So a worker lowers its whole session too. On one core, with a node and another program that compute all the time:
training gets 5 % of it and mining 0.7 %; without that they get 25 % each.

Source: sched(7), "The autogroup feature".
"""

import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

AUTOGROUP = Path("/proc/self/autogroup")

PAUSE_S = 0.1
"""Linux lets users without privileges change one session per tenth of a second, all of them together."""

TRIES_MAX = 100


def be_nice(niceness: int) -> None:
    """Go behind all that is less nice; in a session that is not ours alone, within that session."""
    reached = os.nice(niceness)
    if os.getsid(0) == os.getpid():  # else it is our user's shell that would be slowed down
        threading.Thread(target=lower_session, args=(reached,), daemon=True).start()


def lower_session(niceness: int, write: Callable[[str], object] = AUTOGROUP.write_text) -> bool:
    """Give our session a niceness; False where the system has no such thing, or does not allow it."""
    for _ in range(TRIES_MAX):
        try:
            write(str(niceness))
        except OSError as error:
            if error.errno != errno.EAGAIN:
                return False
            time.sleep(PAUSE_S)
        else:
            return True
    return False
