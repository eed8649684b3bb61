"""Outbox: the order of effects. A node's promises are stored before they are sent, whatever else arrives meanwhile.

Effects wait in one queue. The records at its front and the journals behind them become one commit, and only after that
do the effects behind them leave. A record behind a journal is one of these: a precommit that a crash left in the store
alone would bind the node to a block, without the prevotes that could convince others of it. No effect is taken off the
queue before it is carried out.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Iterable

import anyio

from fedchain.chain.storage.store import Record
from fedchain.node.core.effects import Effect, Persist, WriteJournal
from fedchain.node.core.voting.journal import Journal
from fedchain.node.shell.verbs import Done

STORE_PAUSE_S = 0.1
"""How long a record with no effect behind it may wait for other records, to share the one fsync of a commit."""

Commit = Callable[[list[Record], Journal | None], Awaitable[None]]
"""Makes records, and then the newest journal, durable."""

Act = Callable[[Effect], Done]
"""Carries out an effect that does not have to be durable."""


class EffectQueue:
    """Effects in their order."""

    def __init__(self, commit: Commit, act: Act) -> None:
        self._commit, self._act = commit, act
        self._waiting: deque[Effect] = deque()
        self._arrived = anyio.Event()
        self._is_ending = False

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, effects: Iterable[Effect]) -> None:
        """Add effects behind those that wait; none of them once it ends."""
        if self._is_ending:
            return
        self._waiting.extend(effects)
        self._arrived.set()

    async def run(self) -> None:
        """Carry out effects until cancelled; durable effects that wait by then are still committed."""
        try:
            while True:
                await self._wait()
                await self._commit_front()
                if self._waiting and not isinstance(self._waiting[0], Persist | WriteJournal):
                    done = self._act(self._waiting.popleft())
                    if done is not None:
                        await done
        except anyio.get_cancelled_exc_class():
            self._is_ending = True  # messages still come while the disk is written, and ask for answers
            self._waiting = deque(effect for effect in self._waiting if isinstance(effect, Persist | WriteJournal))
            with anyio.CancelScope(shield=True):
                while self._waiting:
                    await self._commit_front()
            raise

    async def _wait(self) -> None:
        """Wait until there is an effect to carry out, or until records have waited long enough."""
        while not self._waiting:
            self._arrived = anyio.Event()
            await self._arrived.wait()
        with anyio.move_on_after(STORE_PAUSE_S):
            while self._front() == len(self._waiting):  # nothing waits for these records
                self._arrived = anyio.Event()
                await self._arrived.wait()

    def _front(self) -> int:
        """Number of effects at the front that are one commit: records, and journals behind them."""
        has_journal = False
        for place, effect in enumerate(self._waiting):
            if not isinstance(effect, Persist | WriteJournal) or (has_journal and isinstance(effect, Persist)):
                return place
            has_journal |= isinstance(effect, WriteJournal)
        return len(self._waiting)

    async def _commit_front(self) -> None:
        """Make the front durable. Effects that arrive meanwhile queue up behind it, and are handled afterwards."""
        count = self._front()
        if count:
            front = [self._waiting[place] for place in range(count)]
            await self._commit(*_gather(front))
            for _ in range(count):
                self._waiting.popleft()


def _gather(effects: Iterable[Effect]) -> tuple[list[Record], Journal | None]:
    """All records, and the last journal."""
    records: list[Record] = []
    journal: Journal | None = None
    for effect in effects:
        if isinstance(effect, Persist):
            records.extend(effect.records)
        elif isinstance(effect, WriteJournal):
            journal = effect.journal
    return records, journal
