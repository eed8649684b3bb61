"""Blocks and headers: read back as written, their roots and hashes, and what is refused."""

from dataclasses import fields, replace
from typing import Any

import pytest

from fedchain.chain.block import (
    Block,
    Header,
    evidence_root,
    transactions_root,
)
from fedchain.chain.encoding import encode
from fedchain.chain.exceptions import InvalidEncoding
from fedchain.chain.membership.change import CHANGES_VERSION
from tests.support.chain.records import CERTIFICATE, FIRST, SECOND, SIZE_MAX, THIRD


@pytest.mark.parametrize("block", [FIRST, SECOND, THIRD], ids=["first", "second", "third"])
def test_a_block_is_read_back(block: Block) -> None:
    again = Block.decode(block.encode(), SIZE_MAX)
    assert again == block
    assert again.hash == block.hash
    assert again.encode() == block.encode()


def test_a_block_above_the_limit_is_not_read() -> None:
    size = len(SECOND.encode())
    with pytest.raises(InvalidEncoding, match=f"^size: {size} bytes, at most {size - 1}"):
        Block.decode(SECOND.encode(), size - 1)


def test_roots_follow_the_order() -> None:
    assert transactions_root(SECOND.transactions) == SECOND.header.transactions_root
    assert transactions_root(SECOND.transactions[::-1]) != SECOND.header.transactions_root
    assert evidence_root(THIRD.evidence) == THIRD.header.evidence_root
    assert evidence_root(THIRD.evidence[::-1]) != THIRD.header.evidence_root
    assert evidence_root(()) == transactions_root(()) == bytes(32)


def test_every_field_of_a_header_is_in_its_hash() -> None:
    header = replace(THIRD.header, version=CHANGES_VERSION)
    names = [item.name for item in fields(Header) if item.init]
    hashes = {header.hash}
    for name in names:
        value = getattr(header, name)
        change: dict[str, Any] = {name: value + 1 if isinstance(value, int) else b"\x01" * 32}
        hashes.add(replace(header, **change).hash)
    assert len(hashes) == len(names) + 1 == 16


def test_headers_before_version_3_do_not_write_the_roots_of_changes_and_members() -> None:
    header = THIRD.header
    assert replace(header, changes_root=b"\x01" * 32, members_root=b"\x02" * 32).hash == header.hash
    assert Header.from_record(header.to_record()) == header
    later = replace(header, version=CHANGES_VERSION, changes_root=b"\x01" * 32, members_root=b"\x02" * 32)
    assert Header.from_record(later.to_record()) == later


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, [], "header: 0 fields found, 13 fields expected"),
        (0, 7, "block: field 0 is int, list expected"),
        (1, bytes(63), "block signature: 63 bytes found, 64 expected"),
        (2, b"", "block: field 2 is bytes, list expected"),
        (2, [7], "post: int found, 6 fields expected"),
        (3, [[]], "certificate: 0 fields found, 5 fields expected"),
        (3, [CERTIFICATE.to_record()] * 2, "block certificate: 2 fields found, 1 fields expected"),
        (3, [7], "block certificate: field 0 is int, list expected"),
        (4, [[]], "evidence: 0 fields found, 3 fields expected"),
        (4, [7], "evidence: int found, 3 fields expected"),
    ],
)
def test_a_malformed_block_is_refused(place: int, value: Any, message: str) -> None:
    record = SECOND.to_record()
    record[place] = value
    with pytest.raises(InvalidEncoding) as caught:
        Block.decode(encode(record), SIZE_MAX)
    assert str(caught.value) == message
