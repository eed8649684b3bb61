"""Chains in folders for tests of what reads them, and rules of a method that costs nothing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from fedchain.chain.block import Block
from fedchain.chain.storage.sqlite import Store
from fedchain.chain.storage.store import Content, Final
from fedchain.crypto.hashing import Hash
from tests.support.chain.builders import (
    ChainBuilder,
    SumRules,
    genesis,
    keys,
)

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

    def safetensors(self, knowledge: bytes) -> bytes:
        if len(knowledge) != 64:
            raise ValueError(f"{len(knowledge)} bytes are not a sum")
        return b"tensors:" + knowledge


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
    store.append([Content(key, data) for key, data in chain.contents.items() if key not in without])


@pytest.fixture
def chain() -> ChainBuilder:
    """Four rounds; in the third the last member did not post."""
    builder = ChainBuilder(GENESIS)
    builder.extend_many(2)
    builder.extend(posts=builder.posts(members=GENESIS.members[:3]))
    builder.extend(miner=keys(4)[3])
    return builder
