"""Where the time of a block went."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from fedchain.chain.block import Block
from fedchain.chain.membership.amendment import amendment_of
from fedchain.chain.membership.change import propose_amendment
from fedchain.chain.storage.sqlite import Store
from fedchain.files.layout import TIMELINE_FILE
from fedchain.node.shell.timeline import TimelineFile
from fedchain.web.measured import Measured
from fedchain.web.timeline import bar, split, told, watched
from tests.support.chain.builders import UPDATE, ChainBuilder, genesis, keys
from tests.support.chain.changes import UNTIL, approved, living
from tests.support.chain.explored import write
from tests.support.web.sightings import candidate, client, line_of, seen
from tests.support.web.sightings import net as net


def test_a_node_s_block_is_split_by_what_the_nodes_saw(net: tuple[Path, list[Block], Block]) -> None:
    folder, _, _ = net
    shown = client(folder).get("/net/block/3").text
    # 10 s from block to block, 4 s of which were mining; the slower trained for 1.5 s, and votes began with the first
    assert "train 1.5 s · exchange and wait 3.5 s · mine 4.0 s · vote 1.0 s" in shown
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
    assert "wait for the round 4.0 s · train 0.5 s · exchange and wait 1.0 s · mine 4.0 s · vote 0.5 s" in shown[2]


def test_a_block_waited_for_the_interval_that_held_then(tmp_path: Path) -> None:
    chain = living(4, round_interval_ms=4_000)
    for sequence, interval_ms in ((0, 0), (1, 2_000)):
        amendment = propose_amendment(
            amendment_of({"round_interval_ms": interval_ms}), "", sequence=sequence, until=UNTIL
        )
        chain.extend(changes=[approved(chain, amendment)])
        chain.extend()
    chain.extend_many(2)
    with Store.create(tmp_path / "node" / "chain", chain.genesis) as store:
        write(store, chain)
    shown = [client(tmp_path / "node").get(f"/node/block/{height}").text for height in range(1, 7)]
    waits = [re.findall(r"<p>(?:wait for the round ([.0-9]+ s))?", page.partition("</svg>")[2])[0] for page in shown]
    assert waits == ["", "4.0 s", "", "", "2.0 s", "2.0 s"]


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


def test_a_bar_has_the_width_of_its_share_and_a_longer_one_all_of_it() -> None:
    assert [(item.name, item.x, item.width) for item in bar((("mine", 100), ("vote", 0), ("train", 300)), 800)] == [
        ("mine", 0.0, 125.0),
        ("train", 125.0, 375.0),
    ]
    assert [item.width for item in bar((("mine", 100), ("train", 300)), 200)] == [250.0, 750.0]
