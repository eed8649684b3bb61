"""Members and rounds as a table of cells."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedchain.chain.explorer.member_views import RoundPart
from fedchain.chain.genesis import Admission, AggregatorRule
from fedchain.chain.membership.amendment import amendment_of
from fedchain.chain.membership.change import propose_amendment
from fedchain.chain.post import Post
from fedchain.chain.storage.sqlite import Store
from fedchain.cli.explorer import explorer
from fedchain.files.layout import MEMBERS_FILE, SCENARIO_FILE, TIMELINE_FILE
from fedchain.files.members import MemberAccuracy, members_text, read_members
from fedchain.node.shell.timeline import NothingPosted, SeenBlock, SeenPost, TimelineFile
from fedchain.web.formats import Names
from fedchain.web.observed.participation import SIGNS, grid
from tests.support.chain.builders import GLOBAL, UPDATE, ChainBuilder, double_post, genesis, keys
from tests.support.chain.changes import UNTIL, approved, handing, joining, living, own
from tests.support.chain.explored import write
from tests.support.simulator.trivial import troubled_scenario
from tests.support.web.played import play
from tests.support.web.sightings import candidate, client


def state_of(cell: str) -> tuple[str, str, str, str]:
    """Class, link, name and title of a cell."""
    found = re.fullmatch(r'<td class="(\w+)"><a href="([^"]+)" aria-label="(\w+)" title="([^"]+)">.</a></td>', cell)
    assert found is not None, cell
    return found[1], found[2], found[3], found[4]


def table(page: str) -> list[list[str]]:
    """The cells of each member, the newest round first."""
    rows = page.partition('<table class="cells')[2].partition("</table>")[0].split("<tr>")[2:]
    return [re.findall(r"<td class=.*?</td>", row) for row in rows]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run of five members: posts of the first alone came to every block; at height 3, member 4 is convicted."""
    chain = ChainBuilder(genesis(5))
    crime = double_post(keys(5)[4], chain.genesis, 3)
    blocks = [chain.extend(posts=some(chain, 4)) for _ in range(2)]
    blocks.append(chain.extend(posts=some(chain, 4), evidence=[crime]))
    blocks.append(chain.extend(posts=some(chain, 3)))
    path = tmp_path / "run"
    with Store.create(path / "chain", chain.genesis) as store:
        write(store, chain)
    (path / SCENARIO_FILE).write_text("")
    uncounted: dict[int, Sequence[SeenPost]] = {
        1: [SeenPost(4, 900)],
        2: [SeenPost(4, 1_600)],
        3: [SeenPost(4, 900, "payload: <b>3 bytes</b>")],
    }
    for block in blocks:
        line = SeenBlock(
            block.header.height,
            block.hash.hex(),
            None,
            2_000,
            (candidate(block, 1_500),),
            posts=tuple(uncounted.get(block.header.height, ())),
        )
        TimelineFile(path / TIMELINE_FILE).add(line)
    (path / MEMBERS_FILE).write_text(members_text([MemberAccuracy(4, 3, 0.5), MemberAccuracy(1, 0, 0.876)]))
    return path


def some(chain: ChainBuilder, count: int) -> list[Post]:
    """Posts of the first members."""
    return [post for post in chain.posts(chain.tip) if post.sender in {key.public_key for key in keys(5)[:count]}]


def test_a_member_s_page_has_its_line_of_the_table(folder: Path) -> None:
    asked = client(folder)
    rows = table(asked.get("/run/participation").text)
    for number, row in enumerate(rows):
        page = asked.get(f"/run/member/{number}").text
        assert table(page) == [row]
        posted = sum(state_of(cell)[0] == "posted" for cell in row)
        assert f"counted in {posted} of the rounds 1 to 4" in page
    assert "No round is closed" not in page


def test_each_cell_says_what_a_member_did_and_why_and_leads_to_the_block(folder: Path) -> None:
    rows = table(client(folder).get("/run/participation").text)
    assert [state_of(cell) for cell in rows[0]] == [
        ("posted", f"/run/block/{height}", "posted", f"block {height} counts its post") for height in (4, 3, 2, 1)
    ]
    assert [state_of(cell)[2] for cell in rows[3]] == ["late", "posted", "posted", "posted"]
    assert state_of(rows[3][0])[3] == "it trained, and no post of it was seen in time"
    assert [state_of(cell)[2:] for cell in rows[4]] == [
        ("refused", state_of(rows[4][0])[3]),
        ("refused", "its post was refused: payload: &lt;b&gt;3 bytes&lt;/b&gt;"),
        ("late", "its post came 0.1 s after the block"),
        ("lost", "its post came 0.6 s before the block, which does not count it"),
    ]
    assert state_of(rows[4][0])[3].startswith("convicted: ")


def test_a_member_with_nothing_to_post_says_why_on_both_pages_unless_a_post_of_it_came(folder: Path) -> None:
    asked = client(folder)
    nothing = {2: NothingPosted(4, "at first"), 4: NothingPosted(3, "no class has <2> examples")}
    posts = {2: (SeenPost(4, 2_500),), 4: ()}
    (folder / TIMELINE_FILE).unlink()
    for height in (2, 4):
        block = asked.get(f"/api/v1/run/block/{height}").json()["summary"]["hash"]
        line = SeenBlock(height, block, None, 2_000, (), posts=posts[height], nothing=(nothing[height],))
        TimelineFile(folder / TIMELINE_FILE).add(line)
    rows = table(client(folder).get("/run/participation").text)
    why = {2: "its post came 0.5 s after the block", 4: "it had nothing to post: no class has &lt;2&gt; examples"}
    assert state_of(rows[3][0])[2:] == ("nothing", why[4])
    assert state_of(rows[4][2])[2:] == ("late", why[2])
    for height, reason in why.items():
        assert f"<small>{reason}</small>" in client(folder).get(f"/run/block/{height}").text


def test_accuracies_are_another_view_of_the_same_cells_and_links_lead_between_both(folder: Path) -> None:
    shown = client(folder)
    states, accuracies = (shown.get(f"/run/participation{query}").text for query in ("", "?show=accuracy"))
    assert 'href="?to=4&amp;show=accuracy"' in states
    assert 'href="?to=4"' in accuracies
    for state, sign in SIGNS.items():
        assert (f">{sign}</span>" in states) == (state not in ("aggregator", "outside")), "it has neither"
        assert f">{sign}</span>" not in accuracies
    rows = table(accuracies)
    assert [len(row) for row in rows] == [4] * 5
    assert [re.sub("<.*?>", "", cell) for cell in rows[0]] == ["–", "–", "–", "88"]
    assert 'class="c9"' in rows[0][3]
    assert re.sub("<.*?>", "", rows[3][0]) == "50"
    assert 'title="late: it trained' in rows[3][0]


def test_older_rounds_are_on_pages_of_their_own(folder: Path) -> None:
    page = client(folder).get("/run/participation?to=2&show=accuracy").text
    assert "rounds 1 to 2" in page
    assert [len(row) for row in table(page)] == [2] * 5
    assert 'href="?to=4&show=accuracy">Newest' in page.replace("&amp;", "&")


def test_the_command_and_the_interface_tell_the_same(folder: Path) -> None:
    shown = client(folder)
    answer = shown.get("/api/v1/run/member/4").json()
    assert json.loads(CliRunner().invoke(explorer, ["--json", "peer", str(folder), "4"]).stdout) == answer
    assert [(item["round"], item["state"], item["height"]) for item in answer["rounds"]] == [
        (1, "lost", 1),
        (2, "late", 2),
        (3, "refused", 3),
        (4, "refused", 4),
    ]
    first = shown.get("/api/v1/run/member/0").json()["rounds"][0]
    assert first == {"round": 1, "state": "posted", "height": 1, "reason": "block 1 counts its post", "accuracy": 0.876}
    text = CliRunner().invoke(explorer, ["peer", str(folder / "chain"), "4"]).stdout
    assert "payload: <b>3 bytes</b>" in text
    assert "87.6 %" in CliRunner().invoke(explorer, ["peer", str(folder), "0"]).stdout


def test_the_command_says_where_older_rounds_are_left_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = CliRunner().invoke(explorer, ["peer", str(folder), "4"]).stdout
    assert "\nrounds\n" in whole
    monkeypatch.setattr("fedchain.web.pages.rounds.ROUNDS_IN_TABLE", 2)
    shown = CliRunner().invoke(explorer, ["peer", str(folder), "4"]).stdout
    assert "\nrounds, those before 3 left out\n" in shown


def test_a_round_of_several_phases_shows_the_worst_and_not_the_aggregator_s(tmp_path: Path) -> None:
    refine = replace(UPDATE, name="refine")
    chain = ChainBuilder(genesis(4, phases=(UPDATE, refine, GLOBAL), aggregator=AggregatorRule.FIXED))
    for _ in range(2):
        chain.extend()
        chain.extend(posts=chain.posts()[:3])
        chain.extend()
    left_out = chain.genesis.index[sorted(chain.genesis.members)[3]]
    with Store.create(tmp_path / "run" / "chain", chain.genesis) as store:
        write(store, chain)
    rows = table(client(tmp_path / "run").get("/run/participation").text)
    for number, row in enumerate(rows):
        state = "absent" if number == left_out else "posted"
        assert [state_of(cell)[1:3] for cell in row] == [("/run/block/5", state), ("/run/block/2", state)]


def test_whoever_has_the_role_of_a_dedicated_aggregator_trains_nothing(tmp_path: Path) -> None:
    rules: dict[str, Any] = {"aggregator": AggregatorRule.DEDICATED, "admission": Admission.CLOSED}
    chain = living(6, phases=(UPDATE, GLOBAL), **rules)
    chain.extend(changes=[handing(chain, 2)])
    chain.extend_many(5)
    with Store.create(tmp_path / "run" / "chain", chain.genesis) as store:
        write(store, chain)
    rows = table(client(tmp_path / "run").get("/run/participation").text)
    assert [[state_of(cell)[2] for cell in rows[number]] for number in (1, 2, 5)] == [
        ["posted", "posted", "posted"],
        ["aggregator", "posted", "posted"],
        ["aggregator", "aggregator", "aggregator"],
    ]


def test_a_member_that_does_not_count_yet_or_any_more_is_not_absent(tmp_path: Path) -> None:
    chain = living(5)
    chain.extend(changes=[joining(chain, 5), own(chain, 1)])
    chain.extend_many(2)
    chain.extend(posts=[post for post in chain.posts() if post.sender != keys(6)[5].public_key])
    with Store.create(tmp_path / "run" / "chain", chain.genesis) as store:
        write(store, chain)
    shown = client(tmp_path / "run")
    rows = table(shown.get("/run/participation").text)
    assert [state_of(cell)[2] for cell in rows[1]] == ["outside", "outside", "posted", "posted"]
    assert [state_of(cell)[2] for cell in rows[5]] == ["absent", "posted", "outside", "outside"]
    assert state_of(rows[1][0])[3] == "it was no member that counts then"
    parts = shown.get("/api/v1/run/member/5").json()["rounds"]
    assert [part["state"] for part in parts] == ["outside", "outside", "posted", "absent"]


def test_a_dedicated_aggregator_is_not_absent_but_what_it_is(tmp_path: Path) -> None:
    chain = ChainBuilder(genesis(4, phases=(UPDATE, GLOBAL), aggregator=AggregatorRule.DEDICATED))
    for _ in range(2):
        chain.extend()
        chain.extend()
    with Store.create(tmp_path / "run" / "chain", chain.genesis) as store:
        write(store, chain)
    shown = client(tmp_path / "run")
    page = shown.get("/run/participation").text
    assert {state_of(cell)[2] for row in table(page)[:3] for cell in row} == {"posted"}
    assert [state_of(cell)[2:] for cell in table(page)[3]] == 2 * [
        ("aggregator", "the dedicated aggregator, which trains nothing")
    ]
    assert f">{SIGNS['aggregator']}</span>" in page
    assert {part["state"] for part in shown.get("/api/v1/run/member/3").json()["rounds"]} == {"aggregator"}


def test_a_member_may_not_have_been_drawn_in_the_rounds_that_drew(tmp_path: Path) -> None:
    chain = living(5, contributors_per_round=4)
    amendment = propose_amendment(amendment_of({"contributors_per_round": 0}), "", sequence=0, until=UNTIL)
    chain.extend(changes=[approved(chain, amendment)])
    chain.extend()
    chain.extend(posts=some(chain, 4))
    with Store.create(tmp_path / "run" / "chain", chain.genesis) as store:
        write(store, chain)
    cells = [
        state_of(cell)[2:] for row in table(client(tmp_path / "run").get("/run/participation").text) for cell in row
    ]
    drawn = ("absent", "no post of it was seen; it may not have been drawn")
    assert sorted(cell for cell in cells if cell[0] != "posted") == [("absent", "no post of it was seen"), drawn, drawn]


def test_a_chain_without_a_round_has_an_empty_table(tmp_path: Path) -> None:
    Store.create(tmp_path / "run" / "chain", genesis(4)).close()
    page = client(tmp_path / "run").get("/run/participation")
    assert page.status_code == 200
    assert "No round is closed yet." in page.text


def test_a_run_shows_its_silent_members_and_its_accuracies(tmp_path: Path) -> None:
    """A peer that crashed is absent from then on, as its blocks say."""
    folder = tmp_path / "run"
    outcome = play(folder, troubled_scenario())
    shown = client(folder)
    parts = {
        number: [RoundPart(**item) for item in shown.get(f"/api/v1/run/member/{number}").json()["rounds"]]
        for number in range(6)
    }
    assert {len(row) for row in parts.values()} == {4}
    assert parts[2][-1].state == "absent"
    posted = sum(part.state == "posted" for row in parts.values() for part in row)
    assert posted == sum(row.posts for row in outcome.rows)
    measured = {(item.member, item.round): item.accuracy for item in read_members(folder)}
    assert {(n, part.round): part.accuracy for n in parts for part in parts[n] if part.accuracy is not None} == measured


def test_an_accuracy_is_that_of_its_round_where_a_round_has_several_blocks(tmp_path: Path) -> None:
    chain, path = ChainBuilder(genesis(4, phases=(UPDATE, GLOBAL), aggregator=AggregatorRule.FIXED)), tmp_path / "run"
    chain.extend_many(4)
    with Store.create(path / "chain", chain.genesis) as store:
        write(store, chain)
    (path / SCENARIO_FILE).write_text("")
    (path / MEMBERS_FILE).write_text(members_text([MemberAccuracy(1, 0, 0.25), MemberAccuracy(2, 0, 0.75)]))
    parts = client(path).get("/api/v1/run/member/0").json()["rounds"]
    assert [(part["round"], part["accuracy"]) for part in parts] == [(1, 0.25), (2, 0.75)]


def test_a_crime_in_a_block_that_is_not_held_was_before_all_that_are(tmp_path: Path) -> None:
    chain, path = ChainBuilder(genesis(5)), tmp_path / "run"
    chain.extend()
    chain.extend(evidence=[double_post(keys(5)[4], chain.genesis, 2)])
    for _ in range(2):
        chain.extend(posts=some(chain, 4))
    with Store.create(path / "chain", chain.genesis) as store:
        write(store, chain, base=3)
    parts = client(path).get("/api/v1/run/member/4").json()["rounds"]
    assert [part["state"] for part in parts] == ["refused", "refused"]


def test_members_that_fell_out_of_one_block_have_reasons_of_their_own() -> None:
    parts = {number: [RoundPart(1, "refused", 1, reason)] for number, reason in ((3, "too large"), (4, "no numbers"))}
    cells = [state_of(row)[2:] for _, row in grid(parts, Names(genesis(5), "run"))]
    assert cells == [("refused", "too large"), ("refused", "no numbers")]
