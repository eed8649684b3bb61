"""The traffic between a run's members, as a file."""

from pathlib import Path

import pytest

from fedchain.files.layout import LINKS_FILE
from fedchain.files.links import Link, links_text, read_links

LINKS = [Link(0, 1, 1_000, 3, 150), Link(1, 0, 2**40, 0, 0)]


def test_what_was_written_is_read(tmp_path: Path) -> None:
    (tmp_path / LINKS_FILE).write_text(links_text(LINKS))
    links, damaged = read_links(tmp_path)
    assert (links.tolist(), damaged) == ([[0, 1, 1_000, 3, 150], [1, 0, 2**40, 0, 0]], 0)
    links, damaged = read_links(tmp_path, 64)
    assert (links.tolist(), damaged) == ([[0, 1, 1_000, 3, 150]], 1)


@pytest.mark.parametrize(
    "line",
    ["", "0,1,5,1", "0,1,-5,1,1", "0,1,x,1,1", "0,1,5,1,1,1", f"0,1,{'9' * 30},1,1", f"{'9' * 30},1,5,1,1", "\x00" * 9],
)
def test_damaged_lines_are_skipped_and_counted(tmp_path: Path, line: str) -> None:
    (tmp_path / LINKS_FILE).write_text(links_text([LINKS[0]]) + line + "\n" + "1,0,7,1,1\n")
    links, damaged = read_links(tmp_path)
    assert (links[:, 2].tolist(), damaged) == ([1_000, 7], int(line != ""))


def test_a_run_may_have_none(tmp_path: Path) -> None:
    links, damaged = read_links(tmp_path)
    assert (links.shape, damaged) == ((0, 5), 0)
