"""Open requests, as several nodes tell them."""

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from fedchain.chain.membership.change import propose_removal
from fedchain.chain.storage.sqlite import Store
from fedchain.crypto.address import address
from fedchain.node.config import NodeConfigError
from fedchain.node.membership.account import proposed
from fedchain.web.observed.requests import open_requests
from tests.support.chain.builders import ChainBuilder
from tests.support.chain.changes import approved, joining, living, own
from tests.support.chain.explored import FakeRules, write
from tests.support.web.pages import text_of
from tests.support.web.site import HOME, site


class Network:
    """Two folders with one chain, whose nodes say what a test wants."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.chain: ChainBuilder = living(5)
        self.chain.extend_many(2)
        self.told: list[dict[str, Any] | NodeConfigError | None] = [None, None]
        for number in range(2):
            with Store.create(folder / "net" / f"node-{number}" / "chain", self.chain.genesis) as store:
                write(store, self.chain)
            (folder / "net" / f"node-{number}" / "status.sock").touch()
        monkeypatch.setattr("fedchain.web.chains.look_for_node", lambda node: ({"height": 2}, ""))
        monkeypatch.setattr("fedchain.web.chains.ask", lambda node, question: self.answer(int(node.name[-1])))
        self.site = site(folder / "net", rules=lambda _: FakeRules())
        (self.shown,) = self.site.chains.values()

    def answer(self, number: int) -> dict[str, Any] | None:
        told = self.told[number]
        if isinstance(told, NodeConfigError):
            raise told
        return told

    def look(self) -> str:
        self.shown.ask()
        version = self.shown.look()
        self.site.live.note(self.shown.key, version)
        return version


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Network:
    return Network(tmp_path, monkeypatch)


def test_the_approvals_that_reached_any_node_count(network: Network) -> None:
    chain, members = network.chain, network.chain.genesis.members
    removal = propose_removal(members[4], "silent", sequence=0, until=9)
    one, other = (removal.approved(chain.key(members[place]), chain.genesis.chain_id) for place in (0, 2))
    asks = joining(chain, 5, 0, text="<b>clinic</b>", until=7)
    before = network.look()
    network.told[:] = [
        proposed(chain.genesis, chain.state, [one], [asks]),
        proposed(chain.genesis, chain.state, [other], []),
    ]
    assert network.look() != before, "pages are new"
    join, remove = open_requests(network.shown)
    assert (join.kind, join.number, join.approved, join.required, join.until) == ("join", None, (), 4, 7)
    assert (remove.kind, remove.number, remove.until, remove.is_complete) == ("remove", 4, 9, False)
    assert remove.approved == tuple(address(members[place]) for place in (0, 2))
    assert remove.missing == tuple(address(members[place]) for place in (1, 3))
    client = TestClient(network.site.app, base_url=HOME)
    shown = text_of(client, "/net/members")
    assert "2 of 4" in shown
    assert "joins: &lt;b&gt;clinic&lt;/b&gt;" in shown
    assert "Proposed, and not decided" not in text_of(client, "/net/members?height=2")
    found = client.get("/api/v1/net/requests").json()
    assert [(item["kind"], item.get("approved_numbers")) for item in found] == [("join", None), ("remove", [0, 2])]


def test_a_node_that_is_behind_tells_what_may_be_decided(network: Network) -> None:
    chain = network.chain
    old = proposed(chain.genesis, chain.state, [own(chain, 1)], [])
    chain.extend()
    amended = proposed(chain.genesis, chain.state, [approved(chain, joining(chain, 5))], [])
    network.told[:] = [old, amended]
    network.look()
    (join,) = open_requests(network.shown)
    assert (join.kind, join.is_complete, len(join.missing)) == ("join", True, 1)


def test_a_node_that_does_not_answer_hides_nothing(network: Network) -> None:
    chain = network.chain
    network.told[:] = [
        NodeConfigError("this question has no answer here"),
        proposed(chain.genesis, chain.state, [own(chain, 1)], []),
    ]
    network.look()
    (leave,) = open_requests(network.shown)
    assert (leave.kind, leave.required, leave.missing, leave.is_complete, leave.purpose) == (
        "leave",
        0,
        (),
        True,
        "leaves",
    )


def test_the_request_that_ends_first_is_told_first(network: Network) -> None:
    chain, member = network.chain, network.chain.genesis.members[4]
    asked = [propose_removal(member, "silent", sequence=0, until=until) for until in (9, 5, 7, 6, 8)]
    network.told[0] = proposed(chain.genesis, chain.state, asked, [])
    network.look()
    assert [request.until for request in open_requests(network.shown)] == [5, 6, 7, 8, 9]
