"""Test vectors of the network: one of every message, and bitmaps."""

from collections.abc import Iterator
from typing import Any

from fedchain.chain.certificate import Certificate, certify
from fedchain.chain.vote import VoteKind, sign_vote
from fedchain.crypto.hashing import sha256
from fedchain.network.bitmaps import to_bitmap
from fedchain.network.messages import (
    CandidateMessage,
    CertificateMessage,
    ChangeMessage,
    Chunk,
    EvidenceMessage,
    FinalMessage,
    GetCandidate,
    GetCertificate,
    GetContent,
    GetFinal,
    GetLight,
    GetPayloads,
    GetPosts,
    GetVotes,
    GossipMessage,
    HeldVotes,
    LightMessage,
    Message,
    Payloads,
    PostMessage,
    SessionMessage,
    Status,
    VoteMessage,
    encode_message,
)
from fedchain.network.session import sign_session
from tests.support.chain.builders import ChainBuilder
from tests.support.chain.changes import joining, living, living_genesis
from tests.support.chain.light import light
from tests.vectors.chain import plain
from tests.vectors.small_chain import KEYS, VectorChain, vector_chain

INLINE = b"payload of member 1 in round 1"
"""The payload of the first member's first post."""

PUBLISHED_AS: dict[type[Message], dict[str, str]] = {PostMessage: {"post": "transaction"}}
"""Fields that the published file names otherwise than the code: implementers read the file by its names."""


def vectors() -> dict[str, Any]:
    """Vectors of everything that peers say, by what they are of."""
    return {
        "messages": [_message(message) for message in messages()],
        "bitmaps": [_bitmap(*case) for case in (((), 4), ((0, 2), 4), ((0, 7, 8), 9), (range(16), 16))],
    }


def messages() -> Iterator[Message]:
    """One message of every kind, and some in another form, about the chain that the other vectors tell of."""
    chain = vector_chain()
    first, second = chain.steps[0], chain.steps[1]
    payload_hash, polka = sha256(INLINE), _prevotes(chain)
    own = next(post for post in first.block.transactions if post.payload_hash == payload_hash)
    everybody = to_bitmap(range(4), 4)
    yield PostMessage(own, INLINE)
    yield PostMessage(own, None)
    yield CandidateMessage(first.block)
    yield VoteMessage(first.certificate.votes[0])
    yield Status(0, chain.genesis.chain_id, b"\x00", (), (), None)
    held = (HeldVotes(VoteKind.PRECOMMIT, 1, b"\x05"), HeldVotes(VoteKind.PREVOTE, 1, everybody))
    yield Status(1, first.block.hash, b"\x0b", (second.block.hash,), held, (1, second.block.hash))
    yield GetFinal(1, 16)
    yield GetPosts(2, 0, b"\x06")
    yield GetVotes(2, VoteKind.PREVOTE, 1, b"\x08")
    yield GetContent(payload_hash, 0)
    yield Chunk(payload_hash, 0, INLINE)
    yield Chunk(payload_hash, 2**18, b"")
    yield EvidenceMessage(chain.crimes[0])
    yield EvidenceMessage(chain.crimes[1])
    yield FinalMessage(first.block, first.certificate)
    yield GetCandidate(second.block.hash)
    yield GetCertificate(2, 1, second.block.hash)
    yield CertificateMessage(polka)
    yield GetPayloads(1)
    yield Payloads(1, (INLINE, b""))
    numbers = bytes(range(16)), bytes(range(16, 32))
    yield SessionMessage(sign_session(KEYS[0], chain.genesis.chain_id, numbers[0], height=1, sequence=0))
    answer = sign_session(KEYS[0], chain.genesis.chain_id, numbers[1], heard=numbers[0], height=1, sequence=3)
    yield SessionMessage(answer)
    yield ChangeMessage(joining(living(4), 4))
    yield GetLight(2, 0, 4)
    changing = ChainBuilder(living_genesis(4))
    changing.extend_many(2)
    yield LightMessage(2, light(changing, changing.tip))
    yield LightMessage(3, None)


def fields_of(message: Message) -> dict[str, Any]:
    """The message's fields in plain values, by their published names."""
    names = PUBLISHED_AS.get(type(message), {})
    return {names.get(name, name): value for name, value in plain(message).items()}


def _prevotes(chain: VectorChain) -> Certificate:
    """Prevotes of a quorum for the second block."""
    block_hash = chain.steps[1].block.hash
    return certify(sign_vote(key, chain.genesis.chain_id, (2, 1, VoteKind.PREVOTE), block_hash) for key in KEYS[1:])


def _message(message: Message) -> dict[str, Any]:
    head = {"name": type(message).__name__, "type": message.KIND, "is_gossip": isinstance(message, GossipMessage)}
    return {**head, "fields": fields_of(message), "bytes": encode_message(message).hex()}


def _bitmap(places: Any, size: int) -> dict[str, Any]:
    return {"places": list(places), "size": size, "bitmap": to_bitmap(places, size).hex()}
