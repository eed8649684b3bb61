"""docs/python.md: all of its blocks run, one after the other; the first one in a script and in a notebook, too."""

import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

from tests.support.paths import DOCS

PAGE = DOCS / "python.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


CELL: dict[str, Any] = {"cell_type": "code", "execution_count": None, "id": "first", "metadata": {}, "outputs": []}
EMPTY = {"metadata": {}, "nbformat": 4, "nbformat_minor": 5}


@pytest.mark.long
def test_every_block_runs_and_the_first_one_in_a_notebook_too(tmp_path: Path) -> None:
    (tmp_path / "page.py").write_text("\nprint('next')\n".join(BLOCKS), encoding="utf-8")
    done = subprocess.run([sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    printed = done.stdout.split("next\n")
    assert len(printed) == len(BLOCKS)
    assert "scenario has no key 'peer'; did you mean 'peers'?" in done.stdout
    assert "int64 8 3" in done.stdout
    assert printed_by_notebook(BLOCKS[0], tmp_path) == printed[0]


def printed_by_notebook(code: str, folder: Path) -> str:
    """Output of a fresh kernel."""
    with warnings.catch_warnings():
        from_dict: Any = nbformat.from_dict
        warnings.simplefilter("ignore")  # a kernel on loopback warns of its own transport
        book = from_dict({**EMPTY, "cells": [{**CELL, "source": code}]})
        place = {"metadata": {"path": str(folder)}}
        nbclient.NotebookClient(book, timeout=300, kernel_name="python3", resources=place).execute()
    return "".join(part["text"] for part in book.cells[0].outputs if part.get("name") == "stdout")


def test_the_first_block_is_ten_lines_and_the_readme_s() -> None:
    assert len([line for line in BLOCKS[0].splitlines() if line]) <= 10
    assert f"```python\n{BLOCKS[0]}```" in (PAGE.parents[1] / "README.md").read_text(encoding="utf-8")
