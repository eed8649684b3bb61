"""`make docs` builds all pages without a warning, and without a network."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_the_pages_are_built_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    done = subprocess.run([*command, ROOT / "docs", tmp_path], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    commands = (tmp_path / "reference" / "commands.html").read_text(encoding="utf-8")
    assert 'id="fedchain-genesis-new"' in commands
    assert "phase-timeout-s" in commands
    classes = (tmp_path / "reference" / "api.html").read_text(encoding="utf-8")
    assert "fedchain.learning.method.Method.aggregate" in classes
    for page in tmp_path.glob("**/*.html"):
        loaded = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(https?:[^"]+)"', page.read_text(encoding="utf-8"))
        assert loaded == [], f"{page.name} loads something from elsewhere"
