"""The overview of a chain, its genesis document, and several runs side by side."""

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from fedchain.chain.exceptions import NotFound
from fedchain.chain.explorer.founding import plain_genesis
from fedchain.chains import Chain
from tests.support.chain.builders import ChainBuilder
from tests.support.web.builders import document, write_run
from tests.support.web.pages import chain as chain
from tests.support.web.pages import client as client
from tests.support.web.pages import run as run
from tests.support.web.pages import text_of
from tests.support.web.site import HOME, site


def test_the_overview_says_what_status_says(client: TestClient, run: Path, chain: ChainBuilder) -> None:
    shown = text_of(client, "/run/")
    assert chain.tip.hex() in shown
    assert document().chain_id.hex() in shown
    assert "87.5 %" in shown
    assert "The next block" in shown
    assert shown.count("waited for") == 4 + shown.count("not waited for")
    assert "No crime" in shown


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
