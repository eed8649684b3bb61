"""A run folder for the commands of the explorer."""

from pathlib import Path

import pytest

from fedchain.chain.storage.sqlite import Store
from tests.support.chain.builders import ChainBuilder, genesis
from tests.support.chain.explored import write as write_chain

GENESIS = genesis(4)


def write(folder: Path, chain: ChainBuilder, *, without: tuple[bytes, ...] = ()) -> None:
    with Store.create(folder, chain.genesis) as store:
        write_chain(store, chain, without=without)


@pytest.fixture
def chain() -> ChainBuilder:
    builder = ChainBuilder(GENESIS)
    builder.extend_many(2)
    builder.extend(posts=builder.posts(members=GENESIS.members[:3]))
    return builder


@pytest.fixture
def run_folder(tmp_path: Path, chain: ChainBuilder) -> Path:
    write(tmp_path / "run" / "chain", chain)
    return tmp_path / "run"
