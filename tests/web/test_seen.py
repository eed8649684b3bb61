"""Blocks that lost, and what nodes saw of a block before it was final."""

import json
import math
import os
from dataclasses import asdict, replace
from pathlib import Path

import msgspec
import pytest
from starlette.testclient import TestClient

from fedchain.chain.storage.sqlite import Store
from fedchain.crypto.address import address
from fedchain.files.layout import TIMELINE_FILE
from fedchain.node.shell.timeline import SeenBlock, SeenCandidate, TimelineFile, TrainingResult
from fedchain.web.app import Site
from fedchain.web.chains import open_chains
from fedchain.web.places import find_places
from fedchain.web.seen import SeenFile
from tests.support.chain.builders import ChainBuilder, genesis
from tests.support.chain.explored import FakeRules, write
from tests.support.web.sightings import HOME
from tests.support.web.sightings import net as net

CANDIDATE = SeenCandidate("ab" * 32, "member", 3, "cd" * 32, 5)


def test_lines_are_found_as_they_come_and_by_height(tmp_path: Path) -> None:
    file, writer = SeenFile(tmp_path, 8), TimelineFile(tmp_path / TIMELINE_FILE)
    line = SeenBlock(1, "ab" * 32, None, 9, ())
    file.look()
    assert file.count == 0
    for height in (1, 2, 4):
        writer.add(replace(line, height=height))
    file.look()
    writer.add(replace(line, height=5))
    file.look()
    assert file.count == 4
    assert [block.height for block in file.blocks(2, 9)] == [2, 4, 5]
    assert [block.height for block in file.blocks(3, 3)] == []
    (tmp_path / TIMELINE_FILE).unlink()
    writer.add(replace(line, height=7))
    file.look()
    assert [block.height for block in file.blocks(0, 9)] == [7]


@pytest.mark.parametrize("more", [0, 3])
def test_a_file_that_is_written_anew_is_read_from_its_beginning(tmp_path: Path, more: int) -> None:
    """A run in the same folder writes a file of the same name, as long as the one before or longer."""
    path, file = tmp_path / TIMELINE_FILE, SeenFile(tmp_path, 8)
    found = dict[bool, bytes]()
    for is_new in (False, True):
        writer = TimelineFile(tmp_path / f"written-{is_new}")
        for height in range(1, 5 + more * is_new):
            training = TrainingResult(height, 0.25 + is_new / 2, None)
            writer.add(SeenBlock(height, ("cd" if is_new else "ab") * 32, 3, 9, (), training))
        found[is_new] = (tmp_path / f"written-{is_new}").read_bytes()
    path.write_bytes(found[False])
    file.look()
    version = file.version
    path.write_bytes(found[True])
    os.utime(path, ns=(0, 0))  # a clock may be coarse
    file.look()
    assert file.version != version
    assert {block.hash[:2] for block in file.blocks(1, 9)} == {"cd"}
    assert {item.accuracy for item in file.trainings.values()} == {0.75}
    assert file.count == 4 + more


def test_what_training_measured_is_kept_by_round_and_read_with_lines_that_have_none(tmp_path: Path) -> None:
    old = asdict(SeenBlock(1, "ab" * 32, 3, 9, (CANDIDATE,)))
    del old["training"], old["failed"], old["nothing"]
    for name in ("seen", "valid", "refused"):
        del old["candidates"][0][name]
    (tmp_path / TIMELINE_FILE).write_text(json.dumps(old, separators=(",", ":")) + "\n")
    file, writer = SeenFile(tmp_path, 8), TimelineFile(tmp_path / TIMELINE_FILE)
    for height in (2, 3):
        writer.add(SeenBlock(height, "ab" * 32, 3, 9, (), TrainingResult(height - 1, height / 10, None)))
    file.look()
    assert file.trainings == {1: TrainingResult(1, 0.2, None), 2: TrainingResult(2, 0.3, None)}
    assert [block.training for block in file.blocks(1, 3)] == [
        None,
        TrainingResult(1, 0.2, None),
        TrainingResult(2, 0.3, None),
    ]


def test_a_stopped_node_s_accuracy_is_read_from_its_timeline(tmp_path: Path) -> None:
    chain = ChainBuilder(genesis(4))
    blocks = chain.extend_many(3)
    folder = tmp_path / "node"
    with Store.create(folder / "chain", chain.genesis) as store:
        write(store, chain)
        store.append([chain.blocks[chain.tip].transactions[0]])
    (owner,) = {address(chain.blocks[chain.tip].transactions[0].sender)}
    writer = TimelineFile(folder / TIMELINE_FILE)
    for number, block in enumerate(blocks[:2], 1):
        line = SeenBlock(number, block.hash.hex(), 3, 9, (), TrainingResult(number, 0.5 + number / 100, 1.25))
        writer.add(line)
    shown = Site(open_chains(find_places([folder]), lambda _: FakeRules()))
    (found,) = shown.chains.values()
    found.look()
    asked = TestClient(shown.app, base_url=HOME)
    page = asked.get(f"/node/member/{owner}").text
    assert '<section id="member-accuracy"' in page
    assert [text in page for text in ("51.0 %", "52.0 %")] == [True, True]
    version = found.look()
    writer.add(SeenBlock(3, blocks[2].hash.hex(), 3, 9, (), TrainingResult(3, 0.66, None)))
    assert found.look() != version
    assert "66.0 %" in asked.get(f"/node/member/{owner}?again").text


@pytest.mark.parametrize(
    "change",
    [
        {"candidates": None},
        {"candidates": [{}]},
        {"candidates": [1]},
        {"trained_ms": "1"},
        {"final_ms": -1},
        {"final_ms": 2**70},
        {"hash": ["ab"]},
        {"more": 1},
        {"failed": 1},
        {"posts": [{"member": -1, "after_ms": 1}]},
        {"posts": [{"member": 1, "after_ms": 1, "reason": None}]},
        {"failed": [{"attempt": "1", "why": {}}]},
        {"failed": [{"attempt": 1, "why": {"split": "-1"}}]},
        {"candidates": [asdict(CANDIDATE) | {"seen": "xyz"}]},
        {"candidates": [asdict(CANDIDATE) | {"valid": "f" * 5_000}]},
        {"candidates": [asdict(CANDIDATE) | {"seen": "100"}]},
        {"failed": [{"attempt": 1, "why": {"split": "100"}}]},
        {"posts": [{"member": 8, "after_ms": 1}]},
        {"candidates": [asdict(CANDIDATE) | {"refused": ["late"]}]},
        {"training": 1},
        {"training": {"round": 1}},
        {"nothing": [{"member": 8, "reason": "there are eight"}]},
        {"nothing": [{"member": 0, "reason": "x" * 9_999}]},
        {"training": {"round": "1", "accuracy": None, "epsilon": None}},
        {"training": {"round": 1, "accuracy": float("nan"), "epsilon": None}},
        {"training": {"round": 1, "accuracy": 0.5, "epsilon": -1.0}},
    ],
)
def test_a_line_that_is_damaged_is_left_out(tmp_path: Path, change: dict[str, object]) -> None:
    line = asdict(SeenBlock(1, "ab" * 32, 3, 9, ()))
    lines = [json.dumps(item, separators=(",", ":")) for item in (line | change, line | {"height": 2})]
    lines[1:1] = ["nonsense", "[" * 9_999, '{"height":1,', '{"height":99999999999999999999999}']
    (tmp_path / TIMELINE_FILE).write_text("\n".join(lines) + '\n{"height":3,"ha')
    file = SeenFile(tmp_path, 8)
    file.look()
    assert [block.height for block in file.blocks(0, 9)] == [2]
    assert not file.trainings


def test_noise_that_hides_nothing_hides_no_line(tmp_path: Path) -> None:
    block = SeenBlock(1, "ab" * 32, 3, 9, (), TrainingResult(1, 0.5, math.inf))
    TimelineFile(tmp_path / TIMELINE_FILE).add(block)
    assert msgspec.json.decode((tmp_path / TIMELINE_FILE).read_bytes())["training"]["epsilon"] == "Infinity"
    file = SeenFile(tmp_path, 8)
    file.look()
    assert [*file.blocks(1, 1)] == [block]


def test_damage_hides_no_line_that_follows(tmp_path: Path) -> None:
    line = TimelineFile(tmp_path / "whole")
    for height in (1, 2):
        line.add(SeenBlock(height, "ab" * 32, None, 1_000, ()))
    first, second = (tmp_path / "whole").read_bytes().splitlines(keepends=True)
    damage = b"noise\rnoise\n" + b'{"height":99999999999999999,"hash":1}\n'
    (tmp_path / TIMELINE_FILE).write_bytes(first + damage + second)
    file = SeenFile(tmp_path, 8)
    file.look()
    assert [block.height for block in file.blocks(1, 9)] == [1, 2]
