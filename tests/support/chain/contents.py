"""Contents of every size for tests of storages."""

from fedchain.chain.storage.contents import ROW_SIZE_MAX
from fedchain.chain.storage.store import Contents
from fedchain.crypto.hashing import sha256

LARGE = bytes(range(256)) * (ROW_SIZE_MAX // 256 + 1)


def contents(*data: bytes) -> Contents:
    return Contents({sha256(item): item for item in data})
