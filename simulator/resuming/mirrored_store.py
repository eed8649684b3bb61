"""A simulated peer's storage in memory, of which a copy is kept on the disk."""

from collections.abc import Collection, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedchain.chain.storage.store import MemoryStore, Record, Storage
from fedchain.crypto.hashing import Hash


@dataclass(slots=True)
class Mirror:
    """Where the copy is."""

    storage: Storage | None = None
    """None: nowhere."""


class MirroredStore(MemoryStore):
    """The peer reads from memory, so it does not matter to it that the copy may be ahead of it: a run that goes on
    from a snapshot writes again what the copy had before, which changes nothing there.

    Args:
        mirror: what is written besides.
        pool: see :class:`MemoryStore`.
        contents: likewise.
    """

    def __init__(self, mirror: Mirror, pool: dict[Hash, Any], contents: MutableMapping[Hash, bytes]) -> None:
        super().__init__(pool, contents)
        self.mirror = mirror

    def append(self, records: Sequence[Record]) -> None:
        """See :class:`Storage`."""
        super().append(records)
        if self.mirror.storage is not None:
            self.mirror.storage.append(records)

    def retain(self, needed: Collection[Hash]) -> None:
        """See :class:`Storage`."""
        super().retain(needed)
        if self.mirror.storage is not None:
            self.mirror.storage.retain(needed)
