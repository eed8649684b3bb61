"""Charts in a real browser: values at the pointer and by keyboard, parts, files, and without a script."""

import re
from collections.abc import Iterator
from typing import Literal

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, Response, Route, expect

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
from tests.support.web.builders import append, document, learning_chain, write_run

pytestmark = NEEDS_CHROMIUM

ACCURACIES = (0.5, 0.7, 0.8, 0.85, 0.875, 0.9, 0.91, 0.92)

WIDTHS = (1400, 390, 320)
"""Pixels."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("charts")
    write_run(folder / "run", learning_chain(document("a run", rounds=9), 8), ACCURACIES)
    with served(folder) as address:
        yield f"{address}/run/rounds"


@pytest.fixture
def page(context: BrowserContext, address: str) -> Page:
    page = context.new_page()
    page.goto(address)
    return page


def plane_of(page: Page) -> Locator:
    return page.get_by_role("slider")


def reading(page: Page) -> list[str]:
    return page.locator(".chart .legend b").all_inner_texts()


def point(page: Page, share: float) -> tuple[float, float]:
    box = plane_of(page).bounding_box()
    assert box is not None
    return box["x"] + share * box["width"], box["y"] + box["height"] / 2


def drag(page: Page, start: float, end: float, button: Literal["left", "right"] = "left") -> None:
    page.mouse.move(*point(page, start))
    page.mouse.down(button=button)
    page.mouse.move(*point(page, end))
    page.mouse.up(button=button)


def test_the_pointer_reads_the_nearest_values_and_leaves_the_last_ones(page: Page) -> None:
    page.mouse.move(*point(page, 0.3))
    expect(page.locator(".legend .at")).to_have_text("at round 3")
    assert reading(page) == ["80.0 %", "40.0 %", "3"]
    assert page.locator(".cursor .at").count() == 2
    page.mouse.move(0, 0)
    expect(page.locator(".cursor")).to_have_count(0)
    assert reading(page)[:2] == ["92.0 %", "46.0 %"]


def test_the_keyboard_reads_values_and_shows_parts(page: Page) -> None:
    plane = plane_of(page)
    plane.focus()
    for key, text in (
        ("Home", "1: "),
        ("ArrowRight", "2: "),
        ("End", "8: "),
        ("ArrowLeft", "7: "),
        ("PageDown", "6: "),
    ):
        page.keyboard.press(key)
        expect(plane).to_have_attribute("aria-valuetext", re.compile(f"^round {text}.*own test sets"))
    page.keyboard.press("+")
    expect(page.locator(".xs text").first).to_have_text("4")
    expect(page.locator(".xs text").last).to_have_text("8")
    expect(plane).to_be_focused()
    assert "accuracy.first=4&accuracy.last=8" in page.url
    page.keyboard.press("-")
    expect(page.locator(".xs text").first).to_have_text("2")
    page.keyboard.press("0")
    expect(page.locator(".xs text").first).to_have_text("1")
    page.keyboard.press("Escape")
    expect(page.locator(".cursor")).to_have_count(0)


def test_keys_go_no_further_than_the_ends_and_do_not_scroll_the_page(page: Page, address: str) -> None:
    errors = list[str]()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.set_viewport_size({"width": 1280, "height": 300})
    page.goto(f"{address}?accuracy.first=3&accuracy.last=5")
    plane = plane_of(page)
    plane.focus()
    scrolled = page.evaluate("scrollY")
    for key, text in (
        ("ArrowRight", "5: "),
        ("PageUp", "5: "),
        ("PageDown", "4: "),
        ("Home", "3: "),
        ("ArrowLeft", "3: "),
        ("ArrowDown", "3: "),
    ):
        page.keyboard.press(key)
        expect(plane).to_have_attribute("aria-valuetext", re.compile(f"^round {text}"))
    assert errors == []
    assert page.evaluate("scrollY") == scrolled


@pytest.mark.parametrize(
    ("first", "last", "wider"), [(1, 4, "first=0&accuracy.last=6"), (3, 3, "first=2&accuracy.last=4")]
)
def test_a_larger_part_has_more_on_both_sides(page: Page, address: str, first: int, last: int, wider: str) -> None:
    page.goto(f"{address}?accuracy.first={first}&accuracy.last={last}")
    plane_of(page).focus()
    page.keyboard.press("-")
    expect(page.locator(".xs text").last).to_have_text(wider[-1])
    assert f"accuracy.{wider}" in page.url


def test_what_was_read_in_a_part_that_is_left_is_forgotten(page: Page) -> None:
    plane_of(page).focus()
    page.keyboard.press("End")
    expect(page.locator(".legend .at")).to_have_text("at round 8")
    page.get_by_text("Part, scale and files").click()
    page.get_by_label("to", exact=True).fill("3")
    page.get_by_role("button", name="Show").click()
    expect(page.locator(".xs text").last).to_have_text("3")
    plane_of(page).focus()
    page.keyboard.press("0")
    expect(page.locator(".xs text").last).to_have_text("8")
    expect(page.locator(".cursor")).to_have_count(0)


def test_a_part_that_the_server_does_not_give_is_asked_for_as_a_page(page: Page) -> None:
    page.route(re.compile("accuracy.first"), lambda route: route.fulfill(status=502, body="<p>"), times=1)
    plane_of(page).focus()
    page.keyboard.press("+")
    expect(page.locator(".xs text").first).to_have_text("6")


def test_a_stretch_drawn_with_the_mouse_is_the_part_that_is_shown(page: Page) -> None:
    drag(page, 0.3, 0.72)
    expect(page.locator(".xs text").first).to_have_text("3")
    expect(page.locator(".xs text").last).to_have_text("6")
    page.get_by_role("link", name="the whole chart").click()
    expect(page.locator(".xs text").last).to_have_text("8")


def test_a_stretch_that_is_drawn_backwards_is_the_same_part(page: Page) -> None:
    drag(page, 0.72, 0.3)
    expect(page.locator(".xs text").first).to_have_text("3")
    assert "accuracy.first=3&accuracy.last=6" in page.url
    page.mouse.dblclick(*point(page, 0.5))
    expect(page.locator(".xs text").first).to_have_text("1")
    assert "accuracy" not in page.url


@pytest.mark.parametrize("button", ["left", "right"])
def test_a_click_shows_no_part_and_draws_no_stretch(page: Page, button: Literal["left", "right"]) -> None:
    page.mouse.move(*point(page, 0.3))
    page.mouse.down(button=button)
    page.mouse.up(button=button)
    page.mouse.move(*point(page, 0.72))
    expect(page.locator(".legend .at")).to_have_text("at round 6")
    expect(page.locator(".cursor rect")).to_have_count(0)
    assert "accuracy" not in page.url


def test_a_stretch_that_is_drawn_with_another_button_is_no_part(page: Page) -> None:
    """The menu of a browser is under it."""
    drag(page, 0.3, 0.72, button="right")
    expect(page.locator(".cursor rect")).to_have_count(0)
    assert "accuracy" not in page.url


def test_keys_of_the_browser_read_nothing(page: Page) -> None:
    plane = plane_of(page)
    expect(plane).to_have_attribute("aria-valuenow", "7")
    plane.focus()
    for key in ("Control+ArrowLeft", "Alt+ArrowDown", "Meta+Home", "Control+0", "Control+-"):
        page.evaluate("key => document.activeElement.dispatchEvent(new KeyboardEvent('keydown', key))", _event(key))
        expect(page.locator(".cursor")).to_have_count(0)
    page.keyboard.press("ArrowLeft")
    expect(plane).to_have_attribute("aria-valuenow", "6")


def _event(keys: str) -> dict[str, object]:
    modifier, _, key = keys.partition("+")
    return {"key": key, "bubbles": True, "cancelable": True, "ctrlKey": False} | {
        {"Control": "ctrlKey", "Alt": "altKey", "Meta": "metaKey"}[modifier]: True
    }


def test_parts_of_rounds_beyond_a_thousand_are_asked_for_by_their_numbers(page: Page) -> None:
    """A page writes them with a comma."""
    page.route("**/run/events", lambda route: route.abort())  # else the page is brought up to date
    page.reload()
    page.evaluate(
        """() => {
            for (const shape of document.querySelectorAll("svg.plane [data-x]"))
                shape.dataset.x = shape.dataset.x.split(";").map((x) => `1,00${x}`).join(";");
        }"""
    )
    plane_of(page).focus()
    page.keyboard.press("End")
    expect(page.locator(".legend .at")).to_have_text("at round 1,008")
    with page.expect_request(lambda request: "accuracy.first" in request.url) as asked:
        page.keyboard.press("+")
    assert "accuracy.first=1006&accuracy.last=1008" in asked.value.url


@pytest.mark.parametrize("has_script", [True, False])
def test_the_form_shows_a_part_and_its_files_with_and_without_a_script(
    browser: Browser, address: str, has_script: bool
) -> None:
    with browser.new_context(java_script_enabled=has_script) as context:
        page = context.new_page()
        page.goto(f"{address}?to=7")
        page.get_by_text("Part, scale and files").click()
        page.get_by_label("round", exact=True).fill("2")
        page.get_by_label("logarithmic").check()
        page.get_by_role("button", name="Show").click()
        expect(page.locator(".ys span")).to_have_text(["100 %", "10 %"])
        expect(page.locator(".xs text").first).to_have_text("2")
        assert "to=7" in page.url
        expect(page.locator("#rounds > .scroll tbody tr")).to_have_count(7)
        for kind, start in (("SVG", "<svg"), ("CSV", "round,")):
            with page.expect_download() as file:
                page.get_by_role("link", name=kind).click()
            assert file.value.path().read_text(encoding="utf-8").startswith(start)


def test_a_new_block_leaves_the_reader_where_it_is(
    context: BrowserContext, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, chain = tmp_path_factory.mktemp("growing"), learning_chain(document("growing"), 3)
    run = write_run(folder / "run", chain, ACCURACIES[:3])
    with served(folder) as address:
        page = context.new_page()
        page.goto(f"{address}/run/rounds")
        expect(page.locator("#live-state")).to_have_text("no node runs here")
        plane = plane_of(page)
        plane.focus()
        page.keyboard.press("Home")
        before = reading(page)
        append(run, chain, chain.extend(posts=[]))
        expect(page.locator("#rounds > .scroll tbody tr")).to_have_count(4)
        expect(plane).to_be_focused()
        assert reading(page) == before == ["50.0 %", "25.0 %", "1"]


def _held(page: Page, pattern: str, count: int) -> list[Route]:
    """The list that gets so many of the next requests for a page, which wait until they are continued."""
    held = list[Route]()
    page.route(re.compile(pattern), lambda route: held.append(route) if len(held) < count else route.continue_())
    return held


def _is_fetch(answer: Response) -> bool:
    return answer.request.resource_type == "fetch"


def _await_texts(page: Page) -> None:
    """Ask for the page once more: the texts of earlier answers come before that of this one."""
    page.evaluate("() => fetch(location.href).then((answer) => answer.text())")


@pytest.mark.parametrize("is_overtaken", [False, True])
def test_of_two_parts_that_are_asked_for_at_once_the_last_one_is_shown(
    page: Page, address: str, is_overtaken: bool
) -> None:
    with page.expect_response(_is_fetch):
        page.goto(address)
    _await_texts(page)  # a key that is pressed before the page has shown its answer may find no figure
    plane_of(page).focus()
    held = _held(page, "/run/rounds", 2)
    for count, key in enumerate(("+", "0"), 1):
        page.keyboard.press(key)
        wait_for_request(page, held, count)
    for route in held[::-1] if is_overtaken else held:
        with page.expect_response(_is_fetch):
            route.continue_()
    _await_texts(page)
    expect(page.locator(".xs text").first).to_have_text("1")
    assert page.url == address


def test_a_page_that_was_fetched_before_a_part_was_chosen_does_not_undo_that(
    context: BrowserContext, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, chain = tmp_path_factory.mktemp("chosen"), learning_chain(document("chosen", rounds=9), 7)
    run = write_run(folder / "run", chain, ACCURACIES[:7])
    with served(folder) as address:
        page = context.new_page()
        with page.expect_response(_is_fetch):
            page.goto(f"{address}/run/rounds")
        held = _held(page, "/run/rounds$", 1)
        append(run, chain, chain.extend(posts=[]))
        before = wait_for_request(page, held, 1)
        plane_of(page).focus()
        for key in ("Home", "+"):
            page.keyboard.press(key)
        expect(page.locator(".xs text").last).to_have_text("3")
        before.continue_()
        expect(page.locator("#rounds > .scroll tbody tr")).to_have_count(8)
        expect(page.locator(".xs text").last).to_have_text("3")
        assert "accuracy.last=3" in page.url


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_charts_read_well_for_everybody_and_nothing_is_wider_than_the_page(
    page: Page, scheme: Literal["light", "dark"]
) -> None:
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    for part in page.locator(".chart summary").all():
        part.click()
    plane_of(page).focus()
    page.keyboard.press("Home")
    page.evaluate(AXE)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        found = page.evaluate(AXE_RUN, LEVELS_A_AND_AA if scheme == "light" else CONTRAST)["violations"]
        assert [(item["id"], node["target"]) for item in found for node in item["nodes"]] == []
