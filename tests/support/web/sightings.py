"""Sightings of candidates by nodes, and the line that pages keep of a block."""

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from fedchain.chain.block import Block
from fedchain.chain.explorer.columns import Columns, Line
from fedchain.chain.storage.sqlite import Store
from fedchain.crypto.address import address
from fedchain.files.layout import TIMELINE_FILE
from fedchain.node.shell.timeline import SeenBlock, SeenCandidate, TimelineFile
from fedchain.web.app import Site
from fedchain.web.chains import open_chains
from fedchain.web.places import find_places
from tests.support.chain.builders import ChainBuilder, genesis, keys
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
