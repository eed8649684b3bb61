"""Content of the pages, the clients that may read them, and the answer where something is missing."""

import base64
import hashlib
import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest
from starlette.testclient import TestClient

from fedchain.chain.exceptions import ChainError, NotFound, StoreError
from fedchain.chain.explorer.explorer import Explorer
from fedchain.chain.explorer.founding import plain_genesis
from fedchain.chain.explorer.plain import numbers_of, plain, plain_proof
from fedchain.chain.storage.sqlite import Store
from fedchain.chain.storage.store import Candidate
from fedchain.chains import Chain
from fedchain.crypto.address import address
from fedchain.node.founding.task import rules_of
from fedchain.web import proof_check
from fedchain.web.chains import open_chains
from fedchain.web.places import find_places, slugs
from fedchain.web.report import write_report
from fedchain.web.serving import listen
from tests.support.chain.builders import ChainBuilder, genesis, keys
from tests.support.chain.explored import FakeRules, write
from tests.support.web.builders import SCRIPT, append, document, learning_chain, lying_block, write_run
from tests.support.web.site import HOME, site

PAGES = (
    *("", "blocks", "block/2", "rounds", "round/2", "members", "member/1", "knowledge", "knowledge/3", "genesis"),
    *("search?q=2", "search?q=nothing", "search"),
)


@pytest.fixture(scope="module")
def chain() -> ChainBuilder:
    return learning_chain(document(), 5)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, chain: ChainBuilder) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "run", chain, (0.5, 0.7, 0.8, 0.85, 0.875))


@pytest.fixture(scope="module")
def client(run: Path) -> Iterator[TestClient]:
    with TestClient(site(run).app, base_url=HOME) as client:
        yield client


def text_of(client: TestClient, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    return str(answer.text)


@pytest.mark.parametrize("page", PAGES)
def test_every_page_answers_escapes_what_came_from_others_and_loads_nothing_from_elsewhere(
    client: TestClient, page: str
) -> None:
    answer = client.get(f"/run/{page}")
    assert answer.status_code == 200
    assert "&lt;script&gt;alert(&#39;name&#39;)&lt;/script&gt;" in answer.text
    assert SCRIPT not in answer.text
    assert re.findall(r"<script[^>]*>", answer.text) == ['<script src="/static/explorer.js" defer>']
    assert " style=" not in answer.text
    assert "<style" not in answer.text
    assert not re.search(r"""(?:src|href|action)="(?:https?:)?//""", answer.text)
    policy = answer.headers["content-security-policy"].split("; ")
    assert policy[:3] == ["default-src 'none'", "script-src 'self'", "style-src 'self'"]
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_the_overview_says_what_status_says(client: TestClient, run: Path, chain: ChainBuilder) -> None:
    shown = text_of(client, "/run/")
    assert chain.tip.hex() in shown
    assert document().chain_id.hex() in shown
    assert "87.5 %" in shown
    assert "The next block" in shown
    assert shown.count("waited for") == 4 + shown.count("not waited for")
    assert "No crime" in shown


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
            "knowledge": explorer.knowledge(rules),
            "knowledge/2": explorer.knowledge(rules, 2),
        }
        peer, proof = explorer.peer(member), explorer.proof(post)
    numbers = numbers_of(document())
    for path, answer in expected.items():
        assert client.get(f"/api/v1/run/{path}").json() == plain(answer, numbers), path
    assert client.get(f"/api/v1/run/member/{member[-8:]}").json() == plain(peer, numbers)
    assert client.get(f"/api/v1/run/proof/{post}").json() == plain_proof(proof)
    assert client.get("/api/v1/run/open").json()["contributors"][2]["member_number"] == 2
    assert client.get("/api/v1/chains").json()[0]["name"] == SCRIPT
    assert client.get("/api/v1/run/genesis").json() == plain_genesis(document())
    assert client.get("/api/v1/run/open").json()["posts_required"] == 3


def test_a_block_shows_where_its_time_went_and_who_was_absent(client: TestClient, chain: ChainBuilder) -> None:
    shown = text_of(client, "/run/block/3")
    assert "train 1.0 s · exchange 4.5 s · mine 4.0 s · vote 0.5 s" in shown
    assert address(chain.genesis.members[3])[-8:] in shown.partition("is not counted")[2]
    assert "Block 2" in shown
    assert "Block 4" in shown


def test_a_round_leads_to_rounds_that_have_a_block(client: TestClient) -> None:
    shown = [text_of(client, f"/run/round/{number}") for number in (1, 3, 5)]
    assert all(">closed<" in page for page in shown)
    links = [re.findall(r'href="/run/round/(\d+)" rel="(\w+)"', page) for page in shown]
    assert links == [[("2", "next")], [("2", "prev"), ("4", "next")], [("4", "prev")]]


def test_a_member_is_found_by_number_address_and_the_end_of_it(client: TestClient, chain: ChainBuilder) -> None:
    name = address(chain.genesis.members[2])
    pages = {text_of(client, f"/run/member/{each}") for each in ("2", name, name[-6:])}
    assert len({re.sub(r"<title>.*?</title>", "", page) for page in pages}) == 1
    assert name in pages.pop()


def test_the_knowledge_page_draws_how_prototypes_moved(client: TestClient) -> None:
    shown = text_of(client, "/run/knowledge")
    assert "that round 5 left behind" in shown
    assert shown.count('<circle class="dot') == 7
    assert "distance to the round before, by class" in shown
    assert '<td class="c10">1.00</td>' in shown


def test_recomputing_a_block_that_tells_the_truth(client: TestClient, chain: ChainBuilder) -> None:
    answer = client.post("/run/block/4/recompute")
    assert answer.status_code == 200
    assert "leave the same knowledge" in answer.text
    root = chain.blocks[chain.tip]
    assert answer.text.count(client.get("/api/v1/run/block/4").json()["header"]["knowledge_root"]) == 3
    assert root.header.height == 5
    assert "leave the same knowledge" in text_of(client, "/run/block/4")
    assert "leave the same knowledge" not in text_of(client, "/run/block/5")


def test_a_false_aggregate_is_red_with_both_hashes(tmp_path: Path) -> None:
    chain = ChainBuilder(genesis(4))
    chain.extend()
    false = lying_block(chain)
    with Store.create(tmp_path / "lie" / "chain", chain.genesis) as store:
        write(store, chain)
    made = next(root for root, data in chain.contents.items() if len(data) == 64 and root != _first_root(chain, false))
    with TestClient(site(tmp_path / "lie", rules=lambda _: FakeRules()).app, base_url=HOME) as client:
        shown = client.post("/lie/block/2/recompute").text
    assert "FALSE" in shown
    assert "card verdict false" in shown
    assert false.header.knowledge_root.hex() in shown
    assert made.hex() in shown


def _first_root(chain: ChainBuilder, block: Any) -> bytes:
    root: bytes = chain.blocks[block.header.parent_hash].header.knowledge_root
    return root


def test_another_site_cannot_have_blocks_recomputed(client: TestClient) -> None:
    refused: tuple[dict[str, str], ...] = (
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "origin": HOME},
        {"origin": "http://evil"},
        {"origin": f"{HOME}:8080"},
        {"origin": f"{HOME}.evil"},
        {"origin": "null"},
    )
    taken: tuple[dict[str, str], ...] = (
        {},
        {"origin": HOME},
        {"sec-fetch-site": "same-origin", "origin": "http://LOCALHOST"},
    )
    for code, given in ((403, refused), (303, taken)):
        for headers in given:
            answer = client.post("/run/block/1/recompute", headers=headers, follow_redirects=False)
            assert answer.status_code == code, headers
    assert client.get("/run/block/1/recompute").status_code == 405


def test_a_proof_can_be_checked_with_nothing_but_python(
    client: TestClient, chain: ChainBuilder, tmp_path: Path
) -> None:
    post = chain.blocks[chain.tip].transactions[2].hash.hex()
    shown = text_of(client, f"/run/proof/{post}")
    assert "the proof holds" in shown
    proof = client.get(f"/run/proof/{post}/proof.json")
    (tmp_path / "proof.json").write_bytes(proof.content)
    (tmp_path / "check.py").write_bytes(client.get("/proof_check.py").content)
    command = [sys.executable, "-I", "check.py", "proof.json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    block = f"block   {chain.tip.hex()}\nheight  5\nround   5\npost    {post}\n"
    assert done.stdout == f"The proof holds.\n{block}"


@pytest.mark.parametrize(
    ("place", "value", "fault"),
    [
        (("merkle", "leaf"), "00" * 32, "the post is not in the tree"),
        (("merkle", "siblings"), [], "the post is not in the tree"),
        (("merkle", "index"), 1, "the post is not in the tree"),
        (("block_hash",), "11" * 32, "not the block's"),
        (("header", "height"), 7, "the header does not say what its bytes say: height."),
        (("header", "round"), 3, "the header does not say what its bytes say: round."),
        (("header", "hash"), "11" * 32, "the header does not say what its bytes say: hash."),
        (("header", "time"), 1, "the header does not say what its bytes say: it has other fields."),
    ],
)
def test_a_proof_in_which_anything_was_changed_fails(
    client: TestClient,
    chain: ChainBuilder,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    place: tuple[str, ...],
    value: Any,
    fault: str,
) -> None:
    post = chain.blocks[chain.tip].transactions[2].hash.hex()
    changed: Any = client.get(f"/run/proof/{post}/proof.json").json()
    at = changed
    for name in place[:-1]:
        at = at[name]
    at[place[-1]] = value
    (tmp_path / "lie.json").write_text(json.dumps(changed))
    assert proof_check.main([str(tmp_path / "lie.json")]) == 1
    said = capsys.readouterr().out
    assert said.startswith("The proof FAILS: ")
    assert fault in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "is no proof of the explorer: Expecting value"),
        ("{}", "is no proof of the explorer: it lacks 'header_bytes'"),
        ("[]", "its values are not those of one"),
        ("[" * 99_999, "its values are not those of one"),
        ('{"header_bytes": "9d"}', "its values are not those of one"),
        ('{"header_bytes": "9dc0"}', "its header has 0xc0 where version begins"),
        ('{"header_bytes": "9d01010101010101010101010101ff"}', "is 15 bytes long, and its 13 fields end at 14"),
        ('{"header_bytes": 5}', "its values are not those of one"),
    ],
)
def test_what_is_no_proof_is_refused_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, fault: str
) -> None:
    path = tmp_path / "proof.json"
    path.write_text(text)
    assert proof_check.main([str(path)]) == 2
    said = capsys.readouterr()
    assert fault in said.err
    assert (said.out, said.err.count("\n")) == ("", 1)


def test_the_proof_checker_wants_one_file_that_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], [str(tmp_path / "nowhere.json")], [str(tmp_path)]):
        assert proof_check.main(arguments) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "proof_check: name one file: python3 proof_check.py PROOF.json"
    assert said[1:] == [
        f"proof_check: {tmp_path / 'nowhere.json'}: No such file or directory",
        f"proof_check: {tmp_path}: Is a directory",
    ]


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


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/run/block/99", 404, "no block at height 99: the chain has heights 1 to 5"),
        ("/run/round/99", 404, "no block of round 99"),
        ("/run/block/%D9%A3", 404, "no block at height ٣"),
        ("/run/round/%D9%A3", 404, "round &#39;٣&#39; is not a number"),
        ("/run/member/%D9%A3", 404, "٣"),
        (f"/run/block/{'1' * 5_000}", 404, "no block has a hash that begins with"),
        ("/run/round/x", 404, "round &#39;x&#39; is not a number"),
        ("/run/member/77", 404, "no peer 77: the peers are 0 to 3"),
        ("/run/member/%3Cscript%3E", 404, "&lt;script&gt;"),
        ("/run/tx/ffffffff", 404, "no transaction has a hash that begins with"),
        ("/run/knowledge/6", 404, "no knowledge of round 6"),
        (f"/run/round/{10**23}", 404, "no round has a number of 24 digits"),
        (f"/run/knowledge/{10**23}", 404, "no round has a number of 24 digits"),
        (f"/run/block/{'9' * 5_000}", 404, "no block has a hash that begins with"),
        (f"/run/member/{'9' * 5_000}", 404, "9999"),
        (f"/api/v1/run/round/{10**23}", 404, "no round has a number of 24 digits"),
        (f"/api/v1/run/round/{10**18 - 1}", 404, f"no block of round {10**18 - 1}"),
        (f"/api/v1/run/round/{'9' * 5_000}", 404, "no round has a number of 5000 digits"),
        (f"/api/v1/run/knowledge/{10**23}", 404, "no round has a number of 24 digits"),
        (f"/api/v1/run/block/{10**23}", 404, "no block has a hash that begins with"),
        ("/api/v1/run/round/-1", 404, "round '-1' is not a number"),
        ("/nowhere/", 404, "there is no such page"),
        ("/api/v1/run/block/99", 404, "no block at height 99"),
        ("/api/v1/nowhere/status", 404, "there is no such page"),
    ],
)
def test_what_is_not_there_is_said_in_a_line(client: TestClient, path: str, status: int, text: str) -> None:
    answer = client.get(path)
    assert answer.status_code == status
    assert text in answer.text
    assert "Traceback" not in answer.text
    assert "content-security-policy" in answer.headers


@pytest.mark.parametrize("path", ["/run/blocks", "/run/rounds", "/api/v1/run/blocks"])
@pytest.mark.parametrize("name", ["to", "limit"])
def test_a_number_behind_the_question_mark_may_be_larger_than_any(client: TestClient, path: str, name: str) -> None:
    expected = client.get(path).text
    for number in (10**18 - 1, 10**23, "9" * 5_000):
        assert client.get(path, params={name: number}).text == expected


@pytest.mark.parametrize(
    ("host", "is_ours"),
    [
        *(("localhost", True), ("localhost:8420", True), ("127.0.0.1:8420", True), ("[::1]:8420", True)),
        *(("evil.example", False), ("localhost.evil.example", False), ("explorer.lan:8420", True), ("", False)),
    ],
)
def test_who_asks_under_another_name_gets_nothing(run: Path, host: str, is_ours: bool) -> None:
    client = TestClient(site(run, hosts=("explorer.lan",)).app, base_url=HOME)
    answer = client.get("/api/v1/chains", headers={"host": host})
    assert (answer.status_code == 200) is is_ours
    assert (document().chain_id.hex() in answer.text) is is_ours


def test_a_new_block_is_on_the_page_and_changes_its_tag(tmp_path: Path) -> None:
    chain = ChainBuilder(genesis(4))
    chain.extend_many(2)
    with Store.create(tmp_path / "run" / "chain", chain.genesis) as store:
        write(store, chain)
    shown = site(tmp_path / "run", rules=lambda _: FakeRules())
    found = shown.chains["run"]
    client = TestClient(shown.app, base_url=HOME)
    first = client.get("/run/")
    again = client.get("/run/", headers={"if-none-match": first.headers["etag"]})
    assert again.status_code == 304
    version = shown.live.version(found)
    append(tmp_path / "run", chain, chain.extend())
    assert found.look() != version
    shown.live.note(found.key, found.look())
    after = client.get("/run/", headers={"if-none-match": first.headers["etag"]})
    assert after.status_code == 200
    assert "height 3" in after.text
    assert client.get("/run/block/3").status_code == 200


def test_a_chain_without_blocks_has_pages(tmp_path: Path) -> None:
    Store.create(tmp_path / "new" / "chain", document()).close()
    client = TestClient(site(tmp_path / "new").app, base_url=HOME)
    for page in ("", "blocks", "rounds", "members", "member/0", "genesis", "search?q=1"):
        assert client.get(f"/new/{page}").status_code == 200, page
    assert "no knowledge of round 1" in client.get("/new/knowledge").text
    assert client.get("/new/block/1").status_code == 404


def test_a_store_that_disappears_or_is_damaged_is_said_so_and_comes_back(tmp_path: Path, chain: ChainBuilder) -> None:
    folder = write_run(tmp_path / "run", chain)
    client = TestClient(site(folder).app, base_url=HOME)
    assert client.get("/run/blocks").status_code == 200
    kept = tmp_path / "kept"
    folder.rename(kept)
    for path in ("/run/block/1", "/api/v1/run/status", "/run/members?again"):
        gone = client.get(path)
        assert gone.status_code == 404
        assert f"{folder} is gone, or holds no chain any more" in gone.text
    kept.rename(folder)
    assert client.get("/run/block/1?again").status_code == 200
    (folder / "chain" / "chain.sqlite").unlink()
    (folder / "chain" / "chain.sqlite").write_bytes(b"no database" * 500)
    damaged = client.get("/run/block/2?again")
    assert damaged.status_code == 503
    assert "file is not a database" in damaged.text
    rmtree(folder)


def test_a_page_that_fails_says_so_and_shows_no_traceback(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = TestClient(site(run).app, base_url=HOME, raise_server_exceptions=False)

    def fail(self: Explorer, number: int) -> None:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr(Explorer, "round", fail)
    answer = client.get("/run/round/2")
    assert answer.status_code == 500
    assert "a defect of this program: ZeroDivisionError" in answer.text
    assert "a secret" not in answer.text
    assert "content-security-policy" in answer.headers


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


def test_a_folder_of_runs_and_a_test_network_are_found(tmp_path: Path, chain: ChainBuilder) -> None:
    for name in ("runs/one", "runs/two", "net/node-0", "net/node-1", "net/node-10"):
        write_run(tmp_path / name, chain)
    places = find_places([tmp_path / "runs", tmp_path / "net"])
    assert [(place.label, place.group) for place in places] == [
        *(("one", "one"), ("two", "two")),
        *(("node-0", "net"), ("node-1", "net"), ("node-10", "net")),
    ]
    chains = open_chains(places, rules_of)
    assert [(found.key, len(found.holders)) for found in chains] == [("one", 1), ("two", 1), ("net", 3)]
    shown = TestClient(site(tmp_path / "net").app, base_url=HOME).get("/net/").text
    assert "All 3 folders stand at height 5." in shown


@pytest.mark.parametrize("given", [("e", "e/chain"), ("e/chain", "e"), ("other/e", "e/chain", "e"), ("all", "e")])
def test_a_store_that_is_given_twice_is_shown_once_with_what_lies_beside_it(
    tmp_path: Path, chain: ChainBuilder, given: tuple[str, ...]
) -> None:
    write_run(tmp_path / "e", chain)
    for name in ("other", "all"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "e").symlink_to(tmp_path / "e")
    (place,) = find_places([tmp_path / name for name in given])
    assert place.folder.resolve() == tmp_path / "e"


def test_folders_of_one_name_are_told_apart_by_the_path_to_them(tmp_path: Path, chain: ChainBuilder) -> None:
    accuracies = {"b/data": 0.1, "c/data": 0.2, "d/c/data": 0.3, "e/data": 0.4}
    b, c, d, e = (write_run(tmp_path / name, chain, (0.0, accuracy)) for name, accuracy in accuracies.items())
    shown = site(b, c, d, e / "chain")
    titles = [found.title for found in shown.chains.values()]
    assert titles == ["b/data", f"{tmp_path.name}/c/data", "d/c/data", "e/data"]
    assert list(shown.chains) == slugs(titles)
    client = TestClient(shown.app, base_url=HOME)
    front, compared = client.get("/").text, client.get("/compare").text
    for key, title in zip(shown.chains, titles, strict=True):
        assert f'<a href="/{key}/">{title}</a>' in front
    for title, accuracy in zip(titles[:3], ("10.0", "20.0", "30.0"), strict=True):
        assert f"{title} <b>{accuracy} %</b>" in compared


def test_what_a_stopped_network_measured_is_in_its_logs(tmp_path: Path, chain: ChainBuilder) -> None:
    for number in range(2):
        folder = write_run(tmp_path / "net" / f"node-{number}", chain)
        (folder / "metrics.jsonl").unlink()
        lines = [
            f"… INFO fedchain.node trained round={k} steps=20 accuracy=0.{number + 6}{k} seconds=0.1" for k in (1, 2)
        ]
        (folder / "node.log").write_text("\n".join(lines))
        with Store.open(folder / "chain") as store:
            store.append([chain.blocks[chain.tip].transactions[number]])
    owners = [address(post.sender) for post in chain.blocks[chain.tip].transactions[:2]]
    client = TestClient(site(tmp_path / "net").app, base_url=HOME)
    assert [node["member"] for node in client.get("/api/v1/net/open").json()["nodes"]] == owners
    assert "72.0 %" in client.get(f"/net/member/{owners[1]}").text
    assert "67.0 %" in client.get("/compare").text
    shown = client.get("/net/").text
    assert "accuracy on each node&#39;s own test set" in shown
    assert "62.0 %" in shown


def test_measurements_that_are_damaged_are_left_out(tmp_path: Path, chain: ChainBuilder) -> None:
    folder = write_run(tmp_path / "run", chain, (0.5,))
    rows = ["nonsense", "[]", '{"round": "x"}', '{"round": 2, "taa": null}', '{"round": 3, "taa": NaN}', "[" * 9_999]
    with (folder / "metrics.jsonl").open("a") as file:
        file.write("\n".join(rows))
    shown = TestClient(site(folder).app, base_url=HOME).get("/run/rounds")
    assert shown.status_code == 200
    assert "50.0 %" in shown.text


def test_what_is_no_chain_is_refused_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="nowhere is not a folder"):
        find_places([tmp_path / "nowhere"])
    with pytest.raises(NotFound, match=r"holds no chain: there is no chain\.sqlite in it"):
        find_places([tmp_path])
    (tmp_path / "chain.sqlite").write_bytes(b"x" * 5000)
    with pytest.raises(ChainError, match="not a database"):
        open_chains(find_places([tmp_path]), rules_of)


def test_a_report_is_one_file_that_loads_and_runs_nothing(run: Path, chain: ChainBuilder, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_report([run], rules_of, path)
    text = path.read_text()
    style = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    assert len(style) == 1
    digest = base64.b64encode(hashlib.sha256(style[0].encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'sha256-{digest}'" in text
    assert "<script" not in text
    assert SCRIPT not in text
    assert not re.search(r"""(?:src|href|action)="(?!#)""", text)
    places = set(re.findall(r'href="#([^"]+)"', text))
    assert places <= set(re.findall(r' id="([^"]+)"', text))
    assert {"block-5", "member-3"} <= places
    assert chain.tip.hex() in text
    assert "Class prototypes" in text
    with pytest.raises(StoreError, match="exists already; nothing is overwritten"):
        write_report([run], rules_of, path)


def test_names_in_addresses_are_short_and_differ() -> None:
    assert slugs(["Run 1", "run-1", "../x", "…", "api"]) == ["run-1", "run-1-2", "x", "chain", "api-chain"]


def test_a_port_that_is_taken_and_a_host_that_is_none_are_said_in_a_line() -> None:
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(StoreError, match=f"port {port} of 127.0.0.1: address already in use; name another"):
            listen("127.0.0.1", port)
    with pytest.raises(StoreError, match="is not an address of this machine"):
        listen("no such host", 0)


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


def test_a_post_that_was_altered_is_named_and_damage_that_a_page_met_is_on_the_overview(
    tmp_path: Path, chain: ChainBuilder
) -> None:
    folder = write_run(tmp_path / "run", chain)
    post = chain.blocks[chain.tip].transactions[0]
    with sqlite3.connect(folder / "chain" / "chain.sqlite") as connection:
        connection.execute("UPDATE contents SET data = zeroblob(size) WHERE hash = ?", (post.payload_hash,))
    connection.close()
    shown = site(folder)
    client = TestClient(shown.app, base_url=HOME)
    page = client.post("/run/block/5/recompute").text
    verdict = page.partition('id="recompute"')[2].partition("</section>")[0]
    assert post.payload_hash.hex() in verdict
    assert verdict.count("was altered") == 1
    home = client.get("/run/").text
    assert "not checked here: run <code>fedchain explorer verify</code>" in home
    assert "A page met damage" not in home
    version = shown.chains["run"].look()
    (folder / "chain" / "chain.sqlite").write_bytes(b"no database" * 500)
    assert client.get("/run/block/2?again").status_code == 503
    assert shown.chains["run"].look() != version
    assert any("not a database" in text or "malformed" in text for text in shown.chains["run"].troubles)


def test_who_has_not_posted_has_a_reason_and_a_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = learning_chain(document(phase_timeout_ms=12_000), 4)  # the last member missed round 3
    members = [address(member) for member in chain.genesis.members]
    posts = {address(post.sender): post for block in chain.blocks.values() for post in block.transactions}
    for number, member in enumerate(members):
        folder = write_run(tmp_path / "net" / f"node-{number}", chain)
        with Store.open(folder / "chain") as store:
            store.append([posts[member]])
        if number < 2:
            (folder / "status.sock").touch()

    def told(folder: Path) -> dict[str, Any]:
        number = int(folder.name[-1])
        return {"height": 4, "address": members[number], "training": number == 1, "open": {"posts": {members[0]: 32}}}

    monkeypatch.setattr("fedchain.web.chains.ask_status", told)
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
    monkeypatch.setattr("fedchain.web.chains.ask_status", lambda folder: None)
    shown.chains["net"].ask()
    found = client.get("/api/v1/net/open").json()
    assert [item["why"] for item in found["contributors"]] == ["", "", "", "missed round 3, on time 1 of 2 times since"]


def test_what_running_nodes_tell_is_put_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = ChainBuilder(genesis(4))
    chain.extend_many(2)
    for number in range(2):
        with Store.create(tmp_path / "net" / f"node-{number}" / "chain", chain.genesis) as store:
            write(store, chain)
        (tmp_path / "net" / f"node-{number}" / "status.sock").touch()
    members = [address(member) for member in chain.genesis.members]
    said, made = "ab" * 32, "cd" * 32

    def told(folder: Path) -> dict[str, Any]:
        number = int(folder.name[-1])
        entry = {"hash": said, "miner": members[1], "posts": 3, "knowledge_root": said, "checked": True}
        votes = {"prevote": {members[number]: said, members[3]: "00" * 32}, "precommit": {}}
        return {
            "height": 2,
            "attempt": 1,
            "address": members[number],
            "peers": [members[1 - number]],
            "accuracy": 0.75,
            "training": number == 1,
            "waiting_for": "2 posts",
            "open": {
                "posts": {members[number]: 32},
                "candidates": [entry | {"recomputed": (said, made)[number]}],
                "votes": votes,
            },
        }

    monkeypatch.setattr("fedchain.web.chains.ask_status", told)
    client = TestClient(site(tmp_path / "net", rules=lambda _: FakeRules()).app, base_url=HOME)
    found = client.get("/api/v1/net/open").json()
    assert [item["posted"] for item in found["contributors"]] == [True, True, False, False]
    (candidate,) = found["candidates"]
    assert (candidate["checked_by"], candidate["refuted_by"]) == (1, 1)
    assert candidate["prevotes"] == sorted(members[:2])
    assert (found["attempt"], found["nil_votes"]) == (1, 1)
    assert [(node["activity"], node["waiting_for"]) for node in found["nodes"]] == [
        ("waiting", "2 posts"),
        ("training", "2 posts"),
    ]
    shown = client.get("/net/").text
    assert "1 computed another" in shown
    assert "2 of 2 nodes running" in shown
    assert "75.0 %" in shown
