"""Processes that all read the same tests import a share of them first, and keep what these are compiled to."""

import importlib
import sys

import pytest

from tests.support.paths import ROOT
from tests.support.shares import import_share


def test_each_file_is_in_one_share(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = []

    def note(name: str) -> None:
        imported.append((name, sys.dont_write_bytecode))
        raise ImportError("is told later")

    monkeypatch.setattr(importlib, "import_module", note)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    files = [ROOT / "tests" / name for name in ("test_a.py", "b/test_b.py", "test_c.py")]
    for number in (0, 1):
        import_share(files, number, 2)
    assert imported == [("tests.test_a", False), ("tests.test_c", False), ("tests.b.test_b", False)]
    assert sys.dont_write_bytecode
