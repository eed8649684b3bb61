"""``docs/vectors.json`` is what the program prints."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedchain.chain.vectors import plain
from fedchain.network.libp2p.bounds import message_id
from fedchain.node.core.journal import Journal
from fedchain.node.vectors import print_vectors

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "vectors.json").read_text(encoding="utf-8")

PUBLISHED: dict[str, Any] = json.loads(TEXT)


def test_the_published_file_is_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    print_vectors()
    assert capsys.readouterr().out == TEXT, "fedchain vectors > docs/vectors.json"


def test_journals_read_back_have_the_same_bytes_and_fields() -> None:
    for vector in PUBLISHED["journals"]:
        data = bytes.fromhex(vector["bytes"])
        assert Journal.decode(data).encode() == data
        assert plain(Journal.decode(data)) == vector["fields"]


def test_the_last_but_one_journal_is_locked() -> None:
    for name in ("lock", "proof"):
        assert [vector["fields"][name] is not None for vector in PUBLISHED["journals"]] == [False, False, True, False]


def test_gossip_is_known_by_the_hash_of_its_bytes() -> None:
    assert len(PUBLISHED["gossip_ids"]) == sum(vector["is_gossip"] for vector in PUBLISHED["messages"])
    for vector in PUBLISHED["gossip_ids"]:
        data = bytes.fromhex(PUBLISHED["messages"][vector["message"]]["bytes"])
        assert message_id(data).hex() == vector["id"]
