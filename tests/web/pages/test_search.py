"""The search."""

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from fedchain.crypto.address import address
from fedchain.web.pages.search import find
from tests.support.chain.builders import ChainBuilder
from tests.support.web.pages import chain as chain
from tests.support.web.pages import client as client
from tests.support.web.pages import run as run
from tests.support.web.site import site


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


def test_what_nobody_has_is_not_found(run: Path, chain: ChainBuilder) -> None:
    (shown,) = site(run).chains.values()
    with shown.reading() as reading:
        members = {text: [hit for hit in find(shown, reading, text) if hit[0] == "member"] for text in ("3", "4", "5")}
        assert members == {"3": [("member", "peer 3", "member/3")], "4": [], "5": []}, "they are 0 to 3"
        assert find(shown, reading, chain.genesis.chain_id.hex()[10:30]) == [], "a hash is found by its beginning"
