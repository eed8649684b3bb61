"""Disk: the files of a node. They are read and written off the loop."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from fedchain.chain.storage.store import Record, Storage
from fedchain.crypto.hashing import Hash
from fedchain.learning.payload.part_folder import PartFolder
from fedchain.node.core.voting.journal import Journal
from fedchain.node.shell.threads import in_thread
from fedchain.node.shell.timeline import SeenBlock, TimelineFile


class SigningJournal(Protocol):
    """The record of signed statements, beside the key."""

    def content(self) -> bytes | None:
        """The content that was written last; None before the first write."""

    def write(self, content: bytes) -> None:
        """Replace the content; it is durable on return."""


@dataclass(frozen=True, slots=True)
class Disk:
    """The files of a node on its disk."""

    store: Storage
    """Records that survive a restart."""
    journal: SigningJournal
    """The statements that this key signed last."""
    parts: PartFolder | None = None
    """The folder of parts that posts list by reference; the trainer shares it."""
    timeline: TimelineFile | None = None
    """The file for observations of each block; None for no file."""

    def signed(self) -> Journal:
        """The statements that this key signed last, by the journal; none before the first."""
        written = self.journal.content()
        return Journal() if written is None else Journal.decode(written)

    async def commit(self, records: Sequence[Record], journal: Journal | None) -> None:
        """Store records, and then write the journal."""
        if records or journal is not None:
            await in_thread(self._store_all, records, journal)

    def _store_all(self, records: Sequence[Record], journal: Journal | None) -> None:
        if records:
            self.store.append(records)
        if journal is not None:
            self.journal.write(journal.encode())

    async def retain(self, needed: Collection[Hash]) -> None:
        """Drop all other contents."""
        await in_thread(self.store.retain, needed)

    async def keep_parts(self, needed: frozenset[Hash]) -> None:
        """Drop all other parts."""
        if self.parts is not None:
            await in_thread(self.parts.keep_only, needed)

    async def note_seen(self, seen: SeenBlock) -> None:
        """Add the observations of a block to their file."""
        assert self.timeline is not None, "only a node with a file for them notes any"
        await in_thread(self.timeline.add, seen)
