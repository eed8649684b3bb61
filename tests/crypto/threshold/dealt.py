"""Keys that tests share: dealt from fixed seeds, so that every run sees the same ones."""

import hashlib
from functools import cache

from fedchain.crypto.keys import PrivateKey
from fedchain.crypto.randomness import RandomBytes
from fedchain.crypto.threshold import KeyShare, ThresholdPublicKey, deal
from fedchain.crypto.threshold.dealer import KEY_BITS_MIN_TESTING, deal_for_testing

MEMBERS, THRESHOLD = 5, 3

SIGNING_KEYS = tuple(PrivateKey(bytes([member]) * 32) for member in range(1, MEMBERS + 1))
SENDERS = tuple(key.public_key for key in SIGNING_KEYS)

Dealt = tuple[ThresholdPublicKey, tuple[KeyShare, ...]]


def random_source(seed: str) -> RandomBytes:
    """The same bytes in every run: SHA-256 of seed and counter, which protects nothing."""
    counter, stock = 0, bytearray()

    def random_bytes(count: int) -> bytes:
        nonlocal counter
        while len(stock) < count:
            stock.extend(hashlib.sha256(f"{seed}/{counter}".encode()).digest())
            counter += 1
        taken = bytes(stock[:count])
        del stock[:count]
        return taken

    return random_bytes


@cache
def small_key(s: int = 1, key_bits: int = KEY_BITS_MIN_TESTING) -> Dealt:
    """3 of 5, short."""
    return deal_for_testing(MEMBERS, THRESHOLD, random_source(f"small/{s}/{key_bits}"), key_bits=key_bits, s=s)


@cache
def full_key() -> Dealt:
    """3 of 5, of the default length: about a second."""
    return deal(MEMBERS, THRESHOLD, random_source("full"))
