"""Tables of participation in a real browser: one stop of the Tab key, with arrow keys within."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from fedchain.chain.storage.sqlite import Store
from tests.support.chain.builders import ChainBuilder, genesis
from tests.support.chain.explored import FakeRules, write
from tests.support.web.browsing import AXE, AXE_RUN, LEVELS_A_AND_AA, NEEDS_CHROMIUM, served
from tests.support.web.browsing import browser as browser
from tests.support.web.browsing import context as context
from tests.support.web.builders import append, document, learning_chain, write_run

pytestmark = NEEDS_CHROMIUM

ROUNDS = 3

ROW = "document.activeElement.closest('tr')"

FOCUSED = "[document.activeElement.closest('tr').rowIndex, document.activeElement.closest('th, td').cellIndex]"


def _press(page: Page, *keys: str) -> list[tuple[int, int]]:
    """Row and column of the cell with the focus after each key."""
    found = []
    for key in keys:
        page.keyboard.press(key)
        row, column = page.evaluate(FOCUSED)
        found.append((row, column))
    return found


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("cells")
    write_run(folder / "run", learning_chain(document("a run", rounds=9), ROUNDS), (0.5, 0.7, 0.8))
    with served(folder) as address:
        yield address


@pytest.mark.parametrize("path", ["participation", "participation?show=accuracy", "member/1"])
def test_a_table_is_one_stop_and_arrow_keys_go_through_it(path: str, address: str, context: BrowserContext) -> None:
    page = context.new_page()
    page.goto(f"{address}/run/{path}")
    expect(page.get_by_text("Arrow keys go from cell to cell.")).to_be_visible()
    last = page.get_by_role("grid").locator("tr").count() - 1
    page.get_by_label("table: participation").focus()
    assert _press(page, "Tab") == [(1, 1)]
    assert _press(page, "ArrowRight", "ArrowUp", "ArrowUp", "ArrowDown") == [(1, 2), (0, 2), (0, 2), (1, 2)]
    assert _press(page, "Home", "ArrowLeft", "End", "ArrowRight") == [(1, 0), (1, 0), (1, ROUNDS), (1, ROUNDS)]
    assert _press(page, "Control+End", "ArrowLeft", "Control+Home") == [(last, ROUNDS), (last, ROUNDS - 1), (1, 0)]
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('table.cells')") is None
    page.keyboard.press("Shift+Tab")
    assert page.evaluate(FOCUSED) == [1, 0], "where the reader was"
    assert page.locator("table.cells a[tabindex='0']").count() == 1
    page.evaluate(AXE)
    assert page.evaluate(AXE_RUN, LEVELS_A_AND_AA)["violations"] == []


def test_without_a_script_each_cell_is_a_stop(address: str, browser: Browser) -> None:
    with browser.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(f"{address}/run/participation")
        assert page.locator("table.cells a:not([tabindex])").count() == page.locator("table.cells a").count() > 10
        expect(page.get_by_text("Arrow keys go from cell to cell.")).to_be_hidden()


def test_a_new_round_leaves_the_reader_in_its_cell(tmp_path: Path, context: BrowserContext) -> None:
    chain = ChainBuilder(genesis(4))
    chain.extend_many(rounds := 12)
    with Store.create(tmp_path / "live" / "chain", chain.genesis) as store:
        write(store, chain)
    with served(tmp_path, lambda _: FakeRules()) as address:
        page = context.new_page()
        page.goto(f"{address}/live/participation")
        expect(page.locator("#live-state")).to_have_text("no node runs here")
        page.locator("table.cells td a").first.focus()
        assert _press(page, "ArrowDown", "ArrowRight") == [(2, 1), (2, 2)]
        place = page.evaluate("document.activeElement.getAttribute('href')")
        append(tmp_path / "live", chain, chain.extend())
        expect(page.locator("table.cells thead a")).to_have_count(rounds + 1)
        assert page.evaluate(FOCUSED) == [2, 3], "its round has one more before it"
        assert page.evaluate("document.activeElement.getAttribute('href')") == place
        assert page.locator("table.cells a[tabindex='0']").count() == 1
        page.set_viewport_size({"width": 320, "height": 700})
        _press(page, "End", *["ArrowLeft"] * (rounds - 1))
        cell, first = page.evaluate(
            f"[document.activeElement, {ROW}.cells[0]].map(item => item.getBoundingClientRect())"
        )
        assert cell["left"] >= first["right"], "the first column covers no cell that is read"
