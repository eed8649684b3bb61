"""Notes of a node on blocks before they are final."""

import json
import logging
from pathlib import Path

import pytest

from fedchain.chain.state import genesis_state
from fedchain.crypto.address import address
from fedchain.node.core.ledger import Entry
from fedchain.node.shell import timeline
from fedchain.node.shell.timeline import SeenBlock, TimelineFile, TrainingResult, Watch
from tests.support.chain.builders import ChainBuilder, genesis, keys

LINE = SeenBlock(1, "ab" * 32, 200, 3_000, ())


def entry(chain: ChainBuilder, miner: int, arrived_ms: int) -> Entry:
    block = chain.extend(chain.genesis.chain_id, miner=keys(4)[miner])
    return Entry(block, genesis_state(chain.genesis), arrived_ms)


def test_every_candidate_is_noted_once_with_when_it_came() -> None:
    chain = ChainBuilder(genesis(4))
    first, second = entry(chain, 0, 1_500), entry(chain, 1, 1_700)
    watch = Watch(since_ms=1_000)
    watch.look([first])
    watch.look([first, second])
    watch.train(80)
    watch.train(40)
    seen = watch.end(1, second.hash, 2_000)
    assert seen is not None
    assert (seen.height, seen.hash, seen.trained_ms, seen.final_ms) == (1, second.hash.hex(), 120, 1_000)
    found = [(item.hash, item.miner, item.posts, item.after_ms) for item in seen.candidates]
    members = [address(key.public_key) for key in keys(4)]
    assert found == [(first.hash.hex(), members[0], 4, 500), (second.hash.hex(), members[1], 4, 700)]
    assert seen.candidates[0].knowledge_root == first.block.header.knowledge_root.hex()


def test_what_training_measured_is_noted_with_the_block_that_came_next() -> None:
    watch = Watch(0)
    watch.measure(TrainingResult(3, 0.75, 1.5))
    seen = watch.end(5, bytes(32), 10)
    assert seen is not None
    assert (seen.trained_ms, seen.training) == (None, TrainingResult(3, 0.75, 1.5))


def test_who_saw_nothing_of_a_block_notes_nothing() -> None:
    assert Watch(0).end(1, bytes(32), 10) is None


def test_candidates_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "CANDIDATES_MAX", 2)
    chain, watch = ChainBuilder(genesis(4)), Watch(0)
    watch.look(entry(chain, number, number) for number in range(3))
    seen = watch.end(1, bytes(32), 9)
    assert seen is not None
    assert [item.after_ms for item in seen.candidates] == [0, 1]


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
    }


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


def test_a_disk_that_refuses_is_told_of_once_and_ends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = TimelineFile(tmp_path / "nowhere" / "timeline.jsonl")
    with caplog.at_level(logging.WARNING, "fedchain.node"):
        file.add(LINE)
        file.add(LINE)
    assert [record.getMessage().rpartition(" is ")[2] for record in caplog.records] == [
        "not written any more: No such file or directory"
    ]
