"""A network as its operator sees it: page, monitoring and metric say whether it stands."""

import urllib.request
from pathlib import Path

from starlette.testclient import TestClient

from fedchain.node.operating.console import check_line
from fedchain.node.operating.local_node import LocalNode
from fedchain.node.operating.status import ask_status
from tests.support.web.site import HOME, site


class Seen:
    """A network as its operator sees it through the first node, whose metrics are at a port."""

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
