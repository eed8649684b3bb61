"""Pages of members."""

import re
from pathlib import Path

from starlette.testclient import TestClient

from fedchain.crypto.address import address
from tests.support.chain.builders import ChainBuilder
from tests.support.web.builders import document, learning_chain, write_run
from tests.support.web.pages import chain as chain
from tests.support.web.pages import client as client
from tests.support.web.pages import run as run
from tests.support.web.pages import text_of
from tests.support.web.site import HOME, site


def test_a_member_is_found_by_number_address_and_the_end_of_it(client: TestClient, chain: ChainBuilder) -> None:
    name = address(chain.genesis.members[2])
    pages = {text_of(client, f"/run/member/{each}") for each in ("2", name, name[-6:])}
    assert len({re.sub(r"<title>.*?</title>", "", page) for page in pages}) == 1
    assert name in pages.pop()


def test_a_clock_that_was_read_once_is_told_in_words(tmp_path: Path) -> None:
    for rounds, is_drawn in ((1, False), (2, True)):
        folder = write_run(tmp_path / str(rounds), learning_chain(document(), rounds))
        shown = TestClient(site(folder).app, base_url=HOME).get(f"/{rounds}/member/0").text
        clock = shown.partition('id="member-clock"')[2]
        assert ("<polyline" in clock) is is_drawn
        assert ("so far only of height 1: clock <b>" in clock) is not is_drawn
