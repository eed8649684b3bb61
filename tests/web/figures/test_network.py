"""The network page: connections of a simulation and of running nodes, few in a ring and many in a matrix."""

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext
from starlette.testclient import TestClient

from fedchain.crypto.address import address
from fedchain.files.links import Link, links_text
from fedchain.web.chains import Chain, open_chains
from fedchain.web.figures.network import RING_MAX, Pair, Totals, network_page, pairs_of, pairs_text, seats, totals_of
from fedchain.web.places import find_places
from tests.support.chain.builders import ChainBuilder, genesis
from tests.support.chain.explored import FakeRules
from tests.support.web.browsing import AXE, AXE_RUN, LEVELS_A_AND_AA, NEEDS_CHROMIUM, served
from tests.support.web.browsing import browser as browser
from tests.support.web.browsing import context as context
from tests.support.web.builders import write_run
from tests.support.web.site import HOME, site

LINKS = [
    *(Link(0, 1, 1_000, 2, 100), Link(1, 0, 3_000, 2, 300), Link(2, 0, 9_000, 0, 0)),
    *(Link(9, 0, 1, 1, 1), Link(1, 1, 1, 1, 1)),  # of no member, and to itself: damage
]


def simulated(folder: Path, members: int, links: list[Link]) -> Path:
    chain = ChainBuilder(genesis(members))
    chain.extend()
    run = write_run(folder / "run", chain)
    (run / "scenario.toml").write_text("")
    (run / "links.csv").write_text(links_text(links))
    return run


def opened(folder: Path) -> Chain:
    (chain,) = open_chains(find_places([folder]), lambda _: FakeRules())
    chain.look()
    return chain


def full(members: int) -> list[Link]:
    return [
        Link(one, other, 1_000 * (one + 1), 1, 20) for one in range(members) for other in range(members) if one != other
    ]


def test_a_simulation_s_links_are_put_together_by_pair_with_the_most_bytes_first(tmp_path: Path) -> None:
    chain = opened(simulated(tmp_path, 4, LINKS))
    pairs = pairs_of(chain)
    assert pairs.first() == [Pair(0, 2, 0, 9_000, None), Pair(0, 1, 1_000, 3_000, 100.0)]
    assert pairs.first(1) == [Pair(0, 2, 0, 9_000, None)]
    assert totals_of(pairs, 4) == [
        Totals(0, 2, 1_000, 12_000, 100.0),
        Totals(2, 1, 9_000, 0, None),
        Totals(1, 1, 3_000, 1_000, 100.0),
    ]
    assert pairs_text(pairs).splitlines()[1:] == ["0,2,0,9000,", "0,1,1000,3000,100.000"]
    chain.close()


def test_numbers_that_would_overflow_are_left_out_and_the_page_says_that_the_file_is_damaged(tmp_path: Path) -> None:
    run = simulated(tmp_path, 4, LINKS)
    with (run / "links.csv").open("a") as file:
        file.write(f"0,3,{10**15 - 1},1,1\n" * 10_000 + f"0,2,{'9' * 40},1,1\n")
    chain = opened(run)
    pairs = pairs_of(chain)
    assert [(pair.other, pair.there_bytes) for pair in pairs.first(1)] == [(3, 10**15 - 1)]
    assert pairs.totals().min() > 0
    assert network_page(chain)["damaged"] == 2 + 9_999 + 1
    shown = TestClient(site(run).app, base_url=HOME).get("/run/network").text
    assert "links.csv is damaged:</b> 10,002 of its lines" in shown
    chain.close()


def told(document: Any, me: int, links: dict[int, dict[str, Any]]) -> dict[str, Any]:
    members = document.members
    return {"address": address(members[me]), "links": {address(members[peer]): link for peer, link in links.items()}}


def test_nodes_tell_their_own_connections_and_what_they_sent_counts_before_what_came(tmp_path: Path) -> None:
    builder = ChainBuilder(genesis(4))
    for number in range(2):
        write_run(tmp_path / "net" / f"node-{number}", builder)
    chain = opened(tmp_path / "net")
    measured = {"round_trip_ms": 2.0, "bytes_in": 70, "bytes_out": 50}
    chain.holders[0].status = told(builder.genesis, 0, {1: measured, 3: {"heard_s_ago": 1.0}})
    chain.holders[1].status = told(builder.genesis, 1, {0: measured | {"round_trip_ms": 4.0}, 2: measured})
    assert pairs_of(chain).first() == [
        Pair(1, 2, 50, 70, 2.0),
        Pair(0, 1, 50, 50, 3.0),
        Pair(0, 3, None, None, None),
    ]
    chain.holders[0].status = chain.holders[1].status = None
    assert pairs_of(chain).first() == []
    chain.close()


def test_a_ring_begins_at_the_top_and_goes_round_once() -> None:
    assert [(seat.x, seat.y) for seat in seats(4)] == [(320, 50), (590, 320), (320, 590), (50, 320)]


@pytest.mark.parametrize(("members", "shapes"), [(RING_MAX, 1_770), (RING_MAX + 1, 31 * 31 - 1), (150, 2_500)])
def test_few_members_are_a_ring_and_many_a_matrix_of_few_fields(tmp_path: Path, members: int, shapes: int) -> None:
    chain = opened(simulated(tmp_path, members, full(members)))
    page = network_page(chain)
    assert bool(page["lines"]) is (members <= RING_MAX) is not bool(page["fields"])
    assert sum(level.path.count("M") for level in page["lines"] or page["fields"]) == shapes
    assert len(page["totals"]) == members
    assert page["pairs_count"] == members * (members - 1) // 2
    chain.close()


def test_the_page_has_tables_and_a_file_and_says_what_is_missing(tmp_path: Path) -> None:
    with TestClient(site(simulated(tmp_path, 4, LINKS), rules=lambda _: FakeRules()).app, base_url=HOME) as client:
        shown = client.get("/run/network").text
        assert re.findall(r"<td>(\d)</td><td>(\d)</td>", shown) == [("0", "2"), ("0", "1")]
        assert "8.8 KiB" in shown
        assert client.get("/run/network?file=links.csv").text.startswith("member,other,bytes to other")
        assert client.get("/api/v1/run/network").json()[0]["back_bytes"] == 9_000
    write_run(tmp_path / "node", ChainBuilder(genesis(4)))
    with TestClient(site(tmp_path / "node", rules=lambda _: FakeRules()).app, base_url=HOME) as client:
        assert "running nodes tell their connections" in client.get("/node/network").text


@NEEDS_CHROMIUM
@pytest.mark.parametrize("members", [pytest.param(5, marks=pytest.mark.long), pytest.param(70, marks=pytest.mark.slow)])
def test_the_page_reads_well_for_everybody(tmp_path: Path, context: BrowserContext, members: int) -> None:
    simulated(tmp_path, members, full(members))
    with served(tmp_path, lambda _: FakeRules()) as start:
        page = context.new_page()
        page.goto(f"{start}/run/network")
        page.evaluate(AXE)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme="light" if scheme == "light" else "dark")
            for width in (1400, 390, 320):
                page.set_viewport_size({"width": width, "height": 900})
                assert page.evaluate("document.documentElement.scrollWidth") <= width
                found = page.evaluate(AXE_RUN, LEVELS_A_AND_AA)["violations"]
                assert [(item["id"], node["target"]) for item in found for node in item["nodes"]] == []
