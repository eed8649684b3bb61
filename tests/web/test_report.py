"""A report is one file."""

import base64
import hashlib
import re
from pathlib import Path

import pytest

from fedchain.chain.exceptions import StoreError
from fedchain.node.founding.task import rules_of
from fedchain.web.report import write_report
from tests.support.chain.builders import ChainBuilder
from tests.support.web.builders import SCRIPT
from tests.support.web.pages import chain as chain
from tests.support.web.pages import client as client
from tests.support.web.pages import run as run


def test_a_report_is_one_file_that_loads_and_runs_nothing(run: Path, chain: ChainBuilder, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_report([run], rules_of, path)
    text = path.read_text()
    style = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    assert len(style) == 1
    digest = base64.b64encode(hashlib.sha256(style[0].encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'sha256-{digest}'" in text
    assert "<script" not in text
    assert SCRIPT not in text
    assert not re.search(r"""(?:src|href|action)="(?!#)""", text)
    places = set(re.findall(r'href="#([^"]+)"', text))
    assert places <= set(re.findall(r' id="([^"]+)"', text))
    assert {"block-5", "member-3"} <= places
    assert chain.tip.hex() in text
    assert "Class prototypes" in text
    with pytest.raises(StoreError, match="exists already; nothing is overwritten"):
        write_report([run], rules_of, path)


def test_a_full_disk_leaves_no_half_of_a_report(run: Path, chain: ChainBuilder, tmp_path: Path) -> None:
    (tmp_path / "report.html.unfinished").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as raised:
        write_report([run], rules_of, tmp_path / "report.html")
    assert raised.value.filename == str(tmp_path / "report.html")
    assert not [path for path in tmp_path.iterdir() if "report" in path.name]
