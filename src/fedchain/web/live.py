"""Watches the chains while pages are open: one look for all browsers, a few times a second."""

import logging
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread

from fedchain.chain.exceptions import ChainError
from fedchain.web.chains import Chain

log = logging.getLogger("fedchain.web")

LOOK_EVERY_S = 0.15
"""How often the folders are checked for changes, without reading them."""

ASK_EVERY_S = 1.0
"""How often running nodes are asked while nothing happens."""

ASK_SOON_S = 0.2
"""Least time between two questions: when a node wrote something, and while a page is open and there is a candidate."""

ASKED_AT_ONCE = 8
"""Chains whose nodes are asked at the same time: each takes a thread for as long as a node hangs."""


class Live:
    """The newest version of each chain, and the pages that wait for the next.

    Args:
        chains: the chains to watch.
        work: does a part of the work that pages left, and returns whether there was any.
    """

    def __init__(self, chains: Sequence[Chain], work: Callable[[], bool]) -> None:
        self._work = work
        self._chains = tuple(chains)
        self._versions = {chain.key: _first_look(chain) for chain in chains}
        self._written = {chain.key: chain.written for chain in chains}
        self._news = {chain.key: anyio.Event() for chain in chains}
        self._waiting = Counter[str]()  # open pages, by chain
        self._changed = anyio.Event()
        self._told = dict[str, str]()  # errors that were told of, by what was done
        self._start = secrets.token_hex(4)  # browsers keep pages of an explorer that ran here before
        self.is_closed = False
        """Whether the explorer is ending; streams end then."""

    async def run(self) -> None:
        """Look and ask until cancelled."""
        async with anyio.create_task_group() as tasks:
            askers = anyio.CapacityLimiter(ASKED_AT_ONCE)
            for chain in self._chains:
                tasks.start_soon(self._ask, chain, askers)
            await self._look()

    async def _look(self) -> None:
        """Look at the folders; in between, read long chains and do the work that pages left."""
        unread = {*self._chains_by_key()}
        while True:
            is_busy = False
            for key, chain in self._chains_by_key().items():
                async with self._going_on(f"looking at {chain.title}"):
                    if key in unread and await anyio.to_thread.run_sync(_read_on, chain):
                        unread.discard(key)
                    self.note(key, await anyio.to_thread.run_sync(chain.look))
                    if chain.written != self._written[key]:
                        self._written[key] = chain.written
                        self._news[key].set()
            async with self._going_on("reading what pages lack"):
                is_busy = await anyio.to_thread.run_sync(self._work)
            await anyio.sleep(0.01 if unread or is_busy else LOOK_EVERY_S)

    async def _ask(self, chain: Chain, askers: anyio.CapacityLimiter) -> None:
        """Ask a chain's nodes, apart from looking: a node that hangs would keep new blocks off the pages.

        They are asked sooner if they wrote a new block, or a post or candidate of their own: their status has changed.
        """
        while True:
            news = self._news[chain.key] = anyio.Event()
            async with self._going_on(f"asking the nodes of {chain.title}"):
                await anyio.to_thread.run_sync(chain.ask, abandon_on_cancel=True, limiter=askers)
            await anyio.sleep(ASK_SOON_S)
            if not (chain.has_candidate and self._waiting[chain.key]):
                with anyio.move_on_after(ASK_EVERY_S - ASK_SOON_S):
                    await news.wait()

    @asynccontextmanager
    async def _going_on(self, what: str) -> AsyncIterator[None]:
        """Tell of an error of the block once, and pause: nobody else would tell of it, and all pages would stay old.

        The system may lack files, threads or memory for a moment.
        """
        try:
            yield
        except Exception as error:
            if self._told.get(what) != (text := repr(error)):
                log.error("%s: %s, trying again", what, error, exc_info=error)
            self._told[what] = text
            await anyio.sleep(ASK_EVERY_S)
        else:
            self._told.pop(what, None)

    async def wait(self, chain: Chain, version: str, timeout_s: float) -> bool:
        """Wait until the chain has another version than ``version``; False if none came in time."""
        self._waiting[chain.key] += 1
        try:
            with anyio.move_on_after(timeout_s):
                while self.version(chain) == version and not self.is_closed:
                    await self._changed.wait()
                return True
            return False
        finally:
            self._waiting[chain.key] -= 1

    def version(self, chain: Chain) -> str:
        """A text that changes when the chain's pages would change; another explorer has others for the same chain."""
        return f"{self._start}-{self._versions[chain.key]}-{chain.recomputed}"

    def close(self) -> None:
        """End the explorer's streams."""
        self.is_closed = True
        self._changed.set()

    def note(self, key: str, version: str) -> None:
        """Wake the waiting pages if the version is new; in the event loop."""
        if version != self._versions[key]:
            self._versions[key] = version
            self.wake()

    def wake(self) -> None:
        """Let all waiting pages check the version again; in the event loop."""
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    def _chains_by_key(self) -> dict[str, Chain]:
        return {chain.key: chain for chain in self._chains}


def _first_look(chain: Chain) -> str:
    chain.ask()
    return chain.look()


def _read_on(chain: Chain) -> bool:
    """Whether nothing of the chain is left to read; a chain that cannot be read now is read when a page asks for it."""
    try:
        return chain.read_on()
    except ChainError as error:
        log.debug("%s: %s", chain.title, error)
        return True
