"""Pages of blocks."""

from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from fedchain.chain.storage.sqlite import Store
from fedchain.crypto.address import address
from tests.support.chain.builders import ChainBuilder, genesis
from tests.support.chain.explored import FakeRules, write
from tests.support.web.builders import lying_block
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
