"""Accuracies of members in a file: what is written is read, and no line that somebody spoilt does harm."""

from pathlib import Path

import pytest

from fedchain.files.layout import MEMBERS_FILE
from fedchain.files.members import MemberAccuracy, members_text, read_members

MEASURED = [MemberAccuracy(1, 0, 0.5, 0.25), MemberAccuracy(2, 3, 1.0)]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert list(read_members(tmp_path)) == []
    (tmp_path / MEMBERS_FILE).write_text(members_text(MEASURED))
    assert list(read_members(tmp_path)) == MEASURED


@pytest.mark.parametrize(
    "line", ['"', "x" * 200_000, "1,0,1e308,", "1,0,nan,", "1,0,0.5,-1", f"{'9' * 400},0,0.5,", "1,-1,0.5,", "1,0,0.5"]
)
def test_a_damaged_line_is_skipped(tmp_path: Path, line: str) -> None:
    header, first, second = members_text(MEASURED).splitlines()
    (tmp_path / MEMBERS_FILE).write_text("\n".join([header, first, line, second]) + "\n")
    assert list(read_members(tmp_path)) == MEASURED
