"""Where training computes: the processor, on one thread, with a generator that is left as it was."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch

DEVICE = "cpu"
"""Where models and examples are. Other hardware rounds differently."""

THREADS = 1
"""Threads of torch while a client works: sums come in one order whatever the machine, and processes share its cores."""


def use_threads() -> None:
    """Keep to that many threads in this process. Before a fork, too: a child cannot use its parent's OpenMP threads."""
    torch.set_num_threads(THREADS)


def kept_generator() -> AbstractContextManager[None]:
    """Leave torch's generator as it was."""
    return torch.random.fork_rng(devices=[])


@contextmanager
def as_training() -> Iterator[None]:
    """Compute as a training process does, and leave torch's generator and its threads as they were."""
    threads = torch.get_num_threads()
    with kept_generator():
        use_threads()
        try:
            yield
        finally:
            torch.set_num_threads(threads)
