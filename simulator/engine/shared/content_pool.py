"""Contents that many simulated peers hold, as one object each; a large content that only storages keep is in a file.

All holders of a content share the same object, so CPython counts them: caches, jobs, decoded views, messages. A
content without holders is dropped from memory; if a storage keeps it, it is written to a file before.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from itertools import chain
from pathlib import Path
from typing import cast
from weakref import WeakValueDictionary

from fedchain.crypto.hashing import Hash, sha256
from fedchain.files.scratch import Scratch
from fedchain.files.spool import write_named

LARGE_SIZE = 2**20
"""Size in bytes from which a content that only storages keep may be moved to a file."""

SWEEP_SIZE = 64 * 2**20
"""Bytes of new contents after which contents without holders are dropped from memory."""

ALONE = 2
"""References to a content that only the pool holds: the pool's own, and the argument of the function that counts."""


class ContentPool:
    """Payloads, knowledges and states of all peers. Each is one object.

    Args:
        hashes_once: whether a content that a peer fetches is compared with the one in memory, in place of being hashed.
    """

    stored_size_min = LARGE_SIZE
    """See :class:`Copies`: shelves have smaller ones in memory."""

    def __init__(self, *, hashes_once: bool = True) -> None:
        self._hashes_once = hashes_once
        self._contents: dict[Hash, bytes] = {}  # in memory
        self._stored: Counter[Hash] = Counter()  # how many storages keep a large content
        self._in_file: set[Hash] = set()
        self._folder: Scratch | None = None
        self._hashed: set[Hash] = set()  # those in memory whose hash was found to be right
        self._batches = WeakValueDictionary[tuple[Hash, ...], Batch]()
        self._added = 0  # bytes since the last sweep

    def intern(self, content_hash: Hash, data: bytes) -> bytes:
        """The copy of ``data`` to hold: the one that others hold, if there is one."""
        known = self._contents.get(content_hash)
        if known is not None:
            return known
        self._contents[content_hash] = data
        self._added += len(data)
        if self._added > SWEEP_SIZE:
            self._added = 0
            self._sweep()
        return data

    def share(self, content_hash: Hash, start: int, data: bytes) -> bytes:
        """A part of a content as a view of the pool's copy, if that is in memory and agrees; otherwise ``data``."""
        whole = self._contents.get(content_hash)
        if whole is None or not whole.startswith(data, start):
            return data
        return cast(bytes, memoryview(whole)[start : start + len(data)])

    def known(self, content_hash: Hash) -> bytes | None:
        """See :class:`Copies`: what is in memory is hashed for the first peer that asks, whoever put it there."""
        if not self._hashes_once or (data := self._contents.get(content_hash)) is None:
            return None
        if content_hash not in self._hashed:
            if sha256(data) != content_hash:
                return None
            self._hashed.add(content_hash)
        return data

    def together(self, content_hashes: tuple[Hash, ...], contents: Iterable[bytes]) -> Mapping[Hash, bytes]:
        """See :class:`Copies`. Where one of them is large, which storages keep in files, there is no batch of them."""
        known, found = self._batches.get(content_hashes), list(contents)
        if known is not None and [*known.values()] == found:
            return known
        if max(map(len, found), default=0) >= LARGE_SIZE:
            return dict(zip(content_hashes, found, strict=True))
        batch = self._batches[content_hashes] = Batch(zip(content_hashes, found, strict=True))
        return batch

    def shelf(self) -> "Shelf":
        """A new shelf for the contents of one storage."""
        return Shelf(self)

    def keep(self, content_hash: Hash, data: bytes) -> None:
        """Count one more storage that keeps a large content."""
        self.intern(content_hash, data)
        self._stored[content_hash] += 1

    def read(self, content_hash: Hash) -> bytes:
        """A content that a storage keeps."""
        known = self._contents.get(content_hash)
        return self.intern(content_hash, self._path(content_hash).read_bytes()) if known is None else known

    def release(self, content_hash: Hash) -> None:
        """Count one storage less that keeps a large content; without any, its file is deleted."""
        self._stored[content_hash] -= 1
        if not self._stored[content_hash]:
            del self._stored[content_hash]
            if content_hash in self._in_file:
                self._in_file.discard(content_hash)
                self._path(content_hash).unlink()

    def close(self) -> None:
        """Delete the files, and with them the large contents that storages keep."""
        if self._folder is not None:
            self._folder.cleanup()

    def _sweep(self) -> None:
        """Drop contents without holders from memory; if a storage keeps one, write it to a file before."""
        contents = self._contents
        for content_hash in [item for item in contents if sys.getrefcount(contents[item]) == ALONE]:
            if content_hash in self._stored and content_hash not in self._in_file:
                write_named(contents[content_hash], self._path(content_hash))
                self._in_file.add(content_hash)
            del contents[content_hash]
            self._hashed.discard(content_hash)

    def _path(self, content_hash: Hash) -> Path:
        if self._folder is None:
            self._folder = Scratch()
        return Path(self._folder.name) / content_hash.hex()


class Batch(dict[Hash, bytes]):
    """Contents that came together, as those of a block do. It does not change."""

    __slots__ = ("__weakref__",)


class Shelf(MutableMapping[Hash, bytes]):
    """Contents of one storage: small ones in memory, large ones in the pool.

    A block has as many contents as members post, and each member keeps them: those that came together are held as one
    batch for all.
    """

    def __init__(self, pool: ContentPool) -> None:
        self._pool = pool
        self._small: dict[Hash, bytes] = {}  # come before those of batches
        self._batches: list[Batch] = []
        self._large: dict[Hash, None] = {}

    def __getitem__(self, content_hash: Hash) -> bytes:
        if content_hash in self._large:
            return self._pool.read(content_hash)
        if (data := self._small.get(content_hash)) is not None:
            return data
        for batch in reversed(self._batches):  # the newest are asked for most
            if (data := batch.get(content_hash)) is not None:
                return data
        raise KeyError(content_hash)

    def __setitem__(self, content_hash: Hash, data: bytes) -> None:
        if len(data) < LARGE_SIZE:
            self._small[content_hash] = data
        elif content_hash not in self._large:
            self._large[content_hash] = None
            self._pool.keep(content_hash, data)

    def update(self, contents: Mapping[Hash, bytes]) -> None:  # type: ignore[override]  # of those of a dict
        """Add contents, of which a block has many."""
        batch = contents if type(contents) is Batch else self._pool.together(tuple(contents), contents.values())
        if type(batch) is Batch:
            self._batches.append(batch)
        else:
            super().update(contents)

    def __delitem__(self, content_hash: Hash) -> None:
        for batch in [batch for batch in reversed(self._batches) if content_hash in batch]:
            self._batches.remove(batch)
            self._small = batch | self._small
        if content_hash in self._small:
            del self._small[content_hash]
        else:
            del self._large[content_hash]
            self._pool.release(content_hash)

    def __contains__(self, content_hash: object) -> bool:
        is_apart = content_hash in self._small or content_hash in self._large
        return is_apart or any(content_hash in batch for batch in reversed(self._batches))

    def __iter__(self) -> Iterator[Hash]:
        yield from dict.fromkeys(chain(self._small, *self._batches))
        yield from self._large

    def __len__(self) -> int:
        return sum(1 for _ in self)
