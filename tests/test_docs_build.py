"""`make docs` builds all pages without a warning, and without a network."""

import html
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fedchain
from tests.support.paths import ROOT


@pytest.mark.long
def test_the_pages_are_built_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    done = subprocess.run([*command, ROOT / "docs", tmp_path], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    commands = (tmp_path / "reference" / "commands.html").read_text(encoding="utf-8")
    assert 'id="fedchain-genesis-new"' in commands
    assert "--settings" in commands
    classes = (tmp_path / "reference" / "api.html").read_text(encoding="utf-8")
    assert "fedchain.learning.method.Method.aggregate" in classes
    simulate = _description(classes, "fedchain.simulate")
    fields = re.findall(r"<p><strong>(\w+)</strong> ", simulate)
    assert fields == [*inspect.signature(fedchain.simulate).parameters, "ScenarioError", "LearningError"]
    assert "peers: int | None = None," in _text(simulate)
    names = re.findall(r'<dt class="field-\w+">(\w+)', classes)
    assert set(names) == {"Parameters", "Raises"}, "a type was made of what stands before a colon"
    assert "~fedchain" not in classes, "a signature was not understood"
    for page in tmp_path.glob("**/*.html"):
        loaded = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(https?:[^"]+)"', page.read_text(encoding="utf-8"))
        assert loaded == [], f"{page.name} loads something from elsewhere"


def _description(page: str, name: str) -> str:
    """A page's description of a function, up to the next one."""
    start = page.index(f'id="{name}"')
    return page[start : page.index('<dt class="sig', start)]


def _text(page: str) -> str:
    """The text of a piece of HTML."""
    return html.unescape(re.sub(r"<[^>]+>", "", page))
