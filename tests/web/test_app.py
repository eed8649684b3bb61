"""Strange names, numbers, hosts and other sites are refused, and a page that fails says so."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from fedchain.chain.explorer.explorer import Explorer
from fedchain.chain.explorer.views import Recomputation
from fedchain.web.chains import Chain
from fedchain.web.pages import blocks
from tests.support.node.shell import wait_until
from tests.support.web.builders import document
from tests.support.web.pages import chain as chain
from tests.support.web.pages import client as client
from tests.support.web.pages import run as run
from tests.support.web.site import HOME, site


def test_no_page_waits_for_its_template(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jinja2.PackageLoader.get_source", None)
    for path in ("", "blocks", "block/1", "members", "member/1", "participation", "rounds", "round/1", "genesis"):
        assert client.get(f"/run/{path}").status_code == 200


def test_pages_are_kept_up_to_a_number_of_bytes(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = site(run)
    client = TestClient(shown.app, base_url=HOME)
    size = len(client.get("/run/genesis").content)
    monkeypatch.setattr("fedchain.web.app.KEPT_BYTES_MAX", 3 * size + 20)
    for number in (*range(9), 8):
        client.get(f"/run/genesis?{number}")
    assert [place[-1] for place in shown._kept] == ["6", "7", "8"]
    monkeypatch.setattr("fedchain.web.app.KEPT_BYTES_MAX", size // 2)
    assert client.get("/run/genesis?more").status_code == 200
    assert not shown._kept


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
    answer = client.get("/run/block/1/recompute")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert {*client.post("/api/v1/run/status").headers["allow"].split(", ")} == {"GET", "HEAD"}


def test_a_question_for_the_headers_of_what_never_ends_is_answered_at_once(client: TestClient) -> None:
    """It held its connection open, and one of the places of browsers that are told of changes."""
    answer = client.head("/run/events")
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"


def test_a_crowd_that_has_blocks_recomputed_keeps_no_page_waiting(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, goes_on, recompute, crowd = threading.Semaphore(0), threading.Event(), blocks.recompute, 44

    def wait(chain: Chain, height: int) -> Recomputation:
        begun.release()
        assert goes_on.wait(60)
        return recompute(chain, height)

    monkeypatch.setattr(blocks, "recompute", wait)
    shown = site(run)
    with TestClient(shown.app, base_url=HOME) as client, ThreadPoolExecutor(crowd + 1) as others:
        ask = partial(client.post, "/run/block/1/recompute", follow_redirects=False)
        answers = [others.submit(ask) for _ in range(crowd)]
        try:
            assert begun.acquire(timeout=60)
            wait_until(lambda: shown._recomputing.statistics().tasks_waiting == crowd - 1, "the crowd")
            assert others.submit(client.get, "/run/genesis?a=crowd").result(60).status_code == 200
        finally:
            goes_on.set()
        assert {answer.result().status_code for answer in answers} == {303}


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
    def shown(**question: int | str) -> list[str] | str:
        text: str = client.get(path, params=question).text
        return re.findall(r"<t[hd].*", text) or text  # forms and links of charts repeat the number

    for number in (10**18 - 1, 10**23, "9" * 5_000):
        assert shown(**{name: number}) == shown()


@pytest.mark.parametrize(
    ("host", "is_ours"),
    [
        *(("localhost", True), ("localhost:8420", True), ("127.0.0.1:8420", True), ("[::1]:8420", True)),
        *(("evil.example", False), ("localhost.evil.example", False), ("explorer.lan:8420", True), ("", False)),
        *(("fed.example.org", True), ("Fed.Example.org.", True), ("example.org:8420", False)),
    ],
)
def test_who_asks_under_another_name_gets_nothing(run: Path, host: str, is_ours: bool) -> None:
    client = TestClient(site(run, hosts=("explorer.lan", "Fed.Example.org:8420")).app, base_url=HOME)
    answer = client.get("/api/v1/chains", headers={"host": host})
    assert (answer.status_code == 200) is is_ours
    assert (document().chain_id.hex() in answer.text) is is_ours


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
