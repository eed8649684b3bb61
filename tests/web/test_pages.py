"""Content of the pages, the clients that may read them, and the answer where something is missing."""

import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from fedchain.chain.storage.sqlite import Store
from tests.support.chain.builders import ChainBuilder, genesis
from tests.support.chain.explored import FakeRules, write
from tests.support.web.builders import SCRIPT, append, document
from tests.support.web.pages import chain as chain
from tests.support.web.pages import client as client
from tests.support.web.pages import run as run
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
    own = {"block": ("light",), "member": ("cells",)}
    names = ("explorer", "chart", *own.get(page.partition("/")[0], ()))
    assert re.findall(r"<script[^>]*>", answer.text) == [f'<script src="/static/{name}.js" defer>' for name in names]
    assert " style=" not in answer.text
    assert "<style" not in answer.text
    assert not re.search(r"""(?:src|href|action)="(?:https?:)?//""", answer.text)
    policy = answer.headers["content-security-policy"].split("; ")
    assert policy[:3] == ["default-src 'none'", "script-src 'self'", "style-src 'self'"]
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"


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
    shown.live.note(found.key, found.look())
    assert shown.live.version(found) != version
    after = client.get("/run/", headers={"if-none-match": first.headers["etag"]})
    assert after.status_code == 200
    assert "height 3" in after.text
    assert client.get("/run/block/3").status_code == 200


def test_no_browser_is_shown_a_page_of_an_explorer_that_ran_there_before(run: Path) -> None:
    path, block = "/run/block/2", {"headers": {"sec-fetch-site": "same-origin"}, "follow_redirects": False}
    before = TestClient(site(run).app, base_url=HOME)
    with before:
        before.post(f"{path}/recompute", **block)
        kept = before.get(path)
    assert "leave the same knowledge" in kept.text
    with TestClient(site(run).app, base_url=HOME) as again:
        again.post("/run/block/3/recompute", **block)
        answer = again.get(path, headers={"if-none-match": kept.headers["etag"]})
    assert answer.status_code == 200
    assert "leave the same knowledge" not in answer.text


def test_a_chain_without_blocks_has_pages(tmp_path: Path) -> None:
    Store.create(tmp_path / "new" / "chain", document()).close()
    client = TestClient(site(tmp_path / "new").app, base_url=HOME)
    for page in ("", "blocks", "rounds", "members", "member/0", "genesis", "search?q=1"):
        assert client.get(f"/new/{page}").status_code == 200, page
    assert "no knowledge of round 1" in client.get("/new/knowledge").text
    answer = client.get("/new/block/1")
    assert (answer.status_code, "no block at height 1: no block is held here yet" in answer.text) == (404, True)
    assert re.search(r"<dt>last block</dt><dd><span class=\"whole\">–</span></dd>", client.get("/new/").text)
