"""Signatures of the next blocks, verified by other processes while one block is judged.

Threads do not help: each check is short, and a thread that has finished one waits for the interpreter lock.
"""

import os
import signal
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import get_context

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.genesis import Genesis
from fedchain.chain.signatures import signatures_of
from fedchain.crypto.signatures import PublicKey, Signature, Signed, is_valid_signature

WORKERS_MAX = 4
"""Processes beside the one that judges blocks; more of them would wait for it."""

BLOCKS_MIN = 200
"""Least number of blocks for which it pays to start processes."""

BLOCKS_AHEAD = 8
"""Blocks that each process works on or has queued."""

Found = tuple[Block, Certificate] | None
"""A final block with its certificate, or None if it is damaged."""


class SignaturesAhead:
    """Remembers which signatures are valid, including those of blocks that will be judged soon.

    Most votes for a block come twice, in its certificate and in the next block.
    """

    def __init__(self, genesis: Genesis) -> None:
        self._genesis = genesis
        self._workers = min(WORKERS_MAX, (os.cpu_count() or 1) - 1)
        self._known: OrderedDict[Signed, bool] = OrderedDict()  # True: it is valid; False: another process has it
        # Each block brings at most two new signatures of each member, and one of its miner.
        self._size_max = (self._workers * BLOCKS_AHEAD + 2) * (2 * len(genesis.members) + 1)

    def is_valid(self, signer: PublicKey, signature: Signature, message: bytes) -> bool:
        """Like :func:`is_valid_signature`."""
        signed = signer, signature, message
        if self._known.get(signed):
            return True
        is_valid = is_valid_signature(*signed)
        if is_valid:
            self._remember(signed, is_valid=True)
        return is_valid

    def read(self, blocks: Iterable[Found], count: int) -> Iterator[Found]:
        """The same ``count`` blocks; the signatures of each are checked before it is yielded."""
        if self._workers < 1 or count < BLOCKS_MIN:
            yield from blocks
            return
        waiting = deque[tuple[Found, list[Signed], Future[list[bool]]]]()
        pool = ProcessPoolExecutor(self._workers, get_context("spawn"), _begin)
        try:
            for found in blocks:
                signed = [] if found is None else self._new(*found)
                waiting.append((found, signed, _submit(pool, signed)))
                if len(waiting) > self._workers * BLOCKS_AHEAD:
                    yield self._next(*waiting.popleft())
            while waiting:
                yield self._next(*waiting.popleft())
        finally:
            pool.shutdown(cancel_futures=True)

    def _next(self, found: Found, signed: list[Signed], verified: Future[list[bool]]) -> Found:
        with suppress(BrokenProcessPool):  # signatures that the others did not check are checked when they are needed
            for item, is_valid in zip(signed, verified.result(), strict=True):
                if is_valid:
                    self._remember(item, is_valid=True)
        return found

    def _new(self, block: Block, certificate: Certificate) -> list[Signed]:
        """The signatures of a block that were not handed out before."""
        found = [signed for signed in signatures_of(self._genesis, block, certificate) if signed not in self._known]
        for signed in found:
            self._remember(signed, is_valid=False)
        return found

    def _remember(self, signed: Signed, *, is_valid: bool) -> None:
        self._known[signed] = is_valid
        if len(self._known) > self._size_max:
            self._known.popitem(last=False)


def _submit(pool: ProcessPoolExecutor, signed: list[Signed]) -> Future[list[bool]]:
    try:
        return pool.submit(_verify, signed)
    except BrokenProcessPool as error:
        broken = Future[list[bool]]()
        broken.set_exception(error)
        return broken


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the main process


def _verify(signed: list[Signed]) -> list[bool]:
    return [is_valid_signature(*item) for item in signed]
