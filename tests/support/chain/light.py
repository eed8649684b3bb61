"""Chains and servers of light blocks for tests of light clients."""

from dataclasses import dataclass, field
from typing import Any

from fedchain.chain.exceptions import (
    NotFound,
)
from fedchain.chain.light.light_block import LightBlock
from fedchain.chain.light.verification import trust_genesis
from fedchain.crypto.hashing import Hash
from tests.support.chain.builders import ChainBuilder, double_vote, genesis, keys

HEIGHT = 9
"""Blocks of a chain, unless a test says otherwise."""


def light(chain: ChainBuilder, block_hash: Hash, *, with_state: bool = True) -> LightBlock:
    """A block of a chain as a light client gets it."""
    block = chain.blocks[block_hash]
    state = chain.states[block.header.parent_hash].encode() if with_state else b""
    return LightBlock(chain.genesis.chain_id, block.header, chain.certificate(block), block.evidence, state)


@dataclass
class Server:
    """A provider of the light blocks of a chain, up to its tip; it counts what it was asked for."""

    chain: ChainBuilder
    asked: list[int] = field(default_factory=list)
    lies: dict[int, LightBlock] = field(default_factory=dict)

    def light_block(self, height: int, *, with_state: bool) -> LightBlock:
        self.asked.append(height)
        if height in self.lies:
            return self.lies[height]
        found, tip = self.chain.tip, self.chain.state.height
        if not 1 <= height <= tip:
            raise NotFound(f"no block at height {height}")
        for _ in range(tip - height):
            found = self.chain.blocks[found].header.parent_hash
        return light(self.chain, found, with_state=with_state)


def chain_of(count: int = 4, height: int = HEIGHT, **overrides: Any) -> ChainBuilder:
    chain = ChainBuilder(genesis(count, **overrides))
    chain.extend_many(height)
    return chain


CHAIN = chain_of()
TIP = light(CHAIN, CHAIN.tip)
FIRST = Server(CHAIN).light_block(1, with_state=True)
BEGIN = trust_genesis(CHAIN.genesis)


def convicting_chain(**overrides: Any) -> ChainBuilder:
    """Seven members; the third and the sixth block convict one each, and two blocks follow."""
    chain = ChainBuilder(genesis(7, **overrides))
    culprits = iter(keys(7)[5:])
    for height in range(1, 9):
        crimes = [double_vote(next(culprits), chain.genesis, height)] if height in (3, 6) else []
        chain.extend(evidence=crimes)
    return chain
