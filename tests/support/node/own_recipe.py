"""A folder with a recipe of one's own."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.chain.builders import keys
from tests.support.paths import DOCS

TUTORIAL = DOCS / "tutorials" / "own-data.md"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the tutorial's ``mytask.py`` and the key of a member; it is the current one."""
    code, *_ = re.findall(r"```python\n(.*?)```", TUTORIAL.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "mytask.py").write_text(code, encoding="utf-8")
    keys(2)[0].save(tmp_path / "key.pem")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in ("mytask", "other"):
        sys.modules.pop(name, None)
