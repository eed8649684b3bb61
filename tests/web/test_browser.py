"""The pages in a real browser: Chromium, headless, where it is installed."""

import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Request, Route, expect

from fedchain.chain.storage.sqlite import Store
from fedchain.web.app import Site
from fedchain.web.serving import listen, make_server
from tests.support.chain.builders import ChainBuilder, genesis
from tests.support.chain.explored import FakeRules, write
from tests.support.web.browsing import (
    AXE,
    AXE_RUN,
    CONTRAST,
    LEVELS_A_AND_AA,
    NEEDS_CHROMIUM,
    served,
    wait_for_request,
)
from tests.support.web.browsing import browser as browser
from tests.support.web.browsing import context as context
from tests.support.web.builders import SCRIPT, append, document, learning_chain, lying_block, write_run

pytestmark = NEEDS_CHROMIUM

WIDTHS = (320, 3840)
"""Pixels, from a small telephone to a large screen."""


@dataclass(frozen=True)
class Place:
    """Where the site is, and what it shows."""

    address: str
    run: ChainBuilder
    lie: ChainBuilder
    live: ChainBuilder
    live_folder: Path
    ending: ChainBuilder
    ending_folder: Path


def _write(folder: Path, chain: ChainBuilder) -> None:
    with Store.create(folder / "chain", chain.genesis) as store:
        write(store, chain)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("site")
    run, lie, live = learning_chain(document(), 5), ChainBuilder(genesis(4)), ChainBuilder(genesis(4, name="live"))
    write_run(folder / "run", run, (0.5, 0.7, 0.8, 0.85, 0.875))
    lie.extend()
    lying_block(lie)
    ending = ChainBuilder(genesis(4, name="ending", rounds=3))
    live.extend_many(2)
    ending.extend_many(2)
    _write(folder / "lie", lie)
    _write(folder / "live", live)
    _write(folder / "ending", ending)

    def rules(document: Any) -> Any:
        return run.rules if document.chain_id == run.genesis.chain_id else FakeRules()

    with served(folder, rules) as address:
        yield Place(address, run, lie, live, folder / "live", ending, folder / "ending")


def pages_of(place: Place) -> list[tuple[str, bool]]:
    """Addresses, and whether a page has colours that those before it lack."""
    tip = place.run.blocks[place.run.tip]
    post = tip.transactions[0].hash.hex()
    plain = ("blocks", "rounds", "round/3", "members", "search?q=2", f"tx/{post}", "genesis", "live/", "live/knowledge")
    tables = ("participation", "participation?show=accuracy")
    coloured = ("", "block/3", "member/1", "knowledge", f"proof/{post}", "block/99", *tables)
    below = [(path if path.startswith("live/") else f"run/{path}", path in coloured) for path in (*plain, *coloured)]
    return [(f"/{path}", is_coloured) for path, is_coloured in (("", False), ("compare", True), *below)]


@pytest.mark.long
def test_every_page_reads_well_for_everybody_at_every_width(place: Place, context: BrowserContext) -> None:
    page, asked, said = context.new_page(), set[str](), list[str]()
    page.on("request", lambda request: asked.add(urlsplit(request.url).netloc))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    found = list[str]()

    def judge(path: str, scheme: Literal["light", "dark"], rules: object) -> None:
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        for violation in page.evaluate(AXE_RUN, rules)["violations"]:
            targets = [node["target"] for node in violation["nodes"]][:3]
            found.append(f"{path} {scheme}: {violation['id']} {targets}")

    for path, is_coloured in pages_of(place):
        page.goto(place.address + path)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            beyond = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            if beyond > 0:
                found.append(f"{path} is {beyond} px wider than {width}")
        page.set_viewport_size({"width": 1280, "height": 900})
        page.evaluate(AXE)
        judge(path, "light", LEVELS_A_AND_AA)
        if is_coloured:
            judge(path, "dark", CONTRAST)
    assert found == []
    assert asked == {urlsplit(place.address).netloc}
    assert [line for line in said if "404" not in line] == []  # the page of a block that is not there says so


def test_light_and_dark_differ_and_follow_the_reader(place: Place, context: BrowserContext) -> None:
    page = context.new_page()
    page.goto(f"{place.address}/run/")
    grounds = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        grounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert grounds == ["rgb(244, 246, 249)", "rgb(14, 20, 27)"]


def test_nothing_of_a_wide_table_is_cut_off_on_paper(place: Place, context: BrowserContext) -> None:
    page = context.new_page()
    page.set_viewport_size({"width": 320, "height": 640})
    page.goto(f"{place.address}/run/block/3")
    boxes = page.locator(".scroll")
    wide = boxes.evaluate_all("boxes => boxes.findIndex(box => box.scrollWidth > box.clientWidth)")
    assert wide >= 0, "a table is wider than its box"
    box = boxes.nth(wide)
    assert box.evaluate("box => getComputedStyle(box).overflowX") == "auto"
    page.emulate_media(media="print")
    assert box.evaluate("box => getComputedStyle(box).overflowX") == "visible"
    assert box.evaluate("box => getComputedStyle(box).backgroundImage") == "none", "no shadow says that it goes on"


def test_a_name_that_is_a_script_is_text(place: Place, context: BrowserContext) -> None:
    page = context.new_page()
    page.on("dialog", lambda dialog: pytest.fail("the name ran"))
    page.goto(f"{place.address}/run/")
    expect(page.get_by_role("heading", level=1)).to_have_text(SCRIPT)
    assert page.title() == f"{SCRIPT}: height 5"
    assert page.locator("script").count() == 2


@pytest.mark.long
def test_a_false_aggregate_turns_red_with_both_hashes(place: Place, context: BrowserContext) -> None:
    false = place.lie.blocks[place.lie.tip]
    page, other = context.new_page(), context.new_page()
    other.goto(f"{place.address}/lie/block/2")
    expect(other.locator("#live-state")).to_have_text("no node runs here")
    page.goto(f"{place.address}/lie/block/2")
    verdict = page.locator("#recompute")
    expect(verdict).not_to_have_class("card verdict false")
    page.get_by_role("button", name="Recompute here").click()
    expect(verdict).to_have_class("card verdict false")
    expect(verdict).to_contain_text("FALSE")
    expect(other.locator("#recompute")).to_have_class("card verdict false")
    expect(other.locator("#recompute")).to_contain_text("FALSE")
    said, made = verdict.locator("dd code").all_inner_texts()
    assert said == false.header.knowledge_root.hex()
    assert made != said
    assert bytes.fromhex(made) in place.lie.contents
    assert verdict.evaluate("item => getComputedStyle(item).borderTopColor") == "rgb(168, 35, 26)"
    page.evaluate(AXE)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate(AXE_RUN, CONTRAST)["violations"] == []
    page.goto(f"{place.address}/lie/block/1")
    page.get_by_role("button", name="Recompute here").click()
    expect(page.locator("#recompute")).to_have_class("card verdict good")


@pytest.mark.parametrize("with_script", [True, False])
def test_the_button_that_had_a_block_recomputed_keeps_the_focus(
    place: Place, browser: Browser, with_script: bool
) -> None:
    """The verdict above it is in view, and a reader of the screen says it with the button."""
    with browser.new_context(java_script_enabled=with_script, viewport={"width": 360, "height": 700}) as context:
        page = context.new_page()
        page.goto(f"{place.address}/run/block/{2 + with_script}")
        page.get_by_role("button", name="Recompute here").press("Enter")
        button = page.get_by_role("button", name="Recompute again")
        expect(button).to_be_focused()
        expect(button).to_have_accessible_description(re.compile("leave the same knowledge"))
        expect(button).to_be_in_viewport()
        expect(page.locator("#verdict")).to_be_in_viewport()


def test_a_new_block_comes_onto_open_pages_and_what_the_reader_did_stays(place: Place, context: BrowserContext) -> None:
    overview, other = context.new_page(), context.new_page()
    other.goto(f"{place.address}/live/block/2")
    expect(other.get_by_role("link", name="Block 3")).to_have_count(0)
    overview.goto(f"{place.address}/live/")
    expect(overview.locator("#live-state")).to_have_text("no node runs here")
    overview.locator("#q").fill("half a word")
    append(place.live_folder, place.live, place.live.extend())
    expect(overview.locator("#last-blocks tbody tr")).to_have_count(3)
    expect(overview).to_have_title("live: height 3")
    expect(overview.locator("#q")).to_have_value("half a word")
    expect(other.get_by_role("link", name="Block 3")).to_have_count(1)


def test_what_a_reader_scrolled_opened_and_focused_stays_so(place: Place, context: BrowserContext) -> None:
    page = context.new_page()
    page.set_viewport_size({"width": 360, "height": 800})
    page.goto(f"{place.address}/live/")
    expect(page.locator("#live-state")).to_have_text("no node runs here")
    newest = place.live.state.height
    scrolled = page.locator("#last-blocks .scroll")
    page.locator("#last-blocks").get_by_role("link", name=str(newest), exact=True).first.focus()
    scrolled.evaluate("box => { box.scrollLeft = 150; }")
    append(place.live_folder, place.live, place.live.extend())
    expect(page).to_have_title(f"live: height {newest + 1}")
    expect(page.locator("#last-blocks tbody tr")).to_have_count(newest + 1)
    assert scrolled.evaluate("box => box.scrollLeft") == 150
    expect(page.locator(":focus")).to_have_attribute("href", f"/live/block/{newest}")


def test_a_page_of_a_chain_that_ends_loses_and_gets_sections(place: Place, context: BrowserContext) -> None:
    page = context.new_page()
    page.goto(f"{place.address}/ending/")
    expect(page.locator("#live-state")).to_have_text("no node runs here")
    expect(page.locator("main > section")).to_have_count(4)
    assert _sections(page) == ["glance", "open", "last-blocks", "health"]
    (place.ending_folder / "metrics.jsonl").write_text('{"round": 1, "taa": 0.5}\n{"round": 2, "taa": 0.75}\n')
    expect(page.get_by_role("heading", name="Learning")).to_be_visible()
    page.get_by_text("Numbers").click()
    append(place.ending_folder, place.ending, place.ending.extend())
    expect(page.locator("#open")).to_have_count(0)
    expect(page.locator("#live-state")).to_have_text("finished")
    expect(page.locator("#live-state")).to_have_class("live")
    assert _sections(page) == ["glance", "last-blocks", "accuracy", "health"]
    expect(page.locator("#accuracy details", has_text="Numbers")).to_have_attribute("open", "")


def _sections(page: Page) -> list[str]:
    return [section.get_attribute("id") or "" for section in page.locator("main > section").all()]


def test_a_chain_that_disappears_is_live_no_more_until_it_is_back(place: Place, context: BrowserContext) -> None:
    page = context.new_page()
    page.goto(f"{place.address}/live/")
    expect(page.locator("#live-state")).to_have_text("no node runs here")
    aside = place.live_folder.with_name("aside")
    place.live_folder.rename(aside)
    expect(page.locator("#live-state")).to_have_text("Not found")
    expect(page.locator("#live-state")).to_have_class("live")
    expect(page.locator("main")).to_contain_text("is gone, or holds no chain any more")
    expect(page.locator("#glance")).to_have_count(0)
    aside.rename(place.live_folder)
    expect(page.locator("#live-state")).to_have_text("no node runs here")
    expect(page.locator("#glance")).to_have_count(1)


def _opened(page: Page, address: str) -> None:
    """Open a page that follows its chain, and wait until it was fetched again for the first time."""
    with page.expect_response(lambda answer: answer.request.resource_type == "fetch"):
        page.goto(address)
    expect(page.locator("#live-state")).to_have_text("no node runs here")


def test_a_page_that_got_no_answer_asks_again(place: Place, context: BrowserContext) -> None:
    page = context.new_page()
    _opened(page, f"{place.address}/live/")
    page.route(f"{place.address}/live/", lambda route: route.abort(), times=1)
    append(place.live_folder, place.live, place.live.extend())
    expect(page).to_have_title(f"live: height {place.live.state.height}")
    expect(page.locator("#live-state")).to_have_text("no node runs here")


def test_a_page_follows_its_chain_again_after_another_answered_in_the_explorers_place(
    place: Place, context: BrowserContext
) -> None:
    """Such as a proxy in front of it. A browser asks again by itself where nobody answers, and not after such an
    answer."""
    page = context.new_page()
    page.route("**/live/events", lambda route: route.fulfill(status=502), times=1)
    page.goto(f"{place.address}/live/")
    expect(page.locator("#live-state")).to_have_text("the explorer does not answer")
    expect(page.locator("#live-state")).to_have_text("no node runs here")
    append(place.live_folder, place.live, place.live.extend())
    expect(page).to_have_title(f"live: height {place.live.state.height}")


def test_an_explorer_that_falls_silent_does_not_answer_until_it_does(place: Place, context: BrowserContext) -> None:
    """As one that hangs, or whose machine is off: the connection stays open."""
    page, asked = context.new_page(), list[Route]()

    def answer(route: Route) -> None:
        asked.append(route)
        if len(asked) == 1:
            route.continue_()

    page.route("**/live/events", answer)
    page.clock.install()
    _opened(page, f"{place.address}/live/")
    page.clock.fast_forward(15_000)
    expect(page.locator("#live-state")).to_have_text("no node runs here")
    page.clock.fast_forward(40_000)
    expect(page.locator("#live-state")).to_have_text("the explorer does not answer")
    wait_for_request(page, asked, 2).continue_()
    expect(page.locator("#live-state")).to_have_text("no node runs here")


def test_an_explorer_without_news_sends_signs_of_life(
    place: Place, context: BrowserContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedchain.web.app.SILENT_FOR_S", 0.05)
    page, asked = context.new_page(), list[Request]()
    page.on("request", lambda request: asked.append(request) if request.url.endswith("/events") else None)
    page.clock.install()
    _opened(page, f"{place.address}/live/")
    for number in range(3):
        page.clock.fast_forward(20_000)
        page.evaluate(
            """() => {
                const source = new EventSource("/live/events");
                const title = document.querySelector("h1");
                title.dataset.signs = 0;
                source.addEventListener("here", () => { title.dataset.signs = Number(title.dataset.signs) + 1; });
            }"""
        )
        expect(page.locator("h1")).to_have_attribute("data-signs", re.compile("[3-9]|.."), timeout=10_000)
        assert len(asked) == 2 + number, "that of the page, and those of the test"


def test_a_state_that_lasts_is_written_once_for_readers_of_the_screen(place: Place, context: BrowserContext) -> None:
    page = context.new_page()
    _opened(page, f"{place.address}/live/")
    page.evaluate(
        """() => {
            window.written = 0;
            const count = (changes) => { window.written += changes.length; };
            new MutationObserver(count).observe(document.getElementById("live-state"), { childList: true });
        }"""
    )
    append(place.live_folder, place.live, place.live.extend())
    expect(page).to_have_title(f"live: height {place.live.state.height}")
    assert page.evaluate("window.written") == 0


SEEN = """is => {
    Object.defineProperty(document, "hidden", { value: !is, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_a_page_that_nobody_sees_asks_for_nothing_until_it_is_seen(place: Place, context: BrowserContext) -> None:
    """A browser opens few connections to one server, which hidden pages would hold."""
    page, asked = context.new_page(), list[str]()
    _opened(page, f"{place.address}/live/")
    page.evaluate(SEEN, False)
    expect(page.locator("#live-state")).to_have_text("paused")
    page.on("request", lambda request: asked.append(request.url))
    before = place.live.state.height
    append(place.live_folder, place.live, place.live.extend())
    other = context.new_page()
    other.goto(f"{place.address}/live/")
    expect(other).to_have_title(f"live: height {before + 1}")
    assert (page.title(), asked) == (f"live: height {before}", [])
    page.evaluate(SEEN, True)
    expect(page).to_have_title(f"live: height {before + 1}")
    expect(page.locator("#live-state")).to_have_text("no node runs here")


def test_ages_are_told_in_units_that_fit_them_and_grow_by_themselves(place: Place, context: BrowserContext) -> None:
    page = context.new_page()
    page.goto(f"{place.address}/live/")
    age = page.locator("[data-since]").first
    for seconds, said in ((60, r"\(6\d s ago\)"), (600, r"\(10 min ago\)"), (9_000, r"\([23] h ago\)")):
        age.evaluate("(item, seconds) => { item.dataset.since = Date.now() - 1000 * seconds; }", seconds)
        expect(age).to_have_text(re.compile(f"^{said}$"))
    age.evaluate("item => { item.dataset.since = Date.now() - 5 * 86400000; }")
    expect(age).to_have_text("(5 days ago)")


def test_a_page_that_awaits_a_chain_goes_on_to_it_by_itself(context: BrowserContext) -> None:
    server = make_server(Site((), awaited="runs/digits is not a folder"))
    with listen("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        page = context.new_page()
        with page.expect_response("**/api/v1/chains"):
            page.goto(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        expect(page.locator("main")).to_contain_text("runs/digits is not a folder")
        with page.expect_navigation():
            # Once: this server awaits a chain still, and Chromium may not close a page that goes elsewhere meanwhile.
            page.route("**/api/v1/chains", lambda route: route.fulfill(json=[{"key": "digits"}]), times=1)
        page.close()
        server.should_exit = True
        thread.join(20)


@pytest.mark.long
def test_a_small_telephone_shows_tab_figures_and_the_first_columns_whole(place: Place, context: BrowserContext) -> None:
    page = context.new_page()
    page.set_viewport_size({"width": 360, "height": 800})
    for path, shown in (
        ("/run/genesis", "nav a[aria-current]"),
        ("/run/", "nav a[aria-current]"),
        ("/run/blocks", "tbody td:nth-child(4)"),  # height, miner, posts and votes
        ("/run/", "#last-blocks tbody td:nth-child(4)"),
        ("/run/members", "tbody td:nth-child(4)"),  # peer, part, accuracy or posts, and the next
    ):
        page.goto(place.address + path)
        box = page.locator(shown).first.bounding_box()
        assert box is not None
        assert box["x"] >= 0, path
        assert box["x"] + box["width"] <= 360, path
    for path in ("/", "/run/", "/run/member/1"):
        page.goto(place.address + path)
        for figure in page.locator("dt", has_text="accuracy").locator("xpath=following-sibling::dd").all():
            figure.evaluate("item => { item.querySelector('.whole').textContent = '100.0 %'; }")
            assert figure.evaluate("item => item.querySelector('.whole').getClientRects().length") == 1
            beyond = figure.evaluate("item => item.scrollWidth - item.clientWidth")
            assert beyond <= 0, path


def test_without_script_everything_is_there_and_a_reload_shows_what_is_new(place: Place, browser: Browser) -> None:
    with browser.new_context(java_script_enabled=False) as context:
        page: Page = context.new_page()
        page.goto(f"{place.address}/run/")
        expect(page.locator("#last-blocks tbody tr")).to_have_count(5)
        expect(page.locator("#accuracy polyline")).to_have_count(2)
        page.get_by_text("Numbers").click()
        expect(page.locator("#accuracy details tbody tr")).to_have_count(5)
        page.goto(f"{place.address}/live/")
        before = place.live.state.height
        expect(page).to_have_title(f"live: height {before}")


def test_the_keyboard_is_enough(place: Place, context: BrowserContext) -> None:
    page = context.new_page()
    page.goto(f"{place.address}/run/")
    page.keyboard.press("Tab")
    focused = page.locator(":focus")
    expect(focused).to_have_text("Skip to the content")
    assert page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
    page.locator("#q").focus()
    page.keyboard.type("3")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("What “3” may mean")
    page.get_by_role("link", name="peer 3").press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Peer 3")
