"""Blocks that lost."""

from pathlib import Path

from fedchain.chain.block import Block
from fedchain.chain.storage.sqlite import Store
from fedchain.chain.storage.store import Candidate
from fedchain.files.layout import SCENARIO_FILE
from tests.support.chain.builders import ChainBuilder, genesis, keys
from tests.support.chain.explored import write
from tests.support.web.sightings import client
from tests.support.web.sightings import net as net


def test_a_block_shows_who_lost_to_it_and_when_each_came(net: tuple[Path, list[Block], Block]) -> None:
    folder, blocks, lost = net
    shown = client(folder).get("/net/block/3").text
    table = shown.partition('id="candidates"')[2].partition("</section>")[0]
    assert table.index(lost.hash.hex()) < table.index(blocks[2].hash.hex())
    assert table.count(">lost<") == table.count(">final<") == 1
    assert [piece in table for piece in ("7.0 s", "8.0 s", "7.001 s", "8.5 s")] == [True, True, False, False]
    assert f'lost: <code class="hash" title="{lost.hash.hex()}"' in client(folder).get("/net/blocks").text
    assert 'id="candidates"' not in client(folder).get("/net/block/2").text


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
    assert "A simulation writes the accuracy of each member when it is finished" in member
    assert "Losing blocks are shown only if they came to the first peer" in client(folder).get("/net/blocks").text
    assert "a simulation records the blocks that came to its first peer" in client(folder).get("/net/block/3").text
