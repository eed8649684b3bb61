"""Four real nodes, of which two are killed: page, monitoring and metric say that it stands, then that it goes on."""

import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from fedchain.node.founding.consensus import Consensus
from fedchain.node.operating.console import check_line
from fedchain.node.operating.local_node import LocalNode, stop_all
from fedchain.node.operating.status import ask_status
from fedchain.node.operating.testnet import found_testnet, free_ports
from tests.support.node.processes import height, kill
from tests.support.node.shell import DIGITS, wait_until
from tests.support.web.site import HOME, site


class Seen:
    """A network as its operator sees it through the first node."""

    def __init__(self, nodes: list[LocalNode], port: int, folder: Path) -> None:
        self._node, self._port = nodes[0], port
        self._site = site(folder)
        self._client = TestClient(self._site.app, base_url=HOME)

    def check(self) -> int:
        """Exit code of ``node status --check``."""
        return check_line(ask_status(self._node.folder))[0]

    def seconds(self) -> float:
        """The metric."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        (line,) = (line for line in lines if line.startswith("fedchain_standstill_seconds "))
        return float(line.split()[1])

    def page(self) -> str:
        """The overview."""
        (chain,) = self._site.chains.values()
        chain.ask()
        self._site.live.note(chain.key, chain.look())
        return str(self._client.get(f"/{chain.key}/").text)

    def stands(self) -> bool:
        """Whether all three say so."""
        return (self.check(), self.seconds() > 0, "The federation stands still" in self.page()) == (1, True, True)

    def goes_on(self) -> bool:
        """Whether all three say so."""
        return (self.check(), self.seconds(), "stands still" in self.page()) == (0, 0.0, False)


@pytest.mark.long
def test_two_of_four_killed_is_a_standstill_until_one_is_back(tmp_path: Path) -> None:
    folder = tmp_path / "net"
    config = replace(DIGITS, clients=4)
    # A phase waits for the member that stays away until its timeout.
    nodes = found_testnet(folder, config, Consensus(rounds=0, mining_s=0.5, mining_attempts=1_000, phase_timeout_s=4.0))
    (port,) = free_ports(1)
    nodes[0].command += ["--set", f"metrics=127.0.0.1:{port}"]
    try:
        for node in nodes:
            node.start()
        wait_until(lambda: height(nodes[0]) >= 1, "a first block")
        seen = Seen(nodes, port, folder)
        wait_until(seen.goes_on, "it goes on")
        for node in nodes[2:]:
            kill(node)
        wait_until(seen.stands, "it stands")
        told: dict[str, Any] = nodes[0].look()["stands"]
        assert (told["lacks"], told["needed"], told["here"]) == ("votes", 3, 2)
        assert sorted(told["missing"]) == sorted(node.address.rpartition("/")[2] for node in nodes[2:])
        stood_at = height(nodes[0])
        nodes[2].start()
        wait_until(seen.goes_on, "it goes on again")
        wait_until(lambda: height(nodes[0]) > stood_at, "the next block")
    finally:
        stop_all(nodes)
    assert check_line(ask_status(nodes[0].folder))[0] == 2
