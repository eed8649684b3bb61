"""Every message has one byte string, and bytes that are not one are refused by name."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedchain.chain.encoding import encode
from fedchain.chain.evidence import evidence_of
from fedchain.chain.exceptions import InvalidEncoding
from fedchain.chain.vote import VoteKind, sign_vote
from fedchain.network.messages import (
    BITMAP_SIZE_MAX,
    CANDIDATES_MAX,
    CHUNK_SIZE,
    HELD_VOTES_MAX,
    MESSAGE_SIZE_MAX,
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
    HeldVotes,
    LightMessage,
    Message,
    Payloads,
    PostMessage,
    SessionMessage,
    Status,
    VoteMessage,
    decode_message,
    encode_message,
)
from fedchain.network.session import sign_session
from tests.support.chain.builders import ChainBuilder, genesis, keys, payload
from tests.support.chain.changes import joining, living
from tests.support.chain.light import light

HASH = bytes(range(32))


def _messages() -> dict[str, Message]:
    builder = ChainBuilder(genesis(4))
    first, second = builder.extend_many(2)
    certificate, chain_id = builder.certificate(second.hash), builder.genesis.chain_id
    votes = [sign_vote(keys(1)[0], chain_id, (3, 0, VoteKind.PREVOTE), item) for item in (HASH, HASH[::-1])]
    changing = living(4)
    changing.extend_many(2)
    held = (HeldVotes(VoteKind.PRECOMMIT, 1, b"\x01"), HeldVotes(VoteKind.PREVOTE, 0, b""))
    return {
        "post": PostMessage(first.transactions[0], payload(1)),
        "post without payload": PostMessage(first.transactions[0], None),
        "post with an empty payload": PostMessage(first.transactions[0], b""),
        "first block": CandidateMessage(first),
        "block": CandidateMessage(second),
        "vote": VoteMessage(votes[0]),
        "evidence": EvidenceMessage(evidence_of(*votes)),
        "status": Status(7, HASH, b"\x0f", (HASH, HASH[::-1]), held, (1, HASH)),
        "status without a lock": Status(7, HASH, b"", (), (), None),
        "change": ChangeMessage(joining(living(4), 4)),
        "get final": GetFinal(3, 16),
        "get light": GetLight(3, 1, 16),
        "light": LightMessage(2, light(changing, changing.tip)),
        "first light": LightMessage(1, light(changing, changing.blocks[changing.tip].header.parent_hash)),
        "no light": LightMessage(3, None),
        "final": FinalMessage(second, certificate),
        "get posts": GetPosts(3, 1, b"\x05"),
        "get votes": GetVotes(3, VoteKind.PRECOMMIT, 2, b"\x05"),
        "get candidate": GetCandidate(HASH),
        "get certificate": GetCertificate(3, 1, HASH),
        "certificate": CertificateMessage(certificate),
        "get content": GetContent(HASH, 2**20),
        "chunk": Chunk(HASH, 2**20, b"data"),
        "get payloads": GetPayloads(3),
        "payloads": Payloads(3, (b"data", b"")),
        "no payloads": Payloads(3, ()),
        "session": SessionMessage(sign_session(keys(1)[0], chain_id, HASH[:16], height=3, sequence=0)),
        "session that answers": SessionMessage(
            sign_session(keys(1)[0], chain_id, HASH[:16], heard=HASH[16:], height=3, sequence=1)
        ),
    }


MESSAGES = _messages()


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_comes_back_as_it_was_sent(name: str) -> None:
    message = MESSAGES[name]
    data = encode_message(message)
    assert decode_message(data) == message
    assert encode_message(decode_message(data)) == data


def test_every_kind_has_a_number_of_its_own_and_is_tested() -> None:
    kinds = {type(message) for message in MESSAGES.values()}
    assert sorted(kind.KIND for kind in kinds) == list(range(1, 21))


@pytest.mark.parametrize("kind", [0, 21, 2**63])
def test_an_unknown_kind_is_refused(kind: int) -> None:
    with pytest.raises(InvalidEncoding, match="message type"):
        decode_message(encode([kind, []]))


@pytest.mark.parametrize("name", MESSAGES)
def test_a_field_more_or_less_is_refused(name: str) -> None:
    message = MESSAGES[name]
    fields = message.to_fields()
    for wrong in (fields[:-1], [*fields, 0], [*fields[:-1], [[[]]]]):
        with pytest.raises(InvalidEncoding):
            decode_message(encode([message.KIND, wrong]))


@pytest.mark.parametrize("name", MESSAGES)
def test_truncated_or_longer_bytes_are_refused(name: str) -> None:
    data = encode_message(MESSAGES[name])
    for wrong in (*(data[:end] for end in range(0, len(data), 1 + len(data) // 200)), data + b"\x00"):
        with pytest.raises(InvalidEncoding):
            decode_message(wrong)


@given(st.binary(max_size=300))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_arbitrary_bytes_are_a_message_or_an_invalid_encoding(data: bytes) -> None:
    try:
        message = decode_message(data)
    except InvalidEncoding:
        return
    assert encode_message(message) == data


VALUES: st.SearchStrategy[object] = st.recursive(
    st.integers(0, 2**64 - 1) | st.binary(max_size=40) | st.just(HASH) | st.text(max_size=4),
    lambda items: st.lists(items, max_size=8),
    max_leaves=24,
)


@pytest.mark.long
@given(st.integers(0, 16), VALUES)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_well_formed_values_are_a_message_or_an_invalid_encoding(kind: int, fields: object) -> None:
    data = encode([kind, fields])
    try:
        message = decode_message(data)
    except InvalidEncoding:
        return
    assert encode_message(message) == data


@pytest.mark.long
@given(st.sampled_from(sorted(MESSAGES)), st.data())
@settings(max_examples=200, deadline=None, derandomize=True)
def test_a_message_with_one_strange_field_raises_nothing_else(name: str, data: st.DataObject) -> None:
    record: object = [MESSAGES[name].KIND, MESSAGES[name].to_fields()]
    strange = data.draw(VALUES)
    encoded = encode(_replaced(record, data.draw(st.lists(st.integers(0, 15), max_size=5)), strange))
    try:
        message = decode_message(encoded)
    except InvalidEncoding:
        return
    assert encode_message(message) == encoded


def _replaced(value: object, path: list[int], strange: object) -> object:
    if not path or not isinstance(value, list) or not value:
        return strange
    place = path[0] % len(value)
    return [*value[:place], _replaced(value[place], path[1:], strange), *value[place + 1 :]]


def test_a_message_has_a_largest_size() -> None:
    room = MESSAGE_SIZE_MAX - len(encode_message(Chunk(HASH, 0, bytes(2**16))))
    largest = encode_message(Chunk(HASH, 0, bytes(2**16 + room)))
    assert len(largest) == MESSAGE_SIZE_MAX
    decode_message(largest)
    with pytest.raises(InvalidEncoding, match=f"{MESSAGE_SIZE_MAX + 1} bytes"):
        decode_message(encode_message(Chunk(HASH, 0, bytes(2**16 + room + 1))))


def test_a_chunk_fits_into_a_message() -> None:
    assert len(encode_message(Chunk(HASH, 2**63, bytes(CHUNK_SIZE)))) < MESSAGE_SIZE_MAX


Sized = Callable[[int], Message]
COUNTED: dict[str, tuple[int, Sized]] = {
    "candidates": (CANDIDATES_MAX, lambda count: Status(0, HASH, b"", (HASH,) * count, (), None)),
    "votes": (
        HELD_VOTES_MAX,
        lambda count: Status(0, HASH, b"", (), (HeldVotes(VoteKind.PREVOTE, 0, b""),) * count, None),
    ),
}


@pytest.mark.parametrize("name", COUNTED)
def test_lists_have_a_largest_length(name: str) -> None:
    count_max, build = COUNTED[name]
    assert decode_message(encode_message(build(count_max))) == build(count_max)
    with pytest.raises(InvalidEncoding, match=f"{count_max + 1} items"):
        decode_message(encode_message(build(count_max + 1)))


WRONG_SIZES: dict[str, Sized] = {
    "status head": lambda size: Status(0, bytes(size), b"", (), (), None),
    "candidate": lambda size: Status(0, HASH, b"", (bytes(size),), (), None),
    "lock": lambda size: Status(0, HASH, b"", (), (), (0, bytes(size))),
    "get candidate": lambda size: GetCandidate(bytes(size)),
    "get certificate": lambda size: GetCertificate(1, 0, bytes(size)),
    "content": lambda size: GetContent(bytes(size), 0),
    "chunk": lambda size: Chunk(bytes(size), 0, b""),
}


@pytest.mark.parametrize("name", WRONG_SIZES)
@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_hash_has_32_bytes(name: str, size: int) -> None:
    decode_message(encode_message(WRONG_SIZES[name](32)))
    with pytest.raises(InvalidEncoding, match="32 expected"):
        decode_message(encode_message(WRONG_SIZES[name](size)))


BITMAPS: dict[str, Sized] = {
    "status": lambda size: Status(0, HASH, bytes(size), (), (), None),
    "held votes": lambda size: Status(0, HASH, b"", (), (HeldVotes(VoteKind.PREVOTE, 0, bytes(size)),), None),
    "get posts": lambda size: GetPosts(1, 0, bytes(size)),
    "get votes": lambda size: GetVotes(1, VoteKind.PREVOTE, 0, bytes(size)),
}


@pytest.mark.parametrize("name", BITMAPS)
def test_bitmaps_have_a_largest_size(name: str) -> None:
    decode_message(encode_message(BITMAPS[name](BITMAP_SIZE_MAX)))
    with pytest.raises(InvalidEncoding, match=f"{BITMAP_SIZE_MAX + 1} bytes"):
        decode_message(encode_message(BITMAPS[name](BITMAP_SIZE_MAX + 1)))


def test_keys_and_signatures_inside_have_their_sizes() -> None:
    vote, post, said = MESSAGES["vote"], MESSAGES["post"], MESSAGES["session"]
    assert isinstance(vote, VoteMessage)
    assert isinstance(post, PostMessage)
    assert isinstance(said, SessionMessage)
    for wrong in (
        VoteMessage(replace(vote.vote, signature=bytes(63))),
        VoteMessage(replace(vote.vote, voter=bytes(31))),
        PostMessage(replace(post.post, sender=bytes(33)), None),
        PostMessage(replace(post.post, payload_hash=bytes(31)), None),
        SessionMessage(replace(said.session, member=bytes(31))),
        SessionMessage(replace(said.session, number=bytes(15))),
        SessionMessage(replace(said.session, heard=bytes(17))),
        SessionMessage(replace(said.session, signature=bytes(65))),
    ):
        with pytest.raises(InvalidEncoding):
            decode_message(encode_message(wrong))
