"""A report is one file."""

import base64
import hashlib
import re
from pathlib import Path

import pytest

from fedchain.chain.exceptions import NotFound, StoreError
from fedchain.chain.storage.sqlite import Store
from fedchain.node.founding.task import rules_of
from fedchain.web.report import write_report
from tests.support.chain.builders import ChainBuilder, genesis
from tests.support.chain.explored import FakeRules
from tests.support.web.builders import SCRIPT, write_run
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


def test_a_report_of_a_long_chain_has_its_newest_blocks(
    run: Path, chain: ChainBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for most, heights in ((3, ["5", "4", "3"]), (9, ["5", "4", "3", "2", "1"])):
        monkeypatch.setattr("fedchain.web.report.BLOCKS_MAX", most)
        write_report([run], rules_of, path := tmp_path / f"{most}.html")
        found = re.findall(r'<tr id="block-(\d+)"', path.read_text())
        assert found == heights


def test_a_report_is_about_one_chain(run: Path, chain: ChainBuilder, tmp_path: Path) -> None:
    write_run(tmp_path / "other", chain)
    with pytest.raises(NotFound, match=r"^2 chains found \(.*, other\): a report is about one$"):
        write_report([run, tmp_path / "other"], rules_of, tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_a_chain_that_has_not_begun_has_a_report(tmp_path: Path) -> None:
    Store.create(tmp_path / "new" / "chain", genesis(4)).close()
    write_report([tmp_path / "new"], lambda _: FakeRules(), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert genesis(4).chain_id.hex() in text
    assert "Class prototypes" not in text
