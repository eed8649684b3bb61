"""``docs/vectors.json`` is what is computed."""

import json
import math
from typing import Any

import msgpack
import numpy as np
import pytest

from fedchain.network.libp2p.bounds import message_id
from fedchain.node.core.voting.journal import Journal
from tests.support.paths import DOCS
from tests.vectors.chain import plain
from tests.vectors.node import to_json, vectors

TEXT = (DOCS / "vectors.json").read_text(encoding="utf-8")

PUBLISHED: dict[str, Any] = json.loads(TEXT)


def test_the_published_file_is_what_is_printed() -> None:
    assert to_json(vectors()) + "\n" == TEXT, "python -m tests.vectors > docs/vectors.json"


def test_journals_read_back_have_the_same_bytes_and_fields() -> None:
    for vector in PUBLISHED["journals"]:
        data = bytes.fromhex(vector["bytes"])
        assert Journal.decode(data).encode() == data
        assert plain(Journal.decode(data)) == vector["fields"]


def test_the_last_two_journals_are_locked_and_one_of_them_knows_why() -> None:
    fields = [vector["fields"] for vector in PUBLISHED["journals"]]
    assert [item["lock"] is not None for item in fields] == [False, False, True, True]
    assert [item["proof"] is not None for item in fields] == [False, False, True, False]


def test_gossip_is_known_by_the_hash_of_its_bytes() -> None:
    assert len(PUBLISHED["gossip_ids"]) == sum(vector["is_gossip"] for vector in PUBLISHED["messages"])
    for vector in PUBLISHED["gossip_ids"]:
        data = bytes.fromhex(PUBLISHED["messages"][vector["message"]]["bytes"])
        assert message_id(data).hex() == vector["id"]


@pytest.mark.parametrize("vector", PUBLISHED["encrypted_rounds"])
def test_an_encrypted_round_is_followed_with_nothing_but_integers(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["public_key"])
    bits = int.from_bytes(data[:2])
    n, size = int.from_bytes(data[7 : 7 + bits // 8]), bits // 4
    members, width = len(vector["members"]), vector["embedding_size"]
    bound = members * int(vector["magnitude_max"] * 2**24)
    digit = bound.bit_length() + 1
    per = (bits - 1) // digit
    rows_per_class = -(-width // per)
    posted: dict[int, list[list[int]]] = {}
    for update in vector["updates"]:
        fields = document(update)
        rows = integers(fields["ciphertexts"], size)
        for place, label in enumerate(fields["labels"]):
            posted.setdefault(label, []).append(rows[place * rows_per_class : (place + 1) * rows_per_class])
    products = {
        label: [math.prod(column) % n**2 for column in zip(*rows, strict=True)] for label, rows in posted.items()
    }
    sums = document(vector["sums"])
    assert sums["labels"] == sorted(products)
    assert sums["holders"] == [len(posted[label]) for label in sums["labels"]]
    assert sums["contributors"] == [members]
    assert integers(sums["sums"], size) == [number for label in sums["labels"] for number in products[label]]
    opened = [label for label in sums["labels"] if len(posted[label]) >= vector["contributors_min"]]
    delta = math.factorial(members)
    shares: dict[int, list[int]] = {}
    for member, payload in vector["decryption_shares"].items():
        proof_and_shares = document(payload)["shares"]
        shares[int(member) + 1] = integers(proof_and_shares[-len(opened) * rows_per_class * size :], size)
    prototypes = []
    for place, label in enumerate(opened):
        numbers: list[int] = []
        for row in range(rows_per_class):
            product = 1
            for i, own in shares.items():
                (j,) = shares.keys() - {i}
                product = product * pow(own[place * rows_per_class + row], 2 * delta * j // (j - i), n**2) % n**2
            plaintext = (product - 1) // n * pow(4 * delta**2, -1, n) % n
            plaintext -= n if plaintext > n // 2 else 0
            for _ in range(min(per, width - row * per)):
                low = (plaintext + 2 ** (digit - 1)) % 2**digit - 2 ** (digit - 1)
                numbers.append(low)
                plaintext = (plaintext - low) >> digit
        prototypes.append([number / 2**24 / len(posted[label]) for number in numbers])
    assert opened == vector["labels"] == [0, 1], "class 3 has two holders"
    assert np.array(prototypes, dtype=np.float32).tolist() == vector["prototypes"]


def document(text: str) -> dict[str, Any]:
    """Tensors by name: integers as a list, bytes as they are."""
    entries = msgpack.unpackb(bytes.fromhex(text))
    return {
        name: np.frombuffer(data, "<i8").tolist() if dtype == "int64" else data for name, dtype, shape, data in entries
    }


def integers(data: bytes, size: int) -> list[int]:
    return [int.from_bytes(data[at : at + size]) for at in range(0, len(data), size)]
