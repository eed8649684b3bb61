"""Chains in folders for tests of what reads them, and rules of a method that costs nothing."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fedchain.chain.block import Block
from fedchain.chain.explorer.audit import ChainAudit
from fedchain.chain.explorer.explorer import Explorer
from fedchain.chain.light.bisection import bisect
from fedchain.chain.light.verification import trust_genesis
from fedchain.chain.storage.database import DATABASE
from fedchain.chain.storage.sqlite import Store
from fedchain.chain.storage.store import Contents, Final
from fedchain.crypto.hashing import Hash
from fedchain.crypto.signatures import is_valid_signature
from tests.support.chain.builders import (
    BLOCK_MS,
    CREATED_MS,
    ChainBuilder,
    SumRules,
    genesis,
    keys,
)
from tests.support.chain.light import Server, light

GENESIS = genesis(4)


@dataclass(frozen=True)
class Summary:
    labels: Sequence[int] = (2, 5)
    holders: Sequence[int] = (4, 1)
    norms: Sequence[float] = (1.5, 2.0)
    cosines: Sequence[Sequence[float]] = ((1.0, 0.25), (0.25, 1.0))


class FakeRules(SumRules):
    """The sum, read as if it were two class prototypes."""

    def __init__(self, found: Summary | None = Summary()) -> None:
        self.found = found

    def summary(self, knowledge: bytes) -> Summary | None:
        if len(knowledge) != 64:
            raise ValueError(f"{len(knowledge)} bytes are not a sum")
        return self.found

    def safetensors(self, knowledge: bytes) -> Iterator[bytes | memoryview]:
        if len(knowledge) != 64:
            raise ValueError(f"{len(knowledge)} bytes are not a sum")
        return iter([b"tensors:", knowledge])


def finals(chain: ChainBuilder, final: Callable[[Block], Final] | None = None) -> list[Final]:
    """The chain up to the tip, without what branches off."""
    blocks, tip = list[Block](), chain.tip
    while tip in chain.blocks:
        blocks.append(chain.blocks[tip])
        tip = blocks[-1].header.parent_hash
    return [(final or chain.final)(block) for block in reversed(blocks)]


def write(store: Store, chain: ChainBuilder, *, without: Sequence[Hash] = (), base: int = 1) -> None:
    """Final blocks from ``base`` up to the tip, and contents."""
    for record in finals(chain)[base - 1 :]:
        store.append([record])
    store.append([Contents({key: data for key, data in chain.contents.items() if key not in without})])


def write_joined(store: Store, chain: ChainBuilder) -> tuple[int, ...]:
    """The head and the light blocks that lead to it, as a node has them that joined; returns their heights."""
    height = chain.state.height
    found = bisect(chain.genesis, trust_genesis(chain.genesis), Server(chain), height, is_valid_signature).path
    write(store, chain, base=height)
    store.append([light(chain, block.header.hash) for block in found])
    return tuple(block.header.height for block in found)


@pytest.fixture
def chain() -> ChainBuilder:
    """Four rounds; in the third the last member did not post."""
    builder = ChainBuilder(GENESIS)
    builder.extend_many(2)
    builder.extend(posts=builder.posts(members=GENESIS.members[:3]))
    builder.extend(miner=keys(4)[3])
    return builder


Explore = Callable[..., Explorer]


@pytest.fixture
def explore(tmp_path: Path) -> Iterator[Explore]:
    """An explorer of what was built, or of final blocks that a test made; ``without`` some contents."""
    with ExitStack() as stores:
        count = 0

        def explore(chain: ChainBuilder, records: Sequence[Final] | None = None, **options: Any) -> Explorer:
            nonlocal count
            count += 1
            store = stores.enter_context(Store.create(tmp_path / f"chain-{count}", chain.genesis))
            if records is None:
                write(store, chain, **options)
            else:
                store.append(records)
                store.append([Contents(chain.contents)])
            return Explorer(store)

        yield explore


@pytest.fixture
def explorer(chain: ChainBuilder, explore: Explore) -> Explorer:
    return explore(chain)


def main_chain(chain: ChainBuilder) -> list[Block]:
    return [record.block for record in finals(chain)]


def clocks(voters: Sequence[bytes], *offsets_ms: int, height: int) -> Mapping[bytes, int]:
    return {
        voter: CREATED_MS + height * BLOCK_MS + offset for voter, offset in zip(sorted(voters), offsets_ms, strict=True)
    }


def verdicts(report: ChainAudit) -> list[str]:
    return [check.verdict for check in report.blocks]


def execute(explorer: Explorer, statement: str) -> Explorer:
    """The same chain after somebody changed the database under it."""
    with closing(sqlite3.connect(explorer._store.folder / DATABASE)) as connection, connection:
        assert connection.execute(statement).rowcount != 0
    return Explorer(explorer._store)
