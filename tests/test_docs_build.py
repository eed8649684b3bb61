"""`make docs` builds all pages without a warning, and without a network."""

import html
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext

import fedchain
from tests.support.paths import ROOT
from tests.support.web.browsing import AXE, AXE_RUN, LEVELS_A_AND_AA, NEEDS_CHROMIUM
from tests.support.web.browsing import browser as browser
from tests.support.web.browsing import context as context


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    done = subprocess.run([*command, ROOT / "docs", folder], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@NEEDS_CHROMIUM
@pytest.mark.slow
def test_the_pages_read_well_for_everybody(built: Path, context: BrowserContext) -> None:
    page, found = context.new_page(), list[str]()
    for name in ("index", "explorer", "guides/simulate"):
        page.goto((built / f"{name}.html").as_uri())
        page.evaluate(AXE)
        for scheme, width in (("light", 1400), ("dark", 390), ("light", 320)):
            page.emulate_media(color_scheme="light" if scheme == "light" else "dark")
            page.set_viewport_size({"width": width, "height": 900})
            for violation in page.evaluate(AXE_RUN, LEVELS_A_AND_AA)["violations"]:
                found.append(f"{name} {scheme} {width}: {violation['id']} {violation['nodes'][0]['target']}")
    for path in built.glob("**/*.html"):
        if re.search(r'<th class="head">(<p></p>)?</th>', path.read_text(encoding="utf-8")):
            found.append(f"{path.name}: a header without text")
    assert found == []


@pytest.mark.long
def test_the_pages_are_built_without_a_warning(built: Path) -> None:
    commands = (built / "reference" / "commands.html").read_text(encoding="utf-8")
    assert 'id="fedchain-genesis-new"' in commands
    assert "--settings" in commands
    classes = (built / "reference" / "api.html").read_text(encoding="utf-8")
    assert "fedchain.learning.method.Method.aggregate" in classes
    simulate = _description(classes, "fedchain.simulate")
    fields = re.findall(r"<p><strong>(\w+)</strong> ", simulate)
    assert fields == [*inspect.signature(fedchain.simulate).parameters, "ScenarioError", "LearningError"]
    assert "peers: int | None = None," in _text(simulate)
    names = re.findall(r'<dt class="field-\w+">(\w+)', classes)
    assert set(names) == {"Parameters", "Raises"}, "a type was made of what stands before a colon"
    assert "~fedchain" not in classes, "a signature was not understood"
    for page in built.glob("**/*.html"):
        loaded = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(https?:[^"]+)"', page.read_text(encoding="utf-8"))
        assert loaded == [], f"{page.name} loads something from elsewhere"


def _description(page: str, name: str) -> str:
    """A page's description of a function, up to the next one."""
    start = page.index(f'id="{name}"')
    return page[start : page.index('<dt class="sig', start)]


def _text(page: str) -> str:
    """The text of a piece of HTML."""
    return html.unescape(re.sub(r"<[^>]+>", "", page))
