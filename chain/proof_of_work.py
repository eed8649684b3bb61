"""Proof of work: a header is sealed by a nonce that brings its hash to or below the target.

The hash runs over 40 bytes, the SHA-256 of the header without its nonce and the nonce itself, so an attempt costs the
same for every header. The block's *identity* is another hash, see ``Header.hash``.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from fedchain.chain.block import Header
from fedchain.chain.difficulty import target_from_bits
from fedchain.crypto.hashing import Hash, scrypt, sha256d

NONCE_SIZE = 8
NONCE_MAX = 2 ** (8 * NONCE_SIZE) - 1

SEALS_MAX = 64
"""Headers of which it is remembered whether they are sealed."""

PROOF_FUNCTIONS: dict[str, Callable[[bytes], Hash]] = {"scrypt": scrypt, "sha256d": sha256d}
"""Hash functions by the name that the genesis document uses."""


def proof_hash(function: str, header: Header) -> Hash:
    """The hash of the header with its nonce, which must meet the target."""
    return PROOF_FUNCTIONS[function](header.seal() + header.nonce.to_bytes(NONCE_SIZE, "big"))


@lru_cache(maxsize=SEALS_MAX)
def is_sealed(function: str, header: Header) -> bool:
    """Whether the header's own nonce meets the header's own target.

    Cached: a candidate's header is looked at again when it is final, and in a simulation by every peer.
    """
    return int.from_bytes(proof_hash(function, header), "big") <= target_from_bits(header.bits)


def search_nonce(function: str, header: Header, start: int, attempts: int) -> Header | None:
    """Try ``attempts`` nonces from ``start`` on (wrapping at 2⁶⁴); return the sealed header, or None if none fits."""
    hash_function, seal = PROOF_FUNCTIONS[function], header.seal()
    target = target_from_bits(header.bits).to_bytes(32, "big")
    for attempt in range(start, start + attempts):
        nonce = attempt & NONCE_MAX
        if hash_function(seal + nonce.to_bytes(NONCE_SIZE, "big")) <= target:
            return replace(header, nonce=nonce)
    return None
