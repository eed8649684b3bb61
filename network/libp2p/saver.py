"""Small files are written in a thread: a node whose loop waited for a slow disk would vote late."""

import trio

from fedchain.network.libp2p.log import log
from fedchain.network.saving import REFUSED, Write


class Saver:
    """Writes one file after the other; of what waits for one file, only the newest.

    A refusal of the disk, or of a thread, is logged once, until the same file could be written.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, Write] = {}
        self._refused: set[str] = set()
        self._arrived = trio.Event()
        self._turn = trio.Lock()

    def put(self, what: str, write: Write) -> None:
        """See :data:`fedchain.network.saving.Save`: soon, if :meth:`run` runs."""
        self._waiting[what] = write
        self._arrived.set()

    async def run(self) -> None:
        """Write what comes until cancelled."""
        while True:
            await self._arrived.wait()
            self._arrived = trio.Event()
            await self.write_all()

    async def write_all(self) -> None:
        """Write all that waits."""
        async with self._turn:
            while self._waiting:
                what = next(iter(self._waiting))
                with trio.CancelScope(shield=True):  # what is taken is written
                    await self._write(what, self._waiting.pop(what))

    async def _write(self, what: str, write: Write) -> None:
        try:
            await trio.to_thread.run_sync(write)
        except (OSError, RuntimeError) as error:  # the latter: the machine gives no thread
            if what not in self._refused:
                log.warning(REFUSED, what, error)
            self._refused.add(what)
        else:
            self._refused.discard(what)
