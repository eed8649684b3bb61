"""Contents of a few and of many chunks, and what is asked for them."""

import random

from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import PublicKey
from fedchain.network.downloads import Request
from fedchain.network.messages import CHUNK_SIZE, Chunk, GetContent
from tests.support.chain.builders import keys

A, B, C, D = (key.public_key for key in keys(4))
DATA = bytes(range(256)) * 2_400
"""Three chunks, the last one short."""

DATA_HASH = sha256(DATA)
LONG = random.Random(1).randbytes(50 * CHUNK_SIZE + 7)
LONG_HASH = sha256(LONG)


def chunk_of(number: int, data: bytes = DATA, content_hash: bytes = DATA_HASH) -> Chunk:
    return Chunk(content_hash, number * CHUNK_SIZE, data[number * CHUNK_SIZE :][:CHUNK_SIZE])


def asked_of(*numbers: int, peer: PublicKey = A, content_hash: bytes = DATA_HASH) -> list[Request]:
    return [(peer, GetContent(content_hash, number * CHUNK_SIZE)) for number in numbers]


def numbers_of(requests: list[Request], peer: PublicKey) -> list[int]:
    return [request.offset // CHUNK_SIZE for who, request in requests if who == peer]
