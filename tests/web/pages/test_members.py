"""Pages of members."""

import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from fedchain.chain.membership.amendment import amendment_of
from fedchain.chain.membership.change import propose_amendment
from fedchain.chain.storage.sqlite import Store
from fedchain.crypto.address import address
from fedchain.files.layout import TIMELINE_FILE
from fedchain.node.shell.timeline import SeenBlock, TimelineFile, TrainingResult
from tests.support.chain.builders import ChainBuilder, keys
from tests.support.chain.changes import UNTIL, approved, joining, living, own, twice_rekeyed
from tests.support.chain.explored import FakeRules, write
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


@pytest.mark.parametrize(("founded", "amended", "says_so"), [(3, 0, True), (0, 0, False), (0, 3, True)])
def test_a_vote_may_be_missing_since_its_member_was_not_drawn_at_a_height_that_is_shown(
    tmp_path: Path, founded: int, amended: int, says_so: bool
) -> None:
    chain = living(5, committee_size=founded)
    values = {"committee_size": amended} if amended != founded else {"rounds": 9}
    amendment = propose_amendment(amendment_of(values), "", sequence=0, until=UNTIL)
    chain.extend(changes=[approved(chain, amendment)])
    chain.extend_many(3)
    folder = write_run(tmp_path / "run", chain)
    shown = TestClient(site(folder, rules=lambda _: FakeRules()).app, base_url=HOME).get("/run/member/0").text
    assert ("nor is one of a member that was not drawn to vote" in shown) is says_so


def test_members_that_change_have_places_at_each_height_and_pages_of_their_own(tmp_path: Path) -> None:
    chain = living(5)
    chain.extend(changes=[joining(chain, 5, text="<b>new</b>"), own(chain, 1)])
    chain.extend_many(4)
    with Store.create(tmp_path / "run" / "chain", chain.genesis) as store:
        write(store, chain)
    with TestClient(site(tmp_path / "run", rules=lambda document: FakeRules()).app, base_url=HOME) as client:
        newcomer = address(keys(6)[5].public_key)
        now, before = (text_of(client, f"/run/members{asked}") for asked in ("", "?height=2"))
        assert "Places at height 6" in now
        assert "left</span> since round 3" in now
        assert "active from round 3 on" in before
        assert now.count('<span class="tag">left</span>') == 2
        assert "not waited for" not in now
        lanes = now.partition('id="lives"')[2].partition('id="places"')[0]
        assert 'aria-label="peer 1: counts in rounds 1 to 2; left since round 3"' in lanes
        assert 'aria-label="peer 5: comes, and does not count yet in round 2; counts since round 3"' in lanes
        assert 'aria-label="peer 1: counts since round 1"' in before
        assert "up to height 2" in before
        assert "5,12D3" in client.get("/run/members?height=2&file=lives.csv").text
        assert newcomer in text_of(client, "/run/member/5")
        shown = client.get("/run/block/1").text
        assert "Changes of the members" in shown
        assert "&lt;b&gt;new&lt;/b&gt;" in shown
        assert 'href="/run/member/5"' in shown
        assert client.get("/run/members?height=99").status_code == 404
        assert "5" in text_of(client, "/run/participation")
        found = client.get("/api/v1/run/places?height=2").json()
        assert [item["following"] for item in found] == ["", "left", "", "", "", "active"]
        assert [item["number"] for item in found] == [*range(6)]
        assert client.get("/api/v1/run/block/1").json()["changes"][0]["member_number"] in (1, 5)
        assert client.get("/api/v1/run/places?height=99").status_code == 404
        spans = [item["spans"] for item in client.get("/api/v1/run/lives?height=5").json()["lives"]]
        assert [item["standing"] for item in spans[1]] == ["active", "left"]
        assert client.get("/api/v1/run/lives?height=99").status_code == 404
        assert client.get("/api/v1/run/requests").json() == []


def test_the_places_of_a_finished_chain_are_those_after_its_last_block(tmp_path: Path) -> None:
    """No block ever has the height above."""
    chain = living(5, rounds=2)
    chain.extend(changes=[own(chain, 1)])
    chain.extend()
    with Store.create(tmp_path / "run" / "chain", chain.genesis) as store:
        write(store, chain)
    with TestClient(site(tmp_path / "run", rules=lambda document: FakeRules()).app, base_url=HOME) as client:
        now, before = (text_of(client, f"/run/members{asked}") for asked in ("", "?height=2"))
        assert "Places after height 2" in now
        assert "Height 3" not in now + before
        assert "Places at height 2" in before
        assert 'rel="next">After height 2</a>' in before


def test_a_member_is_found_by_each_key_that_it_had_and_is_no_stranger_in_old_blocks(tmp_path: Path) -> None:
    chain = twice_rekeyed()
    with Store.create(tmp_path / "run" / "chain", chain.genesis) as store:
        write(store, chain)
    with TestClient(site(tmp_path / "run", rules=lambda document: FakeRules()).app, base_url=HOME) as client:
        for height, number in ((1, 2), (3, 9), (6, 10)):
            name = address(keys(11)[number].public_key)
            assert f'href="/run/member/2" title="{name}"><b>2</b>' in text_of(client, f"/run/block/{height}")
            sent = client.get(f"/api/v1/run/block/{height}").json()["transactions"]
            assert {item["sender_number"] for item in sent if item["sender"] == name} == {2}
            for asked in (f"member/{name}", f"search?q={name}", f"member/{name[-8:]}"):
                assert '<h1 id="member-title">Peer 2</h1>' in text_of(client, f"/run/{asked}")
            assert client.get(f"/api/v1/run/member/{name}").json()["number"] == 2


@pytest.mark.parametrize("heights", [(1,), (3, 6)])
def test_a_node_s_measurements_are_its_member_s_whichever_key_it_posts_with(
    tmp_path: Path, heights: tuple[int, ...]
) -> None:
    chain, folder = twice_rekeyed(), tmp_path / "run"
    had = {key.public_key for key in (keys(11)[2], *keys(11)[9:])}
    posts = {block.header.height: [*block.transactions] for block in chain.blocks.values()}
    with Store.create(folder / "chain", chain.genesis) as store:
        write(store, chain)
        store.append([post for height in heights for post in posts[height] if post.sender in had])
    TimelineFile(folder / TIMELINE_FILE).add(SeenBlock(1, "ab", 100, 200, (), TrainingResult(1, 0.625, None)))
    with TestClient(site(folder, rules=lambda document: FakeRules()).app, base_url=HOME) as client:
        assert "62.5 %" in text_of(client, "/run/member/2")
        reasons = {item["member_number"]: item["why"] for item in client.get("/api/v1/run/open").json()["contributors"]}
        assert {*reasons.values()} == {""}, "no node runs"
        (node,) = client.get("/api/v1/run/open").json()["nodes"]
        assert (node["member"], node["member_number"]) == (address(keys(11)[10].public_key), 2)


def test_members_that_never_change_have_no_list_of_places(client: TestClient) -> None:
    assert "Places at height" not in text_of(client, "/run/members")
    assert client.get("/api/v1/run/places").json() == []
    assert client.get("/api/v1/run/lives").json()["lives"] == []
    assert 'id="lives"' not in text_of(client, "/run/members")
