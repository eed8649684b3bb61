"""Posts, votes and blocks: their bytes, their hashes and what is signed."""

from dataclasses import replace
from typing import Any

import pytest

from fedchain.chain.block import Block, Header, block_signing_message, transactions_root, votes_root
from fedchain.chain.encoding import decode, encode
from fedchain.chain.exceptions import InvalidEncoding
from fedchain.chain.transaction import Transaction, sign_transaction
from fedchain.chain.vote import Vote, sign_vote
from fedchain.crypto.keys import is_valid_signature
from tests.chain.builders import ChainBuilder, genesis, keys, payload, post

SIZE_MAX = 2**20
GENESIS = genesis(3)
BUILDER = ChainBuilder(GENESIS)
FIRST, SECOND = BUILDER.extend_many(2)
POST, VOTE = SECOND.transactions[0], SECOND.votes[0]

CHAIN_ID = "848fd5c6b28261fba5bd13db5e536de3b88e24435d71d9a032f23677166b38dc"
TRANSACTION_HASH = "0881df144d57d90a3d73b535bc2aaf60c97a967076c84c30b722f4f91d18250a"
TRANSACTIONS_ROOT = "66efebc8dc3aa8826d08825d87e2d7f0b3e8459779a34bb7f778e86b2b831e34"
BLOCK_HASH = "6fbadb2ae40c6a8bac27e1631df37754d614c4e7056579b769813634ef6b8ca2"
VOTE_HASH = "5545a52302fd7414803a8e9bd9fa5060a867fc0e0aae624dda2e5b10666d16ab"
VOTES_ROOT = "6d617cc850e2e9029d5a6b85680627bca12a4c0f42aec2d0d91749deb04d72d1"
KNOWLEDGE_ROOT = "203fb3402aa2f9b9476d314d09647cbe9410c6687005c4f8a9a7bad217f4e49c"


def test_a_transaction_is_read_back() -> None:
    assert Transaction.from_record(decode(encode(POST.to_record()), SIZE_MAX)) == POST


def test_a_vote_is_read_back() -> None:
    assert Vote.from_record(decode(encode(VOTE.to_record()), SIZE_MAX)) == VOTE


@pytest.mark.parametrize("block", [FIRST, SECOND], ids=["first", "second"])
def test_a_block_is_read_back(block: Block) -> None:
    again = Block.decode(block.encode(), SIZE_MAX)
    assert again == block
    assert again.hash == block.hash
    assert again.encode() == block.encode()


def test_a_block_above_the_limit_is_not_read() -> None:
    size = len(SECOND.encode())
    with pytest.raises(InvalidEncoding, match=f"^size: {size} bytes, at most {size - 1}"):
        Block.decode(SECOND.encode(), size - 1)


def test_fixed_vectors() -> None:
    """Any change of these numbers is a change of the protocol: it needs a new version."""
    assert GENESIS.chain_id.hex() == CHAIN_ID
    assert FIRST.transactions[0].hash.hex() == TRANSACTION_HASH
    assert FIRST.header.transactions_root.hex() == TRANSACTIONS_ROOT
    assert FIRST.hash.hex() == BLOCK_HASH
    assert VOTE.hash.hex() == VOTE_HASH
    assert SECOND.header.votes_root.hex() == VOTES_ROOT
    assert SECOND.header.knowledge_root.hex() == KNOWLEDGE_ROOT


def test_fixed_bytes() -> None:
    vote = Vote(b"b" * 32, 1, 0, b"v" * 32, b"s" * 64)
    assert encode(vote.to_record()) == b"\x95\xc4 " + b"b" * 32 + b"\x01\x00\xc4 " + b"v" * 32 + b"\xc4@" + b"s" * 64
    transaction = Transaction(1, 0, b"m" * 32, b"h" * 32, 200, 1_700_000_000_000, b"s" * 64)
    assert encode(transaction.to_record()) == (
        b"\x97\x01\x00\xc4 " + b"m" * 32 + b"\xc4 " + b"h" * 32 + b"\xcc\xc8"
        b"\xcf\x00\x00\x01\x8b\xcf\xe5\x68\x00\xc4@" + b"s" * 64
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"round": 2},
        {"phase": 1},
        {"sender": keys(2)[1].public_key},
        {"payload_hash": bytes(32)},
        {"payload_size": 1},
        {"timestamp_ms": 1},
    ],
    ids=str,
)
def test_a_posts_signature_covers_every_field(changes: dict[str, Any]) -> None:
    original = post(keys(1)[0], GENESIS, 1, payload(1))
    assert _is_signed(original)
    assert not _is_signed(replace(original, **changes))
    assert replace(original, **changes).hash != original.hash


def _is_signed(transaction: Transaction) -> bool:
    message = transaction.signing_message(GENESIS.chain_id)
    return is_valid_signature(transaction.sender, transaction.signature, message)


@pytest.mark.parametrize("changes", [{"block_hash": bytes(32)}, {"round": 2}, {"phase": 1}], ids=str)
def test_a_votes_signature_covers_every_field(changes: dict[str, Any]) -> None:
    assert is_valid_signature(VOTE.voter, VOTE.signature, VOTE.signing_message(GENESIS.chain_id))
    other = replace(VOTE, **changes)
    assert not is_valid_signature(other.voter, other.signature, other.signing_message(GENESIS.chain_id))


def test_nothing_that_is_signed_holds_on_another_chain_or_for_another_thing() -> None:
    key, other = keys(1)[0], genesis(3, name="another")
    vote = sign_vote(key, GENESIS.chain_id, FIRST.hash, 1, 0)
    transaction = sign_transaction(key, GENESIS.chain_id, 1, 0, b"", 0)
    assert vote.signing_message(other.chain_id) != vote.signing_message(GENESIS.chain_id)
    assert not is_valid_signature(key.public_key, vote.signature, vote.signing_message(other.chain_id))
    assert not is_valid_signature(key.public_key, transaction.signature, transaction.signing_message(other.chain_id))
    messages = {
        vote.signing_message(GENESIS.chain_id),
        transaction.signing_message(GENESIS.chain_id),
        block_signing_message(GENESIS.chain_id, FIRST.hash),
    }
    assert len(messages) == 3


def test_roots_follow_the_order() -> None:
    assert transactions_root(SECOND.transactions) == SECOND.header.transactions_root
    assert transactions_root(SECOND.transactions[::-1]) != SECOND.header.transactions_root
    assert votes_root(SECOND.votes) == SECOND.header.votes_root
    assert votes_root(()) == transactions_root(()) == bytes(32)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, [], "header: 0 fields found, 12 fields expected"),
        (0, 7, "block: field 0 is int, list expected"),
        (1, bytes(63), "block signature: 63 bytes found, 64 expected"),
        (2, b"", "block: field 2 is bytes, list expected"),
        (2, [7], "transaction: int found, 7 fields expected"),
        (3, [[]], "vote: 0 fields found, 5 fields expected"),
    ],
)
def test_a_malformed_block_is_refused(place: int, value: Any, message: str) -> None:
    record = SECOND.to_record()
    record[place] = value
    with pytest.raises(InvalidEncoding) as caught:
        Block.decode(encode(record), SIZE_MAX)
    assert str(caught.value) == message


@pytest.mark.parametrize("original", [SECOND.header, POST, VOTE], ids=["header", "transaction", "vote"])
def test_every_field_has_its_type_and_size(original: Header | Transaction | Vote) -> None:
    cls, record = type(original), original.to_record()
    for place, value in enumerate(record):
        wrong: list[Any] = ["text", [value], b"\x01" if isinstance(value, int) else 1]
        wrong += [value + b"\x00", value[:-1], b""] if isinstance(value, bytes) else []
        for item in wrong:
            with pytest.raises(InvalidEncoding):
                cls.from_record([*record[:place], item, *record[place + 1 :]])
    for fields in (record[:-1], [*record, 0], tuple(record), None):
        with pytest.raises(InvalidEncoding):
            cls.from_record(fields)
