"""Chains and servers of light blocks for tests of light clients."""

from dataclasses import dataclass, field
from typing import Any

from fedchain.chain.block import Block
from fedchain.chain.exceptions import (
    NotFound,
)
from fedchain.chain.genesis import Admission
from fedchain.chain.light.bisection import Gap
from fedchain.chain.light.light_block import LightBlock
from fedchain.chain.membership.change import ChangeKind, sign_change
from fedchain.crypto.hashing import Hash
from tests.support.chain.builders import ChainBuilder, double_vote, genesis, keys
from tests.support.chain.changes import approved, living_genesis

HEIGHT = 9
"""Blocks of a chain, unless a test says otherwise."""

CHANGING_MEMBERS, STRANGERS = 20, 2
"""Members of a long chain, and keys beside theirs and the newcomers'."""


def light(chain: ChainBuilder, block_hash: Hash, *, with_proof: bool = True) -> LightBlock:
    """A block of a chain as a light client gets it."""
    block = chain.blocks[block_hash]
    chain_id, certificate = chain.genesis.chain_id, chain.certificate(block)
    state = chain.states[block.header.parent_hash]
    if state.records:
        below = chain.blocks[block.header.parent_hash].header if with_proof and state.height else None
        return LightBlock(chain_id, block.header, certificate, members=state.member_set, below=below)
    return LightBlock(chain_id, block.header, certificate, block.evidence, state.encode() if with_proof else b"")


@dataclass
class Server:
    """A provider of the light blocks of a chain, up to its tip; it counts what it was asked for."""

    chain: ChainBuilder
    asked: list[int] = field(default_factory=list)
    lies: dict[int, LightBlock] = field(default_factory=dict)

    def light_block(self, height: int, *, with_proof: bool, gap: Gap | None = None) -> LightBlock:
        self.asked.append(height)
        if height in self.lies:
            return self.lies[height]
        found, tip = self.chain.tip, self.chain.state.height
        if not 1 <= height <= tip:
            raise NotFound(f"no block at height {height}")
        for _ in range(tip - height):
            found = self.chain.blocks[found].header.parent_hash
        return light(self.chain, found, with_proof=with_proof)


def chain_of(count: int = 4, height: int = HEIGHT, **overrides: Any) -> ChainBuilder:
    chain = ChainBuilder(genesis(count, **overrides))
    chain.extend_many(height)
    return chain


def renewed_chain(rounds: int, count: int = 20, churn: int = 5) -> ChainBuilder:
    """In each round ``churn`` members join, and those that have been members for longest leave; two rounds follow."""
    document = living_genesis(count, admission=Admission.SPONSORS, sponsors=1, name="renewed")
    chain, people, until = ChainBuilder(document, newcomers=rounds * churn), keys(count + rounds * churn), rounds + 1
    for number in range(rounds):
        changes = []
        for seat in range(number * churn, (number + 1) * churn):
            left = people[seat], document.chain_id, ChangeKind.LEAVE
            changes.append(sign_change(*left, sequence=chain.state.records[seat].sequence, until=until))
            come = sign_change(people[count + seat], document.chain_id, ChangeKind.JOIN, until=until)
            changes.append(approved(chain, come))
        chain.extend(changes=changes)
    chain.extend_many(2)
    return chain


def changing_chain(blocks: int, every: int) -> tuple[ChainBuilder, tuple[Block, ...]]:
    """A chain of 20 members in which one leaves and one comes in each ``every`` rounds, and its blocks."""
    newcomers = blocks // every
    document = living_genesis(CHANGING_MEMBERS, admission=Admission.SPONSORS, sponsors=1, name="long")
    people = keys(CHANGING_MEMBERS + newcomers)
    chain, made = ChainBuilder(document, newcomers=newcomers + STRANGERS), list[Block]()
    for number in range(blocks):
        changes = []
        if number % every == 0 and number // every < newcomers:
            seat = number // every
            left = people[seat], document.chain_id, ChangeKind.LEAVE
            changes.append(sign_change(*left, sequence=chain.state.records[seat].sequence, until=blocks + 1))
            come = sign_change(people[CHANGING_MEMBERS + seat], document.chain_id, ChangeKind.JOIN, until=blocks + 1)
            changes.append(approved(chain, come))
        made.append(chain.extend(changes=changes))
    return chain, tuple(made)


def convicting_chain(**overrides: Any) -> ChainBuilder:
    """Seven members; the third and the sixth block convict one each, and two blocks follow."""
    chain = ChainBuilder(genesis(7, **overrides))
    culprits = iter(keys(7)[5:])
    for height in range(1, 9):
        crimes = [double_vote(next(culprits), chain.genesis, height)] if height in (3, 6) else []
        chain.extend(evidence=crimes)
    return chain
