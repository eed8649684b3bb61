"""Notes of a node on blocks before they are final."""

import json
import logging
import os
import resource
from pathlib import Path

import pytest

from fedchain.node.shell import timeline
from fedchain.node.shell.timeline import SeenBlock, TimelineFile, line_of_block, members_in, members_text

LINE = SeenBlock(1, "ab" * 32, 200, 3_000, ())


def test_a_line_a_block_and_a_torn_one_makes_way(tmp_path: Path) -> None:
    path = tmp_path / "timeline.jsonl"
    TimelineFile(path).add(LINE)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"height":2,"ha')
    TimelineFile(path).add(LINE)
    assert path.read_bytes() == whole + whole
    assert json.loads(whole) == {
        "height": 1,
        "hash": "ab" * 32,
        "trained_ms": 200,
        "final_ms": 3_000,
        "candidates": [],
        "training": None,
        "failed": [],
        "posts": [],
        "nothing": [],
    }


def test_members_of_a_line_are_the_bits_of_a_number() -> None:
    assert (members_text(0), members_text(0b1000_0000_0101)) == ("0", "805")
    assert (list(members_in("0")), list(members_in("805"))) == ([], [0, 2, 11])


def test_the_older_half_goes_when_the_file_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "SIZE_MAX", 1_000)
    path = tmp_path / "timeline.jsonl"
    file, sizes = TimelineFile(path), []
    for height in range(1, 51):
        file.add(SeenBlock(height, "ab" * 32, None, 9, ()))
        sizes.append(path.stat().st_size)
    heights = [json.loads(line)["height"] for line in path.read_bytes().splitlines()]
    assert max(sizes) <= 1_000
    assert heights == [*range(heights[0], 51)]
    assert len(heights) >= 3


def test_a_disk_that_fills_keeps_no_half_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "timeline.jsonl"
    torn = line_of_block(LINE) * 1_000 + b'{"height":2,"ha'
    path.write_bytes(torn)
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(torn) // 2, usual[1]))
    try:
        TimelineFile(path).add(LINE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert [item.name for item in tmp_path.iterdir()] == ["timeline.jsonl"]
    assert path.read_bytes() == torn
    TimelineFile(path).add(LINE)
    assert path.read_bytes() == line_of_block(LINE) * 1_001


def test_a_disk_that_refuses_is_told_of_once_and_ends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = TimelineFile(tmp_path / "nowhere" / "timeline.jsonl")
    with caplog.at_level(logging.WARNING, "fedchain.node"):
        file.add(LINE)
        file.add(LINE)
    assert [record.getMessage().rpartition(" is ")[2] for record in caplog.records] == [
        "not written any more: No such file or directory"
    ]


def test_a_pipe_in_its_place_does_not_hold_up_the_node(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    os.mkfifo(tmp_path / "timeline.jsonl")
    TimelineFile(tmp_path / "timeline.jsonl").add(LINE)
    assert caplog.messages == [
        f"{tmp_path}/timeline.jsonl is not written any more: it is a pipe or a device, and no file"
    ]
