"""Python's garbage collector, where it would look through objects that stay.

It looks through new objects each time that some hundreds more of them have been made than freed, and now and then
through all. Modules make hundreds of thousands, and nearly all stay: a tenth of the time of importing PyTorch goes into
looking through them.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing(*, keeps: bool = False) -> Iterator[None]:
    """Look through nothing while modules are imported; with ``keeps``, never through what is there afterwards.

    Only the first call in a process keeps anything: at a later one, garbage may be among what is there.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        if keeps and not gc.get_freeze_count():
            gc.freeze()
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def collecting_rarely(objects: int) -> Iterator[None]:
    """Wait for at least so many new objects before they are looked through; a collector that is off stays off."""
    thresholds = gc.get_threshold()
    if thresholds[0]:
        gc.set_threshold(max(thresholds[0], objects), *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
