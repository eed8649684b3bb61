"""Pages of blocks."""

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from fedchain.chain.storage.sqlite import Store
from fedchain.crypto.address import address
from fedchain.web.pages.blocks import block, blocks, find_proof, find_transaction
from tests.support.chain.builders import ChainBuilder, genesis
from tests.support.chain.explored import FakeRules, write
from tests.support.web.builders import lying_block, write_run
from tests.support.web.pages import chain as chain
from tests.support.web.pages import client as client
from tests.support.web.pages import run as run
from tests.support.web.pages import text_of
from tests.support.web.site import HOME, site


def test_a_block_shows_where_its_time_went_and_who_was_absent(client: TestClient, chain: ChainBuilder) -> None:
    shown = text_of(client, "/run/block/3")
    assert "train 1.0 s · exchange and wait 4.5 s · mine 4.0 s · vote 0.5 s" in shown
    assert address(chain.genesis.members[3])[-8:] in shown.partition("is not counted")[2]
    assert "Block 2" in shown
    assert "Block 4" in shown


def test_recomputing_a_block_that_tells_the_truth(client: TestClient, chain: ChainBuilder) -> None:
    answer = client.post("/run/block/4/recompute")
    assert answer.status_code == 200
    assert "leave the same knowledge" in answer.text
    root = chain.blocks[chain.tip]
    assert answer.text.count(client.get("/api/v1/run/block/4").json()["header"]["knowledge_root"]) == 3
    assert root.header.height == 5
    assert "leave the same knowledge" in text_of(client, "/run/block/4")
    assert "leave the same knowledge" not in text_of(client, "/run/block/5")


def test_a_false_aggregate_is_red_with_both_hashes(tmp_path: Path) -> None:
    chain = ChainBuilder(genesis(4))
    chain.extend()
    false = lying_block(chain)
    with Store.create(tmp_path / "lie" / "chain", chain.genesis) as store:
        write(store, chain)
    made = next(root for root, data in chain.contents.items() if len(data) == 64 and root != _first_root(chain, false))
    with TestClient(site(tmp_path / "lie", rules=lambda _: FakeRules()).app, base_url=HOME) as client:
        shown = client.post("/lie/block/2/recompute").text
    assert "FALSE" in shown
    assert "card verdict false" in shown
    assert false.header.knowledge_root.hex() in shown
    assert made.hex() in shown


def _first_root(chain: ChainBuilder, block: Any) -> bytes:
    root: bytes = chain.blocks[block.header.parent_hash].header.knowledge_root
    return root


def test_a_post_is_found_before_all_blocks_were_read_for_pages(
    run: Path, chain: ChainBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedchain.web.chains.READ_AT_ONCE", 1)
    post = chain.blocks[chain.tip].transactions[0].hash.hex()
    for page in ("tx", "proof"):
        (shown,) = site(run).chains.values()
        with shown.reading() as reading:
            assert not reading.is_complete
            assert find_transaction(reading, post).block.height == 5
            assert find_proof(reading, post).header.height == 5
        assert post in text_of(TestClient(site(run).app, base_url=HOME), f"/run/{page}/{post}")


def test_a_list_has_forty_blocks_and_the_next_one_those_below(tmp_path: Path) -> None:
    chain = ChainBuilder(genesis(4))
    chain.extend_many(45)
    (shown,) = site(write_run(tmp_path / "run", chain), rules=lambda _: FakeRules()).chains.values()
    with shown.reading() as reading:
        first, second = (blocks(shown, reading, question) for question in ({}, {"to": "5"}))
    assert [item.summary.height for item in first["blocks"]] == [*range(45, 5, -1)]
    assert (first["first"], first["last"]) == (6, 45)
    assert [item.summary.height for item in second["blocks"]] == [5, 4, 3, 2, 1]


def test_the_lowest_block_that_is_held_leads_to_none_below_and_took_nobody_knows_how_long(tmp_path: Path) -> None:
    chain = ChainBuilder(genesis(4))
    chain.extend_many(5)
    with Store.create(tmp_path / "run" / "chain", chain.genesis) as store:
        write(store, chain, base=3)
    (shown,) = site(tmp_path / "run", rules=lambda _: FakeRules()).chains.values()
    with shown.reading() as reading:
        lowest, next_one = (block(shown, reading, name) for name in ("3", "4"))
    assert (lowest["below"], lowest["above"], lowest["timed"].took_ms) == (None, 4, None)
    assert (next_one["below"], next_one["above"]) == (3, 5)
    assert next_one["timed"].took_ms > 0
