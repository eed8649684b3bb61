"""Signatures of the next blocks, verified on other cores while one is judged: libsodium needs no interpreter lock."""

import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache

from fedchain.chain.block import Block, block_signing_message
from fedchain.chain.certificate import Certificate
from fedchain.chain.genesis import Genesis
from fedchain.crypto.signatures import PublicKey, Signature, is_valid_signature

WORKERS_MAX = 4
"""Threads; more cores than that wait for the one that judges."""

Found = tuple[Block, Certificate] | None
"""A final block with its certificate, or None where it is damaged."""


class SignaturesAhead:
    """Remembers which signatures are valid, of blocks that are judged soon as well.

    Most votes for a block come twice, in its certificate and in the next block.
    """

    def __init__(self, genesis: Genesis) -> None:
        self._genesis = genesis
        self._workers = min(WORKERS_MAX, os.cpu_count() or 1)
        # Each block brings at most two signatures of a member that were not seen before, and one of its miner.
        self.is_valid = lru_cache((self._workers + 2) * (2 * len(genesis.members) + 1))(is_valid_signature)
        """As :func:`is_valid_signature`."""

    def read(self, blocks: Iterable[Found]) -> Iterator[Found]:
        """The same blocks; the signatures of each were looked at when it comes."""
        waiting = deque[tuple[Found, Future[None]]]()
        with ThreadPoolExecutor(self._workers) as pool:
            for found in blocks:
                waiting.append((found, pool.submit(self._verify, found)))
                if len(waiting) > self._workers:
                    yield self._next(waiting)
            while waiting:
                yield self._next(waiting)

    def _next(self, waiting: deque[tuple[Found, Future[None]]]) -> Found:
        found, verified = waiting.popleft()
        verified.result()
        return found

    def _verify(self, found: Found) -> None:
        if found is not None:
            for signer, signature, message in _signed(self._genesis, *found):
                self.is_valid(signer, signature, message)


def _signed(genesis: Genesis, block: Block, certificate: Certificate) -> Iterator[tuple[PublicKey, Signature, bytes]]:
    chain_id = genesis.chain_id
    for vote in certificate.votes:
        yield vote.voter, vote.signature, vote.signing_message(chain_id)
    yield block.header.miner, block.signature, block_signing_message(chain_id, block.hash)
    for post in block.transactions:
        yield post.sender, post.signature, post.signing_message(chain_id)
    # Whoever looks at the parent has begun with these, and is done with them by now.
    for vote in block.certificate.votes if block.certificate else ():
        yield vote.voter, vote.signature, vote.signing_message(chain_id)
