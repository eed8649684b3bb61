"""Every seed comes from one root seed, by name and never by order of use.

A stream that is named (client 3, round 7, dropout) gives the same numbers in any process, after any other
client and under any PYTHONHASHSEED, so one client's round can be repeated by itself.
"""

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from fedchain.learning.device import kept_generator

SEED_BITS = 63
"""Seeds fit a signed 64-bit integer, which every generator in use accepts."""

GENERATOR_SIZE = 4 * 624
"""Bytes that decide what torch's generator on the processor gives: 624 words of 32 bits (Mersenne Twister)."""

_WORDS_BEGIN = 24
"""Bytes before them in its state, where each takes 64 bits."""


def derive(root: int, *labels: str | int) -> int:
    """Derive the seed in [0, 2^63) of the stream that `labels` name, from the root seed.

    Labels are hashed with their type and length, so ("a", "bc") differs from ("ab", "c") and 1 from "1".
    """
    hashed = b"fedchain/seed"
    for label in (root, *labels):
        encoded = str(label).encode()
        hashed += (b"i" if isinstance(label, int) else b"s") + len(encoded).to_bytes(4, "big") + encoded
    return int.from_bytes(hashlib.sha256(hashed).digest()[:8], "big") >> (64 - SEED_BITS)


def initial_seed(root: int, client: int, *, shared_init: bool) -> int:
    """Return the seed of a client's initial model, and of the draw of its own examples, from the root seed."""
    return derive(root, "model", "shared" if shared_init else client)


def numpy_generator(root: int, *labels: str | int) -> np.random.Generator:
    """Return numpy's generator for the stream that `labels` name."""
    return np.random.Generator(np.random.PCG64(derive(root, *labels)))


def seed_torch(seed: int) -> None:
    """Seed the generator that torch's code shares, on the processor.

    `torch.manual_seed` seeds graphics cards as well, under a lock that a process forked from a busy one would wait for.
    """
    torch.default_generator.manual_seed(seed)


def fill_generator(generator: torch.Generator, data: bytes) -> None:
    """Let all that a generator gives follow from `GENERATOR_SIZE` bytes.

    It takes the lower 32 bits alone of a seed, as few as can be tried one after another.
    """
    words = np.frombuffer(data, dtype="<u4").astype(np.uint64)
    state = generator.manual_seed(0).get_state()
    state.numpy()[_WORDS_BEGIN : _WORDS_BEGIN + words.nbytes] = words.view(np.uint8)
    generator.set_state(state)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the generators that torch, numpy and Python share among all code, and leave them as they were."""
    before = random.getstate(), np.random.get_state()
    with kept_generator():
        seed_torch(seed)
        np.random.seed(seed % 2**32)
        random.seed(seed)
        try:
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])
