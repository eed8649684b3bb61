"""The interface for programs."""

from pathlib import Path

from starlette.testclient import TestClient

from fedchain.chain.explorer.explorer import Explorer
from fedchain.chain.explorer.founding import plain_genesis
from fedchain.chain.explorer.plain import numbers_of, plain, plain_proof
from fedchain.chain.storage.sqlite import Store
from fedchain.crypto.address import address
from fedchain.node.founding.task import rules_of
from tests.support.chain.builders import ChainBuilder
from tests.support.web.builders import SCRIPT, document
from tests.support.web.pages import chain as chain
from tests.support.web.pages import client as client
from tests.support.web.pages import run as run


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
