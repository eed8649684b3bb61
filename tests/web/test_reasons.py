"""Why a member has not posted."""

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from fedchain.chain.storage.sqlite import Store
from fedchain.crypto.address import address
from fedchain.web.reasons import reasons
from tests.support.chain.builders import ChainBuilder, genesis
from tests.support.chain.explored import FakeRules
from tests.support.web.builders import document, learning_chain, write_run
from tests.support.web.pages import chain as chain
from tests.support.web.pages import client as client
from tests.support.web.pages import run as run
from tests.support.web.site import HOME, site


def test_who_has_not_posted_has_a_reason_and_a_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = learning_chain(document(phase_timeout_ms=12_000), 4)  # the last member missed round 3
    members = [address(member) for member in chain.genesis.members]
    posts = {address(post.sender): post for block in chain.blocks.values() for post in block.transactions}
    for number, member in enumerate(members):
        folder = write_run(tmp_path / "net" / f"node-{number}", chain)
        with Store.open(folder / "chain") as store:
            store.append([posts[member]])

    def told(folder: Path) -> tuple[dict[str, Any] | None, str]:
        number = int(folder.name[-1])
        if number >= 2:
            return None, ""
        posts = {"posts": {members[0]: 32}}
        return {"height": 4, "address": members[number], "training": number == 1, "open": posts}, ""

    monkeypatch.setattr("fedchain.web.chains.look_for_node", told)
    shown = site(tmp_path / "net")
    client = TestClient(shown.app, base_url=HOME)
    found = client.get("/api/v1/net/open").json()
    assert [(item["posted"], item["expected"], item["why"]) for item in found["contributors"]] == [
        (True, True, ""),
        (False, True, "its node trains"),
        (False, True, "its node is stopped"),
        (False, False, "missed round 3, on time 1 of 2 times since, its node is stopped"),
    ]
    assert found["deadline_ms"] == 12_000
    page = client.get("/net/").text
    assert "waited for: its node is stopped" in page
    assert "not waited for: missed round 3" in page
    assert "Missing posts have 12.0 s from block 4 on" in page
    idle = {"height": 4, "training": False, "address": members[1]}
    monkeypatch.setattr(
        "fedchain.web.chains.look_for_node", lambda folder: (idle if folder.name[-1] == "1" else None, "")
    )
    shown.chains["net"].ask()
    found = client.get("/api/v1/net/open").json()
    assert found["contributors"][1]["why"] == "", "it may wait for a file, or have nothing to post: nobody knows"
    monkeypatch.setattr("fedchain.web.chains.look_for_node", lambda folder: (None, ""))
    shown.chains["net"].ask()
    found = client.get("/api/v1/net/open").json()
    assert [item["why"] for item in found["contributors"]] == ["", "", "", "missed round 3, on time 1 of 2 times since"]
    monkeypatch.setattr(
        "fedchain.web.chains.look_for_node", lambda folder: (None, "it hangs" * (folder.name[-1] == "1"))
    )
    shown.chains["net"].ask()
    found = client.get("/api/v1/net/open").json()
    said = [item["why"].rpartition("its node ")[2] for item in found["contributors"]]
    assert said == ["is stopped", "gives no answer", "is stopped", "is stopped"]


def test_what_a_member_missed_last_is_told_also_if_it_is_the_head(tmp_path: Path) -> None:
    chain = ChainBuilder(genesis(5))
    chain.extend()
    for _ in range(2):
        chain.extend(posts=chain.posts(members=chain.genesis.members[:4]))
    member = chain.genesis.members[4]
    (shown,) = site(write_run(tmp_path / "run", chain), rules=lambda _: FakeRules()).chains.values()
    with shown.reading() as reading:
        assert reasons(shown, reading, [member], ()) == {member: "missed round 3"}
