"""The pages say when a federation stands still, and which folders are behind."""

import re
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from fedchain.chain.membership.amendment import amendment_of
from fedchain.chain.membership.change import CHANGES_VERSION, propose_amendment
from fedchain.chain.storage.sqlite import Store
from fedchain.crypto.address import address
from fedchain.files.layout import SCENARIO_FILE
from fedchain.web.chains import round_ms
from tests.support.chain.builders import ChainBuilder, genesis
from tests.support.chain.changes import approved
from tests.support.chain.explored import FakeRules, write
from tests.support.web.builders import append, write_run
from tests.support.web.site import HOME, site

SINCE_MS = 1_700_000_000_000


class Network:
    """Folders of four nodes whose statuses a test chooses."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
        self.chain = ChainBuilder(genesis(4, **changes))
        self.chain.extend_many(2)
        self.members = [address(member) for member in self.chain.genesis.members]
        self.told: dict[int, dict[str, Any]] = {}
        self.silent = set[int]()
        self.folder = folder / "net"
        for number in range(4):
            with Store.create(self.node(number) / "chain", self.chain.genesis) as store:
                write(store, self.chain)
        monkeypatch.setattr("fedchain.web.chains.look_for_node", self.look)
        self.site = site(self.folder, rules=lambda _: FakeRules())
        self.client = TestClient(self.site.app, base_url=HOME)

    def node(self, number: int) -> Path:
        return self.folder / f"node-{number}"

    def look(self, node: Path) -> tuple[dict[str, Any] | None, str]:
        number = int(node.name[-1])
        return self.told.get(number), "it hangs" if number in self.silent else ""

    def tell(self, number: int, *missing: int, height: int = 2, since_ms: int = SINCE_MS) -> None:
        """A node says which members it misses."""
        names = [self.members[item] for item in missing]
        stands = {"lacks": "votes", "needed": 3, "here": 4 - len(missing), "missing": names, "since_ms": since_ms}
        self.told[number] = {"height": height, "address": self.members[number], "stands": stands if names else None}

    def page(self, path: str = "") -> str:
        """A page as it is now."""
        (chain,) = self.site.chains.values()
        chain.ask()
        self.site.live.note(chain.key, chain.look())
        return str(self.client.get(f"/net/{path}").text)

    def banner(self, path: str = "") -> str:
        """The text of a page's banner; empty if there is none."""
        found = re.search(r'<p class="note[^>]*id="standing">(.*?)</p>', self.page(path), re.DOTALL)
        return re.sub(r"<[^>]*>", "", found[1]) if found else ""


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Network:
    return Network(tmp_path, monkeypatch)


def test_a_standstill_is_on_every_page_with_its_beginning_and_who_is_missing(network: Network) -> None:
    network.tell(0, 3, 2)
    network.tell(1, 3, 2, since_ms=SINCE_MS + 1_000)
    for path in ("", "blocks", "members", "block/1"):
        assert network.banner(path).startswith(
            "The federation stands still since 2023-11-14 22:13:20 UTC : votes of 3 members needed, 2 are here. "
            "Missing: 2"
        )
        assert 'data-mark="stands still"' in network.page(path)


def test_what_is_told_is_what_the_node_says_that_sees_most_members(network: Network) -> None:
    network.tell(0, 1, 2, 3)
    network.tell(1, 2, 3, since_ms=SINCE_MS + 60_000)
    assert "since 2023-11-14 22:14:20 UTC : votes of 3 members needed, 2 are here." in network.banner()


def test_a_federation_of_which_one_node_sees_enough_goes_on(network: Network) -> None:
    network.tell(0, 2, 3)  # it lost its own connections
    network.tell(1)
    assert network.banner() == ""
    assert 'data-mark="live"' in network.page()


def test_a_node_that_is_behind_knows_less(network: Network) -> None:
    network.tell(0, height=1)
    network.tell(1, 2, 3)
    assert network.banner().startswith("The federation stands still")


def test_folders_without_a_node_are_not_called_live(network: Network) -> None:
    assert network.banner() == "No node runs here In these folders nothing happens until one is started."
    assert 'data-mark="no node runs here"' in network.page()


def test_a_node_that_hangs_is_not_called_stopped(network: Network) -> None:
    """An operator may start a stopped one a second time."""
    network.silent.add(1)
    said = "The one that is there hangs, or another user runs it."
    assert network.banner() == f"No node answers here {said}"
    page = network.page()
    assert ">no node answers<" in page
    assert ">no answer<" in page
    assert "Nobody runs a node" not in page
    network.tell(0)
    assert network.banner() == ""
    found = network.client.get("/api/v1/net/open").json()
    assert [item["activity"] for item in found["nodes"]] == ["waiting", "no answer", "stopped", "stopped"]


def test_a_finished_federation_stands_for_a_good_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(tmp_path, monkeypatch, rounds=2)
    assert network.banner() == ""
    assert 'data-mark="finished"' in network.page()


def test_a_block_on_its_way_is_no_fault(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1_000.0]
    monkeypatch.setattr("fedchain.web.chains.time.monotonic", lambda: clock[0])
    assert "All 4 folders stand at height 2" in network.page()
    block = network.chain.extend()
    append(network.node(0), network.chain, block)
    assert "The folders stand at heights 2, 3: a block is on its way." in network.page()
    clock[0] += round_ms(network.chain.genesis) / 1_000 + 1
    for number in (1, 2):
        append(network.node(number), network.chain, block)
    assert "<b>Behind</b> node-3 at height 2:" in network.page()
    append(network.node(3), network.chain, block)
    assert "All 4 folders stand at height 3" in network.page()
    append(network.node(0), network.chain, network.chain.extend())
    assert "The folders stand at heights 3, 4: a block is on its way." in network.page()
    for number in (1, 2, 3):
        append(network.node(number), network.chain, network.chain.blocks[network.chain.tip])
    assert "All 4 folders stand at height 4" in network.page()


def test_a_round_is_as_long_as_the_rules_in_force_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1_000.0]
    monkeypatch.setattr("fedchain.web.chains.time.monotonic", lambda: clock[0])
    network = Network(tmp_path, monkeypatch, version=CHANGES_VERSION)
    values = amendment_of({"phase_timeout_ms": 600_000, "round_interval_ms": 500_000})
    change = approved(network.chain, propose_amendment(values, "", sequence=0, until=99))
    for body in ([change], [], []):
        block = network.chain.extend(changes=body)
        append(network.node(0), network.chain, block)
        if block.header.height < 5:
            for number in (1, 2, 3):
                append(network.node(number), network.chain, block)
    assert "The folders stand at heights 4, 5: a block is on its way." in network.page()
    clock[0] += round_ms(network.chain.genesis) / 1_000 + 1
    assert "Behind" not in network.page()
    clock[0] += 1_100
    assert "<b>Behind</b> node-1 at height 4, node-2 at height 4, node-3 at height 4:" in network.page()


def test_a_folder_two_blocks_behind_is_behind_at_once(network: Network) -> None:
    for _ in range(2):
        block = network.chain.extend()
        for number in range(3):
            append(network.node(number), network.chain, block)
    assert "<b>Behind</b> node-3 at height 2:" in network.page()


def test_a_simulation_that_is_not_finished_lacks_no_node(tmp_path: Path) -> None:
    chain = ChainBuilder(genesis(4))
    chain.extend_many(2)
    folder = write_run(tmp_path / "run", chain)
    (folder / SCENARIO_FILE).write_text("")
    shown = TestClient(site(folder, rules=lambda _: FakeRules()).app, base_url=HOME).get("/run/").text
    assert 'id="standing"' not in shown
    assert 'data-mark="live"' in shown
