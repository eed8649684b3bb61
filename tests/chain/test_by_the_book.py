"""The published vectors against the protocol written anew: the page says enough, and the program does what it says."""

import json
from typing import Any

import msgpack
import pytest

from tests.support.chain import by_the_book as book
from tests.support.paths import DOCS

PUBLISHED: dict[str, Any] = json.loads((DOCS / "vectors.json").read_text(encoding="utf-8"))
SMALL = PUBLISHED["genesis"][0]
CHAIN_ID = bytes.fromhex(SMALL["hash"])


def unpack(vector: dict[str, Any]) -> list[Any]:
    record: list[Any] = msgpack.unpackb(bytes.fromhex(vector["bytes"]), raw=False)
    return record


@pytest.mark.parametrize(
    "section",
    ["genesis", "transactions", "votes", "certificates", "evidence", "headers", "states", "blocks", "messages"],
)
def test_records_have_these_bytes_and_hashes(section: str) -> None:
    for vector in PUBLISHED[section]:
        data = book.encode(unpack(vector))
        assert data.hex() == vector["bytes"]
        if section not in ("blocks", "messages"):  # a block's hash is its header's, a message has none
            assert book.sha256(data).hex() == vector["hash"]


def test_values_have_these_bytes() -> None:
    for vector in PUBLISHED["encodings"]:
        assert book.encode(msgpack.unpackb(bytes.fromhex(vector["bytes"]), raw=False)).hex() == vector["bytes"]


@pytest.mark.parametrize("vector", PUBLISHED["signatures"], ids=lambda vector: vector["about"])
def test_these_signatures_are_valid_and_no_others(vector: dict[str, Any]) -> None:
    key, signature, message = (bytes.fromhex(vector[name]) for name in ("public_key", "signature", "message"))
    assert book.is_valid(key, signature, message) == vector["is_valid"]


def test_signed_is_what_the_page_says() -> None:
    signed = {item["kind"]: item for item in PUBLISHED["signing_messages"]}
    records = {kind: msgpack.unpackb(bytes.fromhex(item["record"]), raw=False) for kind, item in signed.items()}
    change = book.sha256(book.encode(records["change"][:7]))
    bodies = {
        "transaction": book.encode(records["transaction"][:-1]),
        "vote": book.encode(records["vote"][:-1]),
        "block": book.block_hash(records["block"]),
        "session": book.encode(records["session"][:-1]),
        "change": change,
        "approval": change,
        "invitation": book.sha256(book.encode(records["invitation"][:-1])),
        "request": change,
    }
    assert signed.keys() == bodies.keys()
    for kind, body in bodies.items():
        message = book.sign_message(CHAIN_ID, kind, body)
        assert message.hex() == signed[kind]["message"]
        key, signature = (bytes.fromhex(signed[kind][name]) for name in ("public_key", "signature"))
        assert book.is_valid(key, signature, message)


def test_an_amendment_is_one_flat_list() -> None:
    (vector,) = [item for item in PUBLISHED["version_3"]["changes"] if item["fields"]["amendment"] is not None]
    said = vector["fields"]["amendment"]
    assert unpack(vector)[6] == [said["round"], *(part for pair in said["values"] for part in pair)]
    *_, amended, owed = unpack(PUBLISHED["version_3"]["states"][1])
    assert amended == [[part for pair in said["values"] for part in pair], [], 1]
    assert len(owed) == 1, "what is owed is the last value"


def test_every_vote_and_post_of_the_chain_is_signed() -> None:
    for vector in PUBLISHED["certificates"]:
        kind, height, attempt, block_hash, votes = unpack(vector)
        for voter, clock_ms, mining_ms, signature in votes:
            body = book.encode([kind, height, attempt, block_hash, clock_ms, mining_ms, voter])
            assert book.is_valid(voter, signature, book.sign_message(CHAIN_ID, "vote", body))
    for vector in PUBLISHED["transactions"]:
        *fields, signature = unpack(vector)
        message = book.sign_message(CHAIN_ID, "transaction", book.encode(fields))
        assert book.is_valid(fields[2], signature, message)


def test_headers_have_these_proofs_and_roots() -> None:
    for vector, whole in zip(PUBLISHED["headers"], PUBLISHED["blocks"], strict=True):
        header, _, posts, certificate, evidence = unpack(whole)
        assert header == unpack(vector)
        for function, stated in vector["proofs"].items():
            assert book.proof(header, function).hex() == stated
        assert int.from_bytes(book.proof(header, "sha256d"), "big") <= book.target_of(header[10])
        assert header[5] == book.merkle_root([book.sha256(book.encode(post)) for post in posts])
        assert header[6] == (book.sha256(book.encode(certificate[0])) if certificate else bytes(32))
        assert header[7] == book.merkle_root([book.sha256(book.encode(crime)) for crime in evidence])


def test_states_follow_from_the_blocks() -> None:
    state = unpack(PUBLISHED["states"][0])
    for place, vector in enumerate(PUBLISHED["blocks"]):
        block = unpack(vector)
        assert block[0][8] == book.sha256(book.encode(state))
        state = book.state_after(state, block, SMALL["fields"]["target_mining_time_ms"])
        assert state == unpack(PUBLISHED["states"][place + 1])


def test_trees_have_these_roots() -> None:
    for vector in PUBLISHED["merkle_roots"]:
        assert book.merkle_root([bytes.fromhex(leaf) for leaf in vector["leaves"]]).hex() == vector["root"]


def test_difficulties_are_these() -> None:
    for vector in PUBLISHED["targets"]:
        target = book.target_of(vector["bits"])
        assert target.to_bytes(32, "big").hex() == vector["target"]
        assert hex(2**256 // (target + 1)) == vector["work"]
        assert book.compact(target) == vector["bits"]
    for vector in PUBLISHED["next_bits"]:
        args = vector["bits"], vector["mining_ms"], vector["target_mining_time_ms"]
        assert book.next_bits(*args) == vector["next_bits"]


def test_each_member_s_difficulty_is_this() -> None:
    section = PUBLISHED["version_3"]
    for vector in section["bits"]:
        found = [book.bits_of(vector["bits"], weight, vector["weights"]) for weight in vector["weights"]]
        assert found == vector["bits_of"]
    for vector in section["weights"]:
        assert book.weights_after(vector["weights"], vector["miner"]) == vector["weights_after"]
    for before, block in zip(section["states"], section["blocks"][1:], strict=False):
        members, header = unpack(before)[11], unpack(block)[0]
        active = {record[0]: record[6] - 12 for record in members if record[1] == 0}
        assert header[10] == book.bits_of(unpack(before)[7], active[header[11]], list(active.values()))


def test_waits_are_these() -> None:
    vectors = PUBLISHED["version_3"]["waits"]
    for vector in vectors:
        found = book.wait_after(*(vector[name] for name in ("rules", "active", "record", "turnout", "mining_ms")))
        assert found == (vector["after"]["owed_ms"], vector["after"]["shortened"], vector["granted_ms"])
    assert len({vector["granted_ms"] for vector in vectors}) > 5


def test_draws_and_quorums_are_these() -> None:
    for vector in PUBLISHED["draws"]:
        members = [bytes.fromhex(member) for member in vector["members"]]
        drawn = book.draw(members, vector["count"], bytes.fromhex(vector["seed"]))
        assert sorted(member.hex() for member in drawn) == vector["drawn"]
    for vector in PUBLISHED["version_3"]["draws"]:
        chain_id, places = bytes.fromhex(vector["chain_id"]), vector["places"]
        assert book.draw_places(places, vector["count"], chain_id, vector["what"], vector["number"]) == vector["drawn"]
    for vector in PUBLISHED["quorums"]:
        count = vector["electors"]
        assert book.faulty(count) == vector["byzantine_faulty"]
        assert book.quorum(count, book.faulty(count)) == vector["byzantine_quorum"]
        assert book.quorum(count, 0) == vector["crash_quorum"]


def test_gossip_is_known_by_these_ids() -> None:
    for vector in PUBLISHED["gossip_ids"]:
        data = bytes.fromhex(PUBLISHED["messages"][vector["message"]]["bytes"])
        assert book.sha256(b"fedchain/gossip/2" + data)[:20].hex() == vector["id"]
