"""Processes that all read the same tests: each compiles a share of the files, and finds the rest compiled."""

import importlib
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.paths import ROOT


def import_share(files: Sequence[Path], number: int, count: int) -> None:
    """Import one of ``count`` shares of test files, as pytest names them, and keep what they are compiled to.

    To rewrite their `assert` takes as long as all else that pytest does before the first test. A file that cannot be
    imported is told of when pytest comes to it.
    """
    was, sys.dont_write_bytecode = sys.dont_write_bytecode, False
    try:
        for file in files[number::count]:
            with suppress(Exception, pytest.skip.Exception):
                importlib.import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))
    finally:
        sys.dont_write_bytecode = was
