"""A process learns that the one that began it is gone, which, if it was killed, could not say so."""

import multiprocessing
import os

POLL_S = 1.0
"""How often it is looked at whose child this process is now."""


def wait_for_the_end_of_the_parent() -> None:
    """Return when the parent of this process, which has to be one of :mod:`multiprocessing`'s, is gone.

    The pipe that shows it at once stays open where another child of the parent has inherited its end of it.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None, "only a child waits for its parent"
    while os.getppid() == parent.pid and parent.is_alive():
        parent.join(POLL_S)
