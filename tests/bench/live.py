"""How soon a block is on an open page after it is final: a test network, the explorer beside it, and Chromium."""

import re
import tempfile
import time
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

from playwright.sync_api import sync_playwright
from rich.table import Table

from fedchain.chain.storage.database import DATABASE
from fedchain.files.layout import CHAIN_FOLDER, LOG_FILE
from fedchain.learning.config import LearningConfig
from fedchain.node.founding.consensus import Consensus
from fedchain.node.operating.local_node import LocalNode, stop_all
from fedchain.node.operating.testnet import found_testnet
from tests.bench.web import load_text, served
from tests.support.web.chromium import CHROMIUM, FLAGS

PEERS, ROUNDS = 4, 40
TIMEOUT_S = 900.0

WATCH = """
() => {
  window.shown = {};
  const look = () => {
    const cell = document.querySelector("#last-blocks tbody td");
    const height = cell ? parseInt(cell.textContent.replace(/,/g, "")) : NaN;
    if (!Number.isNaN(height) && !(height in window.shown)) window.shown[height] = Date.now();
  };
  look();
  new MutationObserver(look).observe(document.body, {childList: true, subtree: true, characterData: true});
}
"""
"""Notes when each height was first on the page, in milliseconds since the Unix epoch."""


def bench_live(*, quick: bool) -> Table:
    """From the first node's log line that a block is final to the change of the page, in seconds."""
    rounds = 6 if quick else ROUNDS
    title = f"A new block on an open page; {load_text()}"
    table = Table(f"{PEERS} nodes; after it is final", "p50", "p99", "most", "target", title=title, box=None)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        nodes = found_testnet(
            Path(name) / "net",
            LearningConfig(clients=PEERS),
            Consensus(rounds=rounds, mining_s=2.0, mining_attempts=4_000),
        )
        stack.callback(stop_all, nodes)
        for node in nodes:
            node.start()
        while not all((node.folder / CHAIN_FOLDER / DATABASE).exists() for node in nodes):
            time.sleep(0.1)
        _, port = stack.enter_context(served(Path(name) / "net"))
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS])
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{port}/net/")
        page.evaluate(WATCH)
        until_s = time.monotonic() + TIMEOUT_S
        while not all(node.status.get("finished") for node in nodes) and time.monotonic() < until_s:
            for node in nodes:
                node.look()
            page.wait_for_timeout(1_000)
        page.wait_for_timeout(3_000)
        shown = {int(height): time_ms for height, time_ms in page.evaluate("window.shown").items()}
        browser.close()
        final = _final_ms(nodes)
    late = sorted((shown[height] - final[height]) / 1000 for height in shown.keys() & final.keys() if height > 1)
    p50, p99 = late[len(late) // 2], late[int(len(late) * 0.99)]
    table.add_row(f"{len(late)} blocks", f"{p50:.2f} s", f"{p99:.2f} s", f"{late[-1]:.2f} s", "≤ 1 s")
    return table


def _final_ms(nodes: list[LocalNode]) -> dict[int, float]:
    """When each height was final at the first node that says so, in milliseconds since the Unix epoch."""
    found = dict[int, float]()
    for node in nodes:
        text = (node.folder / LOG_FILE).read_text()
        for stamp, height in re.findall(r"^(\S+) INFO fedchain\.node head height=(\d+) ", text, re.MULTILINE):
            time_ms = datetime.fromisoformat(stamp).timestamp() * 1000
            found[int(height)] = min(found.get(int(height), time_ms), time_ms)
    return found
