"""The traffic between a run's members, as a file."""

from pathlib import Path

import pytest

from fedchain.files.layout import LINKS_FILE
from fedchain.files.links import Link, links_text, read_links

LINKS = [Link(0, 1, 1_000, 3, 150), Link(1, 0, 2**40, 0, 0)]


def test_what_was_written_is_read(tmp_path: Path) -> None:
    (tmp_path / LINKS_FILE).write_text(links_text(LINKS))
    assert read_links(tmp_path).tolist() == [[0, 1, 1_000, 3, 150], [1, 0, 2**40, 0, 0]]
    assert read_links(tmp_path, 60).tolist() == [[0, 1, 1_000, 3, 150]]


@pytest.mark.parametrize(
    "line", ["", "0,1,5,1", "0,1,-5,1,1", "0,1,x,1,1", "0,1,5,1,1,1", f"0,1,{'9' * 30},1,1", "\x00" * 9]
)
def test_damaged_lines_are_skipped(tmp_path: Path, line: str) -> None:
    (tmp_path / LINKS_FILE).write_text(links_text([LINKS[0]]) + line + "\n" + "1,0,7,1,1\n")
    assert read_links(tmp_path)[:, 2].tolist() == [1_000, 7]


def test_a_run_may_have_none(tmp_path: Path) -> None:
    assert read_links(tmp_path).shape == (0, 5)
