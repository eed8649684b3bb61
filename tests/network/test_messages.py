"""Every message has one byte string, and bytes that are not one are refused by name."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedchain.chain.encoding import encode
from fedchain.chain.exceptions import InvalidEncoding
from fedchain.network.messages import (
    CANDIDATES_MAX,
    CHUNK_SIZE,
    LOCATOR_MAX,
    MESSAGE_SIZE_MAX,
    BlockMessage,
    Chunk,
    GetBlocks,
    GetContent,
    GetPosts,
    GetVotes,
    Message,
    PostMessage,
    Status,
    VoteMessage,
    decode_message,
    encode_message,
)
from tests.chain.builders import ChainBuilder, genesis, payload

HASH = bytes(range(32))


def _messages() -> dict[str, Message]:
    builder = ChainBuilder(genesis(4))
    first, second = builder.extend_many(2)
    return {
        "post": PostMessage(first.transactions[0], payload(1)),
        "post without payload": PostMessage(first.transactions[0], None),
        "post with an empty payload": PostMessage(first.transactions[0], b""),
        "first block": BlockMessage(first),
        "block": BlockMessage(second),
        "vote": VoteMessage(second.votes[0]),
        "status": Status(HASH, 7, b"\x0f", ((HASH, b"\x01"), (HASH[::-1], b""))),
        "get blocks": GetBlocks((HASH, HASH[::-1]), HASH),
        "get posts": GetPosts(3, 1, b"\x05"),
        "get votes": GetVotes(HASH, b"\x05"),
        "get content": GetContent(HASH, 2**20),
        "chunk": Chunk(HASH, 2**20, b"data"),
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
    assert sorted(kind.KIND for kind in kinds) == list(range(1, 10))


@pytest.mark.parametrize("kind", [0, 10, 2**63])
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
@settings(max_examples=400, deadline=None, derandomize=True)
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


@given(st.integers(0, 12), VALUES)
@settings(max_examples=600, deadline=None, derandomize=True)
def test_well_formed_values_are_a_message_or_an_invalid_encoding(kind: int, fields: object) -> None:
    data = encode([kind, fields])
    try:
        message = decode_message(data)
    except InvalidEncoding:
        return
    assert encode_message(message) == data


@given(st.sampled_from(sorted(MESSAGES)), st.data())
@settings(max_examples=600, deadline=None, derandomize=True)
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
    "locator": (LOCATOR_MAX, lambda count: GetBlocks((HASH,) * count, HASH)),
    "candidates": (CANDIDATES_MAX, lambda count: Status(HASH, 0, b"", ((HASH, b""),) * count)),
}


@pytest.mark.parametrize("name", COUNTED)
def test_lists_have_a_largest_length(name: str) -> None:
    count_max, build = COUNTED[name]
    assert decode_message(encode_message(build(count_max))) == build(count_max)
    with pytest.raises(InvalidEncoding, match=f"{count_max + 1} items"):
        decode_message(encode_message(build(count_max + 1)))


WRONG_SIZES: dict[str, Sized] = {
    "status head": lambda size: Status(bytes(size), 0, b"", ()),
    "candidate": lambda size: Status(HASH, 0, b"", ((bytes(size), b""),)),
    "locator": lambda size: GetBlocks((HASH, bytes(size)), HASH),
    "stop": lambda size: GetBlocks((), bytes(size)),
    "votes": lambda size: GetVotes(bytes(size), b""),
    "content": lambda size: GetContent(bytes(size), 0),
    "chunk": lambda size: Chunk(bytes(size), 0, b""),
}


@pytest.mark.parametrize("name", WRONG_SIZES)
@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_hash_has_32_bytes(name: str, size: int) -> None:
    decode_message(encode_message(WRONG_SIZES[name](32)))
    with pytest.raises(InvalidEncoding, match="32 expected"):
        decode_message(encode_message(WRONG_SIZES[name](size)))


def test_keys_and_signatures_inside_have_their_sizes() -> None:
    vote, post = MESSAGES["vote"], MESSAGES["post"]
    assert isinstance(vote, VoteMessage)
    assert isinstance(post, PostMessage)
    for wrong in (
        VoteMessage(replace(vote.vote, signature=bytes(63))),
        VoteMessage(replace(vote.vote, voter=bytes(31))),
        PostMessage(replace(post.transaction, sender=bytes(33)), None),
        PostMessage(replace(post.transaction, payload_hash=bytes(31)), None),
    ):
        with pytest.raises(InvalidEncoding):
            decode_message(encode_message(wrong))
