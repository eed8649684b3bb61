"""The overview of a chain, its genesis document, and several runs side by side."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from fedchain.chain.exceptions import NotFound
from fedchain.chain.explorer.founding import plain_genesis
from fedchain.chain.membership.amendment import amendment_of
from fedchain.chain.membership.change import propose_amendment
from fedchain.chain.storage.sqlite import Store
from fedchain.chains import Chain
from fedchain.web.pages.overview import compare, home, learning_of
from tests.support.chain.builders import ChainBuilder, genesis
from tests.support.chain.changes import UNTIL, approved, living
from tests.support.chain.explored import FakeRules, write
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


def test_parameters_that_were_amended_are_shown_beside_what_was_founded(tmp_path: Path) -> None:
    chain = living(5, rounds=9, learning=(("hyperparameters", '[["learning_rate", 0.1]]'), ("method", '"fedavg"')))
    first: dict[str, int | str] = {"rounds": 12, "hyperparameters.learning_rate": "0.05"}
    second: dict[str, int | str] = {"committee_size": 4}
    for begin, values in ((0, first), (8, second)):
        said: dict[str, Any] = {"sequence": chain.state.amendments.count, "until": UNTIL}
        change = approved(chain, propose_amendment(amendment_of(values, begin), "better", **said))
        chain.extend(changes=[change])
    chain.extend()
    with Store.create(tmp_path / "run" / "chain", chain.genesis) as store:
        write(store, chain)
    client = TestClient(site(tmp_path / "run", rules=lambda document: FakeRules()).app, base_url=HOME)
    shown = text_of(client, "/run/genesis")
    assert "now 12" in shown
    assert "0.05 <small>founded with 0.1</small>" in shown
    assert "4 <small>from round 8 on</small>" in shown
    assert "of 12" in text_of(client, "/run/")
    found = client.get("/api/v1/run/rules").json()
    assert found["amended"] == [
        {"name": "learning_rate", "founded": 0.1, "value": 0.05},
        {"name": "rounds", "founded": 9, "value": 12},
    ]
    assert found["coming"] == [{"round": 8, "values": [["committee_size", 4]]}]
    before = client.get("/api/v1/run/rules?height=2").json()
    assert (before["amended"], before["coming"][0]["round"], before["height"]) == ([], 3, 2)
    assert client.get("/api/v1/run/rules?height=99").status_code == 404
    assert "learning_rate 0.05, rounds 12" in text_of(client, "/run/block/1")
    (change,) = client.get("/api/v1/run/block/2").json()["changes"]
    assert (change["member"], change["values"], change["round"]) == ("", [["committee_size", 4]], 8)


def test_values_of_the_genesis_document_are_words(tmp_path: Path) -> None:
    said = '[["shared_init", true], ["warm", false], ["clip", null], ["rate", 0.1]]'
    chain = ChainBuilder(genesis(4, learning=(("hyperparameters", said), ("method", '"fedavg"'))))
    Store.create(tmp_path / "run" / "chain", chain.genesis).close()
    shown = text_of(
        TestClient(site(tmp_path / "run", rules=lambda document: FakeRules()).app, base_url=HOME), "/run/genesis"
    )
    for name, value in (("shared_init", "yes"), ("warm", "no"), ("clip", "none"), ("rate", "0.1")):
        assert f"<dt>hyperparameters: {name}</dt><dd>{value}</dd>" in shown
    assert "<dt>centralized</dt><dd>no</dd>" in shown


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


def test_a_run_is_compared_by_its_last_and_its_best_accuracy_and_by_what_it_sent(
    tmp_path: Path, chain: ChainBuilder
) -> None:
    folder = write_run(tmp_path / "run", chain)
    rows = ({"round": number, "taa": taa, "training_s": 7.0} for number, taa in enumerate((0.5, 0.9, 0.6), 1))
    lines = [json.dumps(row | {"bytes_sent_per_peer": 100 * row["round"]}) for row in rows]
    (folder / "metrics.jsonl").write_text("\n".join(lines))
    chains = site(folder).chains.values()
    for shown in chains:
        shown.look()
    found = compare([*chains])
    (row,) = found["rows"]
    assert (row["last"], row["best"]) == (0.6, 0.9)
    readings = {chart.title: chart.lines[0].readings.y for chart in found["charts"]}
    assert readings == {
        "mean accuracy on the members' own test sets": "50.0 %;90.0 %;60.0 %",
        "bytes that a member sent": "100.0 B;200.0 B;300.0 B",
    }


def test_the_overview_has_the_ten_newest_blocks_head_first(tmp_path: Path) -> None:
    chain = ChainBuilder(genesis(4))
    chain.extend_many(12)
    (shown,) = site(write_run(tmp_path / "run", chain), rules=lambda _: FakeRules()).chains.values()
    with shown.reading() as reading:
        assert [item.summary.height for item in home(shown, reading, {})["blocks"]] == [*range(12, 2, -1)]


def test_a_long_value_of_the_learning_task_is_told_by_its_size() -> None:
    texts = (("hyperparameters", '[["a", true]]'), ("material", json.dumps("y" * 200)), ("task", json.dumps("x" * 100)))
    shown = learning_of(replace(document(), learning=texts))
    assert shown == [("hyperparameters: a", "yes"), ("material", "202 characters"), ("task", "x" * 100)]
