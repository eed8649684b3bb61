"""The published messages are what the code writes, and read back they have the same bytes."""

import json
from typing import Any, get_args

from fedchain.network.bitmaps import from_bitmap
from fedchain.network.messages import GossipMessage, Message, decode_message, encode_message
from tests.support.paths import DOCS
from tests.vectors.network import fields_of, vectors

PUBLISHED: dict[str, Any] = json.loads((DOCS / "vectors.json").read_text(encoding="utf-8"))


def test_the_published_vectors_are_computed_here() -> None:
    computed = json.loads(json.dumps(vectors()))
    assert {name: PUBLISHED[name] for name in computed} == computed


def test_there_is_a_message_of_every_kind() -> None:
    assert {vector["type"] for vector in PUBLISHED["messages"]} == {kind.KIND for kind in get_args(Message)}
    gossip = {vector["type"] for vector in PUBLISHED["messages"] if vector["is_gossip"]}
    assert gossip == {kind.KIND for kind in get_args(GossipMessage)}


def test_messages_read_back_have_the_same_bytes_and_fields() -> None:
    for vector in PUBLISHED["messages"]:
        data = bytes.fromhex(vector["bytes"])
        message = decode_message(data)
        assert type(message).__name__ == vector["name"]
        assert encode_message(message) == data
        assert fields_of(message) == vector["fields"]


def test_bitmaps_read_back_mark_the_same_places() -> None:
    for vector in PUBLISHED["bitmaps"]:
        assert list(from_bitmap(bytes.fromhex(vector["bitmap"]), vector["size"])) == vector["places"]
