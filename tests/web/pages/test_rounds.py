"""Pages of rounds, and of what they left behind."""

import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from fedchain.chain.genesis import AggregatorRule
from fedchain.chain.storage.rows import FINALS, to_row
from fedchain.files.layout import DATABASE
from fedchain.learning.families.prototypes import PrototypeMethod
from fedchain.learning.round import Tensors
from fedchain.web.knowledge import Drift, KnowledgeReader
from fedchain.web.pages.rounds import participation, rounds
from tests.support.chain.builders import GLOBAL, UPDATE, ChainBuilder, genesis
from tests.support.chain.explored import FakeRules, finals
from tests.support.web.builders import write_run
from tests.support.web.pages import chain as chain
from tests.support.web.pages import client as client
from tests.support.web.pages import run as run
from tests.support.web.pages import text_of
from tests.support.web.site import HOME, site

CLASS = r"class \d"


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


@pytest.mark.parametrize("last", [3, 4])
def test_a_class_that_is_no_longer_known_is_named_with_the_round_of_its_last_value(
    run: Path, monkeypatch: pytest.MonkeyPatch, last: int
) -> None:
    client = TestClient(site(run).app, base_url=HOME)
    whole, before = KnowledgeReader.drift, text_of(client, "/run/knowledge")

    def drift(*asked: Any) -> Drift:
        found = whole(*asked)
        (label, points), *others = found.by_class
        return replace(found, by_class=((label, points[: last - 5]), *others))

    monkeypatch.setattr(KnowledgeReader, "drift", drift)
    shown = text_of(client, "/run/knowledge/5")  # a page of its own, as the one above is remembered
    assert "until round" not in before
    assert set(re.findall(rf"{CLASS} until round \d", shown)) == {
        f"{min(re.findall(CLASS, before))} until round {last}"
    }


def test_a_method_that_tells_no_prototypes_is_named_and_the_page_is_there(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, asked = PrototypeMethod.prototypes, list[Tensors]()

    def prototypes(self: PrototypeMethod, knowledge: Tensors) -> Tensors:
        asked.append(knowledge)
        return whole(self, knowledge) if len(asked) == 1 else {}

    monkeypatch.setattr(PrototypeMethod, "prototypes", prototypes)
    assert '<td class="c10">1.00</td>' in text_of(client, "/run/knowledge/3")  # that of earlier rounds cannot be told
    answer = client.get("/run/knowledge/2")
    assert answer.status_code == 404
    assert "the learning method cannot be asked here: prototypes of Dfpl must return None" in answer.text


def test_participation_begins_with_the_first_round_whatever_is_asked_for(client: TestClient) -> None:
    assert "rounds 1 to 1" in text_of(client, "/run/participation?to=0")


def test_the_page_of_a_round_whose_only_block_is_damaged_says_so(tmp_path: Path, chain: ChainBuilder) -> None:
    folder = write_run(tmp_path / "run", chain)
    with closing(sqlite3.connect(folder / "chain" / DATABASE)) as connection, connection:
        connection.execute("UPDATE finals SET certificate = x'00' WHERE height = 2")
    client = TestClient(site(folder).app, base_url=HOME)
    for path in ("/run/round/2", "/run/block/2", "/api/v1/run/round/2"):
        answer = client.get(path)
        assert answer.status_code == 404, path
        assert "the block at height 2 is damaged" in answer.text, path
    assert client.get("/run/round/3").status_code == 200


def test_phases_that_the_method_does_not_have_end_no_page(tmp_path: Path, chain: ChainBuilder) -> None:
    folder, head = write_run(tmp_path / "run", chain), finals(chain)[-1]
    first, *others = head.block.transactions
    block = replace(head.block, header=replace(head.block.header, phase=7))
    block = replace(block, transactions=(replace(first, phase=9), *others))
    with closing(sqlite3.connect(folder / "chain" / DATABASE)) as connection, connection:
        connection.execute("DELETE FROM finals WHERE height = ?", (block.header.height,))
        FINALS.insert(connection, to_row(replace(head, block=block))[1])
    client = TestClient(site(folder).app, base_url=HOME)
    for page in ("participation", "member/1", f"round/{block.header.round}"):
        assert client.get(f"/run/{page}").status_code == 200, page


def test_a_list_has_forty_rounds_and_the_next_one_those_before(tmp_path: Path) -> None:
    chain = ChainBuilder(genesis(4))
    chain.extend_many(45)
    (shown,) = site(write_run(tmp_path / "run", chain), rules=lambda _: FakeRules()).chains.values()
    with shown.reading() as reading:
        lists = [rounds(shown, reading, question)["rounds"] for question in ({}, {"to": "5"})]
    assert [[number for number, _ in found] for found in lists] == [[*range(45, 5, -1)], [5, 4, 3, 2, 1]]


def test_the_blocks_of_a_round_stand_in_the_order_of_its_phases(tmp_path: Path) -> None:
    chain = ChainBuilder(genesis(4, phases=(UPDATE, GLOBAL), aggregator=AggregatorRule.FIXED))
    chain.extend_many(4)
    (shown,) = site(write_run(tmp_path / "run", chain), rules=lambda _: FakeRules()).chains.values()
    with shown.reading() as reading:
        found = rounds(shown, reading, {})["rounds"]
    assert [(number, [line.height for line in lines]) for number, lines in found] == [(2, [3, 4]), (1, [1, 2])]


def test_members_without_a_line_of_the_table_are_counted(
    tmp_path: Path, chain: ChainBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shown,) = site(write_run(tmp_path / "run", chain)).chains.values()
    with shown.reading() as reading:
        assert participation(shown, reading, {})["left_out"] == 0
        monkeypatch.setattr("fedchain.web.pages.rounds.MEMBERS_MAX", 3)
        assert participation(shown, reading, {})["left_out"] == 1
