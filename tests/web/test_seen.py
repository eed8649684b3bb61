"""Blocks that lost, and what nodes saw of a block before it was final."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from fedchain.chain.block import Block
from fedchain.chain.explorer.columns import Columns, Line
from fedchain.chain.storage.sqlite import Store
from fedchain.chain.storage.store import Candidate
from fedchain.crypto.address import address
from fedchain.files.layout import SCENARIO_FILE, TIMELINE_FILE
from fedchain.node.shell.timeline import SeenBlock, SeenCandidate, TimelineFile, TrainingResult
from fedchain.web.app import Site
from fedchain.web.chains import open_chains
from fedchain.web.measured import Measured
from fedchain.web.places import find_places
from fedchain.web.seen import SeenFile
from fedchain.web.timeline import split, told, watched
from tests.support.chain.builders import UPDATE, ChainBuilder, genesis, keys
from tests.support.chain.explored import FakeRules, write

HOME = "http://localhost"


def candidate(block: Block, after_ms: int) -> SeenCandidate:
    header = block.header
    return SeenCandidate(
        hash=block.hash.hex(),
        miner=address(header.miner),
        posts=len(block.transactions),
        knowledge_root=header.knowledge_root.hex(),
        after_ms=after_ms,
    )


def seen(block: Block, trained_ms: int | None, final_ms: int, *candidates: SeenCandidate) -> SeenBlock:
    return SeenBlock(block.header.height, block.hash.hex(), trained_ms, final_ms, candidates)


def line_of(chain: ChainBuilder, folder: Path) -> Line:
    """The line that is kept of the only block of a chain."""
    with Store.create(folder / "chain", chain.genesis) as store:
        write(store, chain)
        columns = Columns(chain.genesis)
        columns.read(store, 1, 1)
        (line,) = columns.lines()
    return line


@pytest.fixture
def net(tmp_path: Path) -> tuple[Path, list[Block], Block]:
    """Two nodes of four; at height 3 a block of member 2 lost, which both saw and neither mined."""
    chain = ChainBuilder(genesis(4))
    blocks = chain.extend_many(3)
    lost = chain.extend(blocks[1].hash, miner=keys(4)[2])
    del chain.blocks[lost.hash]
    chain.tip = blocks[2].hash
    for number, (trained_ms, came_ms) in enumerate(((1_000, 8_500), (1_500, 8_000))):
        folder = tmp_path / "net" / f"node-{number}"
        with Store.create(folder / "chain", chain.genesis) as store:
            write(store, chain)
        final = candidate(blocks[2], came_ms)
        TimelineFile(folder / TIMELINE_FILE).add(
            seen(blocks[2], trained_ms, 9_000, candidate(lost, 7_000 + number), final)
        )
    return tmp_path / "net", blocks, lost


def client(folder: Path) -> TestClient:
    return TestClient(Site(open_chains(find_places([folder]), lambda _: FakeRules())).app, base_url=HOME)


def test_a_block_shows_who_lost_to_it_and_when_each_came(net: tuple[Path, list[Block], Block]) -> None:
    folder, blocks, lost = net
    shown = client(folder).get("/net/block/3").text
    table = shown.partition('id="candidates"')[2].partition("</section>")[0]
    assert table.index(lost.hash.hex()) < table.index(blocks[2].hash.hex())
    assert table.count(">lost<") == table.count(">final<") == 1
    assert [piece in table for piece in ("7.0 s", "8.0 s", "7.001 s", "8.5 s")] == [True, True, False, False]
    assert f'lost: <code class="hash" title="{lost.hash.hex()}"' in client(folder).get("/net/blocks").text
    assert 'id="candidates"' not in client(folder).get("/net/block/2").text


def test_a_node_s_block_is_split_by_what_the_nodes_saw(net: tuple[Path, list[Block], Block]) -> None:
    folder, _, _ = net
    shown = client(folder).get("/net/block/3").text
    # 10 s from block to block, 4 s of which were mining; the slower trained for 1.5 s, and votes began with the first
    assert "train 1.5 s · exchange 3.5 s · mine 4.0 s · vote 1.0 s" in shown
    assert "train, exchange and vote 6.0 s · mine 4.0 s" in client(folder).get("/net/block/2").text


def test_the_vote_on_a_block_that_a_failed_attempt_went_before_began_with_the_first_candidate(tmp_path: Path) -> None:
    chain = ChainBuilder(genesis(4))
    block = chain.extend()
    lost = chain.extend(chain.genesis.chain_id, miner=keys(4)[2])
    del chain.blocks[lost.hash]
    chain.tip = block.hash
    line = line_of(chain, tmp_path)
    nodes = [seen(block, 1_000, 9_000, candidate(lost, 5_000), candidate(block, 8_000))]
    assert watched(line, nodes) == (1_000, 1_000)
    assert watched(replace(line, attempt=1), nodes) == (1_000, 4_000)
    assert watched(replace(line, hash=lost.hash), nodes) is None


def test_a_round_whose_vote_nobody_measured_is_not_said_to_have_had_none() -> None:
    assert told(Measured(1, {"training_s": 1.0, "voting_s": 0.5})) == (1_000, 500)
    assert told(Measured(1, {"training_s": 1.0, "voting_s": 0.0})) is None


def test_what_a_round_waits_for_its_interval_is_no_exchange(tmp_path: Path) -> None:
    chain = ChainBuilder(genesis(4, phases=(UPDATE, UPDATE), round_interval_ms=4_000))
    blocks = chain.extend_many(4)
    folder = tmp_path / "node"
    with Store.create(folder / "chain", chain.genesis) as store:
        write(store, chain)
    final = candidate(blocks[2], 8_500)
    TimelineFile(folder / TIMELINE_FILE).add(seen(blocks[2], 500, 9_000, final))
    shown = [client(folder).get(f"/node/block/{height}").text for height in (1, 2, 3, 4)]
    assert ["wait for the round" in page for page in shown] == [False, False, True, False]
    assert "wait for the round 4.0 s · train 0.5 s · exchange 1.0 s · mine 4.0 s · vote 0.5 s" in shown[2]


@pytest.mark.parametrize(
    ("spent_ms", "waits_ms", "expected"),
    [
        (None, 3_000, (("wait", 3_000), ("posts", 3_000), ("mine", 4_000))),
        (None, 9_000, (("wait", 6_000), ("posts", 0), ("mine", 4_000))),
        ((1_000, 500), 3_000, (("wait", 3_000), ("train", 1_000), ("exchange", 1_500), ("mine", 4_000), ("vote", 500))),
        ((9_000, 500), 3_000, (("train", 9_000), ("exchange", 0), ("mine", 4_000), ("vote", 500))),
    ],
)
def test_waiting_takes_no_more_than_nothing_else_took(
    spent_ms: tuple[int, int] | None, waits_ms: int, expected: tuple[tuple[str, int], ...]
) -> None:
    assert split(10_000, 4_000, spent_ms, waits_ms) == expected


def test_a_block_that_its_own_node_mined_and_nobody_noted_is_lost_too(tmp_path: Path) -> None:
    chain = ChainBuilder(genesis(4))
    final = chain.extend()
    lost = chain.extend(chain.genesis.chain_id, miner=keys(4)[2])
    del chain.blocks[lost.hash]
    chain.tip = final.hash
    with Store.create(tmp_path / "node" / "chain", chain.genesis) as store:
        store.append([Candidate(lost, True), Candidate(final, True)])
        write(store, chain)
    shown = client(tmp_path / "node").get("/node/block/1").text.partition('id="candidates"')[2]
    assert lost.hash.hex() in shown
    assert shown.count(">lost<") == 1
    assert "the first peer" not in client(tmp_path / "node").get("/node/blocks").text + shown


def test_of_a_simulation_it_is_said_whose_lost_blocks_are_shown(net: tuple[Path, list[Block], Block]) -> None:
    folder, _, _ = net
    (folder / "node-0" / SCENARIO_FILE).write_text("", encoding="utf-8")
    member = client(folder).get("/net/member/0").text
    assert "A simulation keeps the mean accuracy of all members alone" in member
    assert "<dt>accuracy</dt>" not in member
    assert "Losing blocks are shown only if they came to the first peer" in client(folder).get("/net/blocks").text
    assert "a simulation records the blocks that came to its first peer" in client(folder).get("/net/block/3").text


def test_lines_are_found_as_they_come_and_by_height(tmp_path: Path) -> None:
    file, writer = SeenFile(tmp_path), TimelineFile(tmp_path / TIMELINE_FILE)
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


def test_what_training_measured_is_kept_by_round_and_read_with_lines_that_have_none(tmp_path: Path) -> None:
    old = asdict(SeenBlock(1, "ab" * 32, 3, 9, ()))
    del old["training"]
    (tmp_path / TIMELINE_FILE).write_text(json.dumps(old, separators=(",", ":")) + "\n")
    file, writer = SeenFile(tmp_path), TimelineFile(tmp_path / TIMELINE_FILE)
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
        {"training": 1},
        {"training": {"round": 1}},
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
    file = SeenFile(tmp_path)
    file.look()
    assert [block.height for block in file.blocks(0, 9)] == [2]
    assert not file.trainings


def test_damage_hides_no_line_that_follows(tmp_path: Path) -> None:
    line = TimelineFile(tmp_path / "whole")
    for height in (1, 2):
        line.add(SeenBlock(height, "ab" * 32, None, 1_000, ()))
    first, second = (tmp_path / "whole").read_bytes().splitlines(keepends=True)
    damage = b"noise\rnoise\n" + b'{"height":99999999999999999,"hash":1}\n'
    (tmp_path / TIMELINE_FILE).write_bytes(first + damage + second)
    file = SeenFile(tmp_path)
    file.look()
    assert [block.height for block in file.blocks(1, 9)] == [1, 2]
