"""SHA-256, the one hash behind every identifier, root and seed of the chain."""

import hashlib

from fedchain.files.spool import digest_of

Hash = bytes
"""32 bytes of SHA-256."""

HASH_SIZE = 32
ZERO_HASH: Hash = bytes(HASH_SIZE)
"""The parent of the genesis block and the root of an empty tree."""


def sha256(data: bytes) -> Hash:
    """Hash ``data`` once. Bytes that are read in place from a file keep their hash, see :func:`digest_of`."""
    return digest_of(data) or hashlib.sha256(data).digest()


def sha256d(data: bytes) -> Hash:
    """Hash ``data`` twice, as Bitcoin's proof of work does."""
    return hashlib.sha256(hashlib.sha256(data).digest()).digest()


def scrypt(data: bytes) -> Hash:
    """Hash ``data`` with scrypt (N = 1024, r = 1, p = 1: 128 KiB of memory), as Litecoin's proof of work does.

    OpenSSL does the work with the GIL released, so a miner written in Python is as fast as one written in C.
    """
    return hashlib.scrypt(data, salt=data, n=1024, r=1, p=1, dklen=HASH_SIZE)
