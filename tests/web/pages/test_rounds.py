"""Pages of rounds, and of what they left behind."""

import re

from starlette.testclient import TestClient

from tests.support.web.pages import chain as chain
from tests.support.web.pages import client as client
from tests.support.web.pages import run as run
from tests.support.web.pages import text_of


def test_a_round_leads_to_rounds_that_have_a_block(client: TestClient) -> None:
    shown = [text_of(client, f"/run/round/{number}") for number in (1, 3, 5)]
    assert all(">closed<" in page for page in shown)
    links = [re.findall(r'href="/run/round/(\d+)" rel="(\w+)"', page) for page in shown]
    assert links == [[("2", "next")], [("2", "prev"), ("4", "next")], [("4", "prev")]]


def test_the_knowledge_page_draws_how_prototypes_moved(client: TestClient) -> None:
    shown = text_of(client, "/run/knowledge")
    assert "that round 5 left behind" in shown
    assert shown.count('<circle class="dot') == 7
    assert "distance to the round before, by class" in shown
    assert '<td class="c10">1.00</td>' in shown


def test_participation_begins_with_the_first_round_whatever_is_asked_for(client: TestClient) -> None:
    assert "rounds 1 to 1" in text_of(client, "/run/participation?to=0")
