"""The interface for programs."""

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from fedchain.chain.explorer.explorer import Explorer
from fedchain.chain.explorer.founding import plain_genesis
from fedchain.chain.explorer.plain import numbers_of, plain, plain_proof
from fedchain.chain.storage.sqlite import Store
from fedchain.crypto.address import address
from fedchain.node.founding.task import rules_of
from tests.support.chain.builders import ChainBuilder, genesis
from tests.support.chain.changes import joining, living
from tests.support.chain.explored import FakeRules
from tests.support.web.builders import SCRIPT, document, write_run
from tests.support.web.pages import chain as chain
from tests.support.web.pages import client as client
from tests.support.web.pages import run as run
from tests.support.web.site import HOME, site


def test_the_interface_says_what_the_commands_say(client: TestClient, run: Path, chain: ChainBuilder) -> None:
    rules, tip = rules_of(document()), chain.blocks[chain.tip]
    post, member = tip.transactions[1].hash.hex(), address(chain.genesis.members[3])
    with Store.open(run / "chain", read_only=True) as store:
        explorer = Explorer(store)
        expected = {
            "status": explorer.status(),
            "blocks?limit=3": explorer.blocks(3),
            "block/5": explorer.block("5"),
            f"block/{tip.hash.hex()[:9]}": explorer.block("5"),
            f"tx/{post}": explorer.transaction(post),
            "members": explorer.members(),
            "round/3": explorer.round(3),
            "knowledge": explorer.kept.knowledge(rules),
            "knowledge/2": explorer.kept.knowledge(rules, 2),
        }
        peer, proof = explorer.peer(member), explorer.proof(post)
    numbers = numbers_of(document())
    for path, answer in expected.items():
        assert client.get(f"/api/v1/run/{path}").json() == plain(answer, numbers), path
    found = client.get(f"/api/v1/run/member/{member[-8:]}").json()
    assert (
        [item["round"] for item in found["rounds"]] == [item["height"] for item in found["rounds"]] == [1, 2, 3, 4, 5]
    )
    assert found | {"rounds": []} == plain(peer, numbers), "a folder has measurements, a chain alone has none"
    assert client.get(f"/api/v1/run/proof/{post}").json() == plain_proof(proof)
    assert client.get("/api/v1/run/open").json()["contributors"][2]["member_number"] == 2
    assert client.get("/api/v1/chains").json()[0]["name"] == SCRIPT
    assert client.get("/api/v1/run/genesis").json() == plain_genesis(document())
    assert client.get("/api/v1/run/open").json()["posts_required"] == 3


def test_a_list_of_blocks_ends_where_the_chain_does(client: TestClient) -> None:
    def heights(question: str) -> list[int]:
        return [block["height"] for block in client.get(f"/api/v1/run/blocks{question}").json()]

    assert heights("") == heights("?to=1000000000000") == heights("?limit=1000000") == [5, 4, 3, 2, 1]
    assert heights("?to=3&limit=2") == [3, 2]
    assert heights("?to=7&limit=2") == [5, 4], "counted from the newest that there is"
    assert heights("?limit=0") == heights("?limit=1") == [5]
    assert heights("?to=2") == [2, 1]
    assert heights("?to=0") == []


def asked(folder: Path) -> TestClient:
    return TestClient(site(folder, rules=lambda _: FakeRules()).app, base_url=HOME)


def test_a_list_has_twenty_blocks_unless_others_are_asked_for(tmp_path: Path) -> None:
    chain = ChainBuilder(genesis(4))
    chain.extend_many(23)
    client = asked(write_run(tmp_path / "run", chain))
    lists = [client.get(f"/api/v1/run/blocks{question}").json() for question in ("", "?limit=22", "?limit=none")]
    assert [len(blocks) for blocks in lists] == [20, 22, 20]


def test_light_blocks_are_as_many_as_were_asked_for_or_as_an_answer_has_room_for(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def heights(question: str) -> list[int]:
        return [block["height"] for block in client.get(f"/api/v1/run/light{question}").json()]

    assert heights("") == heights("?limit=1000000") == [1, 2, 3, 4, 5]
    assert heights("?from=2&limit=2") == [2, 3]
    assert heights("?from=6") == []
    monkeypatch.setattr("fedchain.web.interface.LIGHT_BYTES_MAX", 1)
    assert heights("?from=2") == [2], "one that is larger than an answer is an answer"


def test_a_chain_is_listed_with_the_folders_of_its_nodes(tmp_path: Path, chain: ChainBuilder) -> None:
    for number in (0, 1):
        write_run(tmp_path / "net" / f"node-{number}", chain)
    (found,) = asked(tmp_path / "net").get("/api/v1/chains").json()
    assert (found["key"], found["folders"]) == ("net", ["node-0", "node-1"])


def test_lives_are_whole_before_all_blocks_were_read_for_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedchain.web.chains.READ_AT_ONCE", 1)
    chain = living(5)
    chain.extend_many(3)
    chain.extend(changes=[joining(chain, 5)])
    chain.extend()
    client = asked(write_run(tmp_path / "run", chain))
    assert len(client.get("/api/v1/run/lives").json()["lives"]) == 6
    assert len(client.get("/api/v1/run/lives?height=1").json()["lives"]) == 5
