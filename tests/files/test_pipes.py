"""A pipe in a folder from somebody else counts as no file: its reader would wait for ever, and all pages with it."""

import os
from pathlib import Path

from fedchain.files.layout import LINKS_FILE, MEMBERS_FILE, METRICS_FILE, TIMELINE_FILE, read_metrics
from fedchain.files.links import read_links
from fedchain.files.members import read_members
from fedchain.web.seen import SeenFile


def test_nobody_waits_for_a_pipe(tmp_path: Path) -> None:
    for name in (MEMBERS_FILE, METRICS_FILE, TIMELINE_FILE, LINKS_FILE):
        os.mkfifo(tmp_path / name)
    assert [*read_metrics(tmp_path), *read_members(tmp_path)] == []
    assert read_links(tmp_path)[1] == 0
    seen = SeenFile(tmp_path, members=4)
    seen.look()
    assert seen.count == 0
