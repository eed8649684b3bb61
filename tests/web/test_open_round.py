"""The open round: candidates, and what running nodes tell."""

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from fedchain.chain.storage.sqlite import Store
from fedchain.chain.storage.store import Candidate
from fedchain.crypto.address import address
from tests.support.chain.builders import ChainBuilder, genesis, keys
from tests.support.chain.explored import FakeRules, write
from tests.support.web.pages import chain as chain
from tests.support.web.pages import client as client
from tests.support.web.pages import run as run
from tests.support.web.site import HOME, site


def test_an_open_candidate_and_its_projected_aggregate_are_shown(tmp_path: Path) -> None:
    chain = ChainBuilder(genesis(4))
    chain.extend_many(2)
    with Store.create(tmp_path / "run" / "chain", chain.genesis) as store:
        write(store, chain)
        candidate = chain.extend(miner=keys(4)[2])
        store.append([Candidate(candidate, True)])
    client = TestClient(site(tmp_path / "run", rules=lambda _: FakeRules()).app, base_url=HOME)
    shown = client.get("/run/").text
    assert candidate.header.knowledge_root.hex() in shown
    assert "projected aggregate" in shown
    assert shown.count("posted 32 B") == 4
    assert "open candidate" in client.get(f"/run/block/{candidate.hash.hex()}").text
    found = client.get("/api/v1/run/open").json()
    assert [item["hash"] for item in found["candidates"]] == [candidate.hash.hex()]


def test_what_running_nodes_tell_is_put_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the third one counts: it is a height behind, and tells of another block."""
    chain = ChainBuilder(genesis(4))
    chain.extend_many(2)
    for number in range(3):
        with Store.create(tmp_path / "net" / f"node-{number}" / "chain", chain.genesis) as store:
            write(store, chain)
    members = [address(member) for member in chain.genesis.members]
    said, made = "ab" * 32, "cd" * 32

    def told(folder: Path) -> tuple[dict[str, Any], str]:
        number = int(folder.name[-1])
        entry = {"hash": said, "miner": members[1], "posts": 3, "knowledge_root": said, "checked": True}
        votes = {"prevote": {members[number]: said, members[3]: "00" * 32}, "precommit": {}}
        status = {
            "height": 1 if number == 2 else 2,
            "attempt": (1, 2, 7)[number],
            "address": members[number],
            "peers": [members[1 - number]],
            "accuracy": 0.75,
            "training": number == 1,
            "waiting_for": "2 posts",
            "open": {
                "posts": {members[number]: 32},
                "candidates": [entry | {"recomputed": (said, made, said)[number]}],
                "votes": votes,
            },
        }
        return status, ""

    monkeypatch.setattr("fedchain.web.chains.look_for_node", told)
    client = TestClient(site(tmp_path / "net", rules=lambda _: FakeRules()).app, base_url=HOME)
    found = client.get("/api/v1/net/open").json()
    assert [item["posted"] for item in found["contributors"]] == [True, True, False, False]
    (candidate,) = found["candidates"]
    assert (candidate["checked_by"], candidate["refuted_by"]) == (1, 1)
    assert candidate["prevotes"] == sorted(members[:2])
    assert (found["attempt"], found["nil_votes"]) == (2, 1), "the newest attempt of any"
    assert [(node["activity"], node["waiting_for"]) for node in found["nodes"]] == [
        ("waiting", "2 posts"),
        ("training", "2 posts"),
        ("waiting", "2 posts"),
    ]
    shown = client.get("/net/").text
    assert "1 computed another" in shown
    assert "3 of 3 nodes running" in shown
    assert "75.0 %" in shown
