"""Posts, votes, certificates, evidence and blocks: their bytes, their hashes and what is signed."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedchain.chain.block import (
    Block,
    Header,
    block_signing_message,
)
from fedchain.chain.certificate import Certificate, certify
from fedchain.chain.encoding import INTEGER_MAX, decode, encode
from fedchain.chain.evidence import Evidence
from fedchain.chain.exceptions import InvalidEncoding
from fedchain.chain.post import Post, sign_post
from fedchain.chain.vote import Vote, VoteKind, sign_vote
from fedchain.crypto.keys import is_valid_signature
from tests.support.chain.builders import genesis, keys
from tests.support.chain.records import CERTIFICATE, CRIME, FIRST, GENESIS, POST, SECOND, SIZE_MAX, THIRD, VOTE

VECTORS = {
    "chain id": "f0b0098c060197c08c0ad49d3f9f63a49b88baa3121011afbd9e111c4bd70c74",
    "post": "d46610ec95834c7be758f49e5edaadaccee5416583bd100587dd1055a1c6ea1f",
    "transactions root": "ca7245da944f10db9a38353851dfaf7cb7b631da772ac4b8281f7b781a9ab515",
    "first block": "ea772dabe2f710113d94ed09c042985893f58fa712a275e88af4853f7043e1ab",
    "vote": "c0bccde59114d42a930e145d7c8e880dfe1fc1fe1d9f0d183f9b5821e03bca01",
    "certificate": "db8cf63f38aefd9104d052ae35c142246b99f25158c675b61c5c172ce085702a",
    "second block": "ed9963e44442f94aae3568786f4b7fc2f87a22310d8ea5f0f5670c608bb27ca3",
    "state": "d0251ba5327ac78d12fdbdc17c175cf63b5abebccc8b074c1af2e3c3f23b264d",
    "crime": "832a31ff9a823fa225f4d9a96c2a49b56998cc134d260d8a729e38f03591170e",
    "evidence root": "b5d336e746873736b155f4639468ffc13d178c238c7e224787386c4286223eae",
    "third block": "f97422953b09d96cd744a602e2b14543f168988f46690a2cd55f5510349546e7",
    "knowledge": "d05357017dc682ca93a31c020d9f4a35e1b25fd40a1b9972c64dd5de06d26693",
}


def test_fixed_vectors() -> None:
    """Any change of these numbers is a change of the protocol: it needs a new version."""
    assert {
        "chain id": GENESIS.chain_id.hex(),
        "post": FIRST.transactions[0].hash.hex(),
        "transactions root": FIRST.header.transactions_root.hex(),
        "first block": FIRST.hash.hex(),
        "vote": VOTE.hash.hex(),
        "certificate": SECOND.header.certificate_root.hex(),
        "second block": SECOND.hash.hex(),
        "state": SECOND.header.state_root.hex(),
        "crime": CRIME.hash.hex(),
        "evidence root": THIRD.header.evidence_root.hex(),
        "third block": THIRD.hash.hex(),
        "knowledge": THIRD.header.knowledge_root.hex(),
    } == VECTORS


def test_fixed_bytes() -> None:
    vote = Vote(VoteKind.PRECOMMIT, 1, 0, b"b" * 32, 300, 7, b"v" * 32, b"s" * 64)
    assert encode(vote.to_record()) == (
        b"\x98\x02\x01\x00\xc4 " + b"b" * 32 + b"\xcd\x01\x2c\x07\xc4 " + b"v" * 32 + b"\xc4@" + b"s" * 64
    )
    assert encode(certify([vote]).to_record()) == (
        b"\x95\x02\x01\x00\xc4 " + b"b" * 32 + b"\x91\x94\xc4 " + b"v" * 32 + b"\xcd\x01\x2c\x07\xc4@" + b"s" * 64
    )
    post = Post(1, 0, b"m" * 32, b"h" * 32, 200, b"s" * 64)
    assert encode(post.to_record()) == (
        b"\x96\x01\x00\xc4 " + b"m" * 32 + b"\xc4 " + b"h" * 32 + b"\xcc\xc8\xc4@" + b"s" * 64
    )


# --- every record is read back, and written to the same bytes

NUMBERS = st.one_of(st.integers(0, 300), st.integers(0, INTEGER_MAX))
HASHES, SIGNATURES = st.binary(min_size=32, max_size=32), st.binary(min_size=64, max_size=64)
TRANSACTIONS = st.builds(Post, NUMBERS, NUMBERS, HASHES, HASHES, NUMBERS, SIGNATURES)
VOTES = st.builds(Vote, st.sampled_from(VoteKind), NUMBERS, NUMBERS, HASHES, NUMBERS, NUMBERS, HASHES, SIGNATURES)
EVIDENCE = st.one_of(st.builds(Evidence, VOTES, VOTES), st.builds(Evidence, TRANSACTIONS, TRANSACTIONS))
HEADERS = st.builds(
    Header,
    *(NUMBERS, HASHES, NUMBERS, NUMBERS, NUMBERS, HASHES, HASHES),
    *(HASHES, HASHES, HASHES, NUMBERS, HASHES, NUMBERS),
)


@st.composite
def certificates(draw: st.DrawFn) -> Certificate:
    """Votes of any voters in any order, which say the same."""
    first, *others = draw(st.lists(VOTES, min_size=1, max_size=4))
    shared: dict[str, Any] = {
        "kind": first.kind,
        "height": first.height,
        "attempt": first.attempt,
        "block_hash": first.block_hash,
    }
    votes = (first, *(replace(vote, **shared) for vote in others))
    return Certificate(first.kind, first.height, first.attempt, first.block_hash, votes)


BLOCKS = st.builds(
    Block,
    HEADERS,
    SIGNATURES,
    st.lists(TRANSACTIONS, max_size=3).map(tuple),
    st.none() | certificates(),
    st.lists(EVIDENCE, max_size=2).map(tuple),
)
RECORDS: dict[Any, Any] = {
    Post: TRANSACTIONS,
    Vote: VOTES,
    Evidence: EVIDENCE,
    Header: HEADERS,
    Certificate: certificates(),
    Block: BLOCKS,
}


@pytest.mark.long
@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_what_is_written_is_read_back(kind: Any, data: st.DataObject) -> None:
    record = data.draw(RECORDS[kind])
    written = encode(record.to_record())
    again = kind.from_record(decode(written, SIZE_MAX))
    assert again == record
    assert again.hash == record.hash
    assert encode(again.to_record()) == written


# --- signatures


def test_nothing_that_is_signed_holds_on_another_chain_or_for_another_thing() -> None:
    key, other = keys(1)[0], genesis(3, name="another")
    vote = sign_vote(key, GENESIS.chain_id, (1, 0, VoteKind.PREVOTE), FIRST.hash)
    post = sign_post(key, GENESIS.chain_id, 1, 0, b"")
    assert vote.signing_message(other.chain_id) != vote.signing_message(GENESIS.chain_id)
    assert not is_valid_signature(key.public_key, vote.signature, vote.signing_message(other.chain_id))
    assert not is_valid_signature(key.public_key, post.signature, post.signing_message(other.chain_id))
    messages = {
        vote.signing_message(GENESIS.chain_id),
        post.signing_message(GENESIS.chain_id),
        block_signing_message(GENESIS.chain_id, FIRST.hash),
    }
    assert len(messages) == 3


# --- malformed


@pytest.mark.parametrize(
    "original", [SECOND.header, POST, VOTE, CERTIFICATE, CRIME], ids=lambda item: type(item).__name__
)
def test_every_field_has_its_type_and_size(original: Any) -> None:
    cls, record = type(original), original.to_record()
    for place, value in enumerate(record):
        wrong: list[Any] = ["text", [value], b"\x01" if isinstance(value, int) else 1]
        wrong += [value + b"\x00", value[:-1], b""] if isinstance(value, bytes) else []
        for item in wrong:
            with pytest.raises(InvalidEncoding):
                cls.from_record([*record[:place], item, *record[place + 1 :]])
    for wrong_record in (record[:-1], [*record, 0], tuple(record), None):
        with pytest.raises(InvalidEncoding):
            cls.from_record(wrong_record)
