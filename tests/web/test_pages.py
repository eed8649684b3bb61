"""Content of the pages, the clients that may read them, and the answer where something is missing."""

import re
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from fedchain.chain.exceptions import NotFound
from fedchain.chain.explorer.founding import plain_genesis
from fedchain.chain.storage.sqlite import Store
from fedchain.chains import Chain
from fedchain.crypto.address import address
from tests.support.chain.builders import ChainBuilder, genesis
from tests.support.chain.explored import FakeRules, write
from tests.support.web.builders import SCRIPT, append, document, learning_chain, lying_block, write_run
from tests.support.web.pages import chain as chain
from tests.support.web.pages import client as client
from tests.support.web.pages import run as run
from tests.support.web.pages import text_of
from tests.support.web.site import HOME, site

PAGES = (
    *("", "blocks", "block/2", "rounds", "round/2", "members", "member/1", "knowledge", "knowledge/3", "genesis"),
    *("search?q=2", "search?q=nothing", "search"),
)


@pytest.mark.parametrize("page", PAGES)
def test_every_page_answers_escapes_what_came_from_others_and_loads_nothing_from_elsewhere(
    client: TestClient, page: str
) -> None:
    answer = client.get(f"/run/{page}")
    assert answer.status_code == 200
    assert "&lt;script&gt;alert(&#39;name&#39;)&lt;/script&gt;" in answer.text
    assert SCRIPT not in answer.text
    assert re.findall(r"<script[^>]*>", answer.text) == [
        '<script src="/static/explorer.js" defer>',
        '<script src="/static/chart.js" defer>',
    ]
    assert " style=" not in answer.text
    assert "<style" not in answer.text
    assert not re.search(r"""(?:src|href|action)="(?:https?:)?//""", answer.text)
    policy = answer.headers["content-security-policy"].split("; ")
    assert policy[:3] == ["default-src 'none'", "script-src 'self'", "style-src 'self'"]
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_the_overview_says_what_status_says(client: TestClient, run: Path, chain: ChainBuilder) -> None:
    shown = text_of(client, "/run/")
    assert chain.tip.hex() in shown
    assert document().chain_id.hex() in shown
    assert "87.5 %" in shown
    assert "The next block" in shown
    assert shown.count("waited for") == 4 + shown.count("not waited for")
    assert "No crime" in shown


def test_a_block_shows_where_its_time_went_and_who_was_absent(client: TestClient, chain: ChainBuilder) -> None:
    shown = text_of(client, "/run/block/3")
    assert "train 1.0 s · exchange and wait 4.5 s · mine 4.0 s · vote 0.5 s" in shown
    assert address(chain.genesis.members[3])[-8:] in shown.partition("is not counted")[2]
    assert "Block 2" in shown
    assert "Block 4" in shown


def test_a_round_leads_to_rounds_that_have_a_block(client: TestClient) -> None:
    shown = [text_of(client, f"/run/round/{number}") for number in (1, 3, 5)]
    assert all(">closed<" in page for page in shown)
    links = [re.findall(r'href="/run/round/(\d+)" rel="(\w+)"', page) for page in shown]
    assert links == [[("2", "next")], [("2", "prev"), ("4", "next")], [("4", "prev")]]


def test_a_member_is_found_by_number_address_and_the_end_of_it(client: TestClient, chain: ChainBuilder) -> None:
    name = address(chain.genesis.members[2])
    pages = {text_of(client, f"/run/member/{each}") for each in ("2", name, name[-6:])}
    assert len({re.sub(r"<title>.*?</title>", "", page) for page in pages}) == 1
    assert name in pages.pop()


def test_the_knowledge_page_draws_how_prototypes_moved(client: TestClient) -> None:
    shown = text_of(client, "/run/knowledge")
    assert "that round 5 left behind" in shown
    assert shown.count('<circle class="dot') == 7
    assert "distance to the round before, by class" in shown
    assert '<td class="c10">1.00</td>' in shown


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


def test_height_0_is_the_genesis_document(client: TestClient, run: Path) -> None:
    answer = client.get("/run/block/0", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/run/genesis")
    assert client.get("/nowhere/block/0").status_code == 404
    assert client.get("/api/v1/run/block/0").json() == plain_genesis(document())
    with Chain(run) as chain, pytest.raises(NotFound, match=r"which is no block: see Chain\.genesis"):
        chain.block(0)


def test_the_genesis_document_can_be_had(client: TestClient) -> None:
    answer = client.get("/run/genesis.fedchain")
    assert answer.content == document().encode()
    assert "attachment" in answer.headers["content-disposition"]


@pytest.mark.parametrize(
    ("text", "place"),
    [("peer 9", ""), ("6", ""), ("0", "?"), ("4", "?"), ("deadbeef", "")],
)
def test_search_that_finds_nothing_or_several_shows_a_list(client: TestClient, text: str, place: str) -> None:
    answer = client.get("/run/search", params={"q": text}, follow_redirects=False)
    assert answer.status_code == 200
    assert ("Nothing of this chain" in answer.text) is (place == "")


def test_search_leads_to_the_one_that_is_meant(client: TestClient, chain: ChainBuilder) -> None:
    tip = chain.blocks[chain.tip]
    for text, place in (
        (tip.hash.hex()[:12], f"/run/block/{tip.hash.hex()}"),
        (tip.transactions[0].hash.hex()[:12], f"/run/tx/{tip.transactions[0].hash.hex()}"),
        (address(chain.genesis.members[1]), f"/run/member/{address(chain.genesis.members[1])}"),
        (chain.genesis.chain_id.hex(), "/run/genesis"),
    ):
        answer = client.get("/run/search", params={"q": text}, follow_redirects=False)
        assert (answer.status_code, answer.headers.get("location")) == (303, place), text


def test_a_new_block_is_on_the_page_and_changes_its_tag(tmp_path: Path) -> None:
    chain = ChainBuilder(genesis(4))
    chain.extend_many(2)
    with Store.create(tmp_path / "run" / "chain", chain.genesis) as store:
        write(store, chain)
    shown = site(tmp_path / "run", rules=lambda _: FakeRules())
    found = shown.chains["run"]
    client = TestClient(shown.app, base_url=HOME)
    first = client.get("/run/")
    again = client.get("/run/", headers={"if-none-match": first.headers["etag"]})
    assert again.status_code == 304
    version = shown.live.version(found)
    append(tmp_path / "run", chain, chain.extend())
    assert found.look() != version
    shown.live.note(found.key, found.look())
    after = client.get("/run/", headers={"if-none-match": first.headers["etag"]})
    assert after.status_code == 200
    assert "height 3" in after.text
    assert client.get("/run/block/3").status_code == 200


def test_a_chain_without_blocks_has_pages(tmp_path: Path) -> None:
    Store.create(tmp_path / "new" / "chain", document()).close()
    client = TestClient(site(tmp_path / "new").app, base_url=HOME)
    for page in ("", "blocks", "rounds", "members", "member/0", "genesis", "search?q=1"):
        assert client.get(f"/new/{page}").status_code == 200, page
    assert "no knowledge of round 1" in client.get("/new/knowledge").text
    assert client.get("/new/block/1").status_code == 404


def test_several_runs_are_listed_and_compared(tmp_path: Path, chain: ChainBuilder) -> None:
    folders = [write_run(tmp_path / name, chain, (0.5, taa)) for name, taa in (("a", 0.6), ("b", 0.9))]
    client = TestClient(site(*folders).app, base_url=HOME)
    front = client.get("/").text
    assert 'href="/a/"' in front
    assert 'href="/b/"' in front
    shown = client.get("/compare").text
    assert "60.0 %" in shown
    assert "90.0 %" in shown
    assert "90.0 %" not in client.get("/compare?chain=a").text


def test_a_clock_that_was_read_once_is_told_in_words(tmp_path: Path) -> None:
    for rounds, is_drawn in ((1, False), (2, True)):
        folder = write_run(tmp_path / str(rounds), learning_chain(document(), rounds))
        shown = TestClient(site(folder).app, base_url=HOME).get(f"/{rounds}/member/0").text
        clock = shown.partition('id="member-clock"')[2]
        assert ("<polyline" in clock) is is_drawn
        assert ("so far only of height 1: clock <b>" in clock) is not is_drawn
