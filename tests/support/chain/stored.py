"""A stored chain for tests of the disk, its rows asked and altered."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fedchain.chain.storage.database import DATABASE
from fedchain.chain.storage.sqlite import Store
from fedchain.chain.storage.store import Candidate, Final, Record
from fedchain.crypto.hashing import sha256
from tests.support.chain.builders import ChainBuilder, genesis
from tests.support.chain.contents import LARGE, contents

GENESIS = genesis(3)
OWN = GENESIS.members[0]
SMALL = b"small" * 100

BLOCKS = 9
"""Final blocks of the stored chain."""


@pytest.fixture
def chain() -> ChainBuilder:
    """Nine final blocks and an open one."""
    builder = ChainBuilder(GENESIS)
    builder.extend_many(BLOCKS + 1)
    return builder


def finals_of(chain: ChainBuilder) -> list[Final]:
    blocks = sorted(chain.blocks.values(), key=lambda block: block.header.height)
    return [chain.final(block) for block in blocks if block.header.height <= BLOCKS]


def records_of(chain: ChainBuilder) -> list[Record]:
    tip = chain.blocks[chain.tip]
    posts = [post for post in tip.transactions if post.sender == OWN]
    return [*finals_of(chain), Candidate(tip, True), chain.vote(OWN, tip), *posts]


@pytest.fixture
def folder(tmp_path: Path, chain: ChainBuilder) -> Path:
    """A closed store with a chain, own statements, a small content and a large one."""
    with Store.create(tmp_path / "chain", GENESIS) as store:
        store.append([*records_of(chain), contents(SMALL, LARGE)])
    return tmp_path / "chain"


def execute(folder: Path, statement: str, *values: Any) -> None:
    with closing(sqlite3.connect(folder / DATABASE)) as connection, connection:
        assert connection.execute(statement, values).rowcount != 0


def ask(folder: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(folder / DATABASE)) as connection:
        return [value for (value,) in connection.execute(query)]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "fedchain.store"]


def expect_whole(store: Store) -> None:
    """Every block from the base to the head is there and follows the one before it."""
    head, base = store.head(), store.base()
    if head is None:
        assert base == 1
        return
    height, parent = head.block.header.height, None
    for place in range(base, height + 1):
        found = store.final(place)
        assert found is not None
        assert parent in (None, found[0].header.parent_hash)
        parent = found[0].hash
    assert head.block.header.state_root == sha256(head.state)


DAMAGE = "block = substr(block, 1, 40) || x'ff' || substr(block, 42)"


def recovery_connection(folder: Path) -> sqlite3.Connection:
    return sqlite3.connect(folder / DATABASE, isolation_level=None)
