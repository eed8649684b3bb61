"""Pages in a real browser: Chromium, headless, where it is installed, and the rules of axe."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route, sync_playwright

from fedchain.node.founding.task import rules_of
from fedchain.web.app import Site
from fedchain.web.chains import open_chains
from fedchain.web.places import find_places
from fedchain.web.serving import listen, make_server
from tests.support.web.chromium import CHROMIUM, FLAGS

NEEDS_CHROMIUM = pytest.mark.skipif(
    not CHROMIUM, reason="no Chromium is installed here (Debian: apt-get install chromium)"
)

AXE = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")

AXE_RUN = "runOnly => axe.run(document, {runOnly, resultTypes: ['violations']})"

LEVELS_A_AND_AA = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]

CONTRAST = {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}
"""All that depends on whether it is light or dark."""


@contextmanager
def served(folder: Path, rules: Any = rules_of) -> Iterator[str]:
    """The address of an explorer of the chains in a folder."""
    chains = open_chains(find_places([folder]), rules)
    server = make_server(Site(chains))
    with listen("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join(20)
    for chain in chains:
        chain.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS])
        yield browser
        browser.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    with browser.new_context() as context:
        context.set_default_timeout(20_000)
        yield context


def wait_for_request(page: Page, held: list[Route], count: int) -> Route:
    """The last of so many requests, which come to the list that a route of the page fills."""
    for _ in range(600):
        if len(held) >= count:
            return held[count - 1]
        page.wait_for_timeout(50)  # a moment in which requests come
    raise AssertionError(f"{len(held)} of {count} requests came within half a minute")
