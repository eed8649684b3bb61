"""Proof of work in a simulation: a real nonce, found at a drawn virtual time."""

from collections.abc import Callable

from fedchain.chain.block import Header
from fedchain.chain.proof_of_work import search_nonce

SEARCH_SLICE = 65_536
"""Number of nonces tried per call."""

Seal = Callable[[Header, int], Header]
"""seal(header, first nonce to try) -> the header with a nonce that meets its target."""


def sealing(function: str) -> Seal:
    """Return the search for nonces with a proof of work."""

    def seal(header: Header, start: int) -> Header:
        sealed = None
        while sealed is None:
            sealed = search_nonce(function, header, start, SEARCH_SLICE)
            start += SEARCH_SLICE
        return sealed

    return seal
