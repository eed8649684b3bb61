"""A chain whose founders have all left, and a stranger among members that it never heard of."""

from functools import cache
from typing import cast

from fedchain.chain.block import Block
from fedchain.chain.storage.store import MemoryStore, Storage
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import FinalMessage
from fedchain.node.core.following.light_joining import Waypoint
from tests.support.chain.builders import ChainBuilder
from tests.support.chain.light import renewed_chain
from tests.support.node.crowd import Crowd
from tests.support.node.stage import Stage

ROUNDS, MEMBERS, CHURN = 24, 8, 2
HEIGHT = ROUNDS + 2
STRANGER = 199
"""A key that never is a member's."""

NEWEST = MEMBERS + ROUNDS * CHURN - 1
"""The key of the member that came last."""


@cache
def renewed() -> tuple[ChainBuilder, tuple[Block, ...]]:
    """A chain whose founders have all left: nobody that signed its head is in the founding document."""
    chain = renewed_chain(ROUNDS, MEMBERS, CHURN)
    return chain, _blocks_to(chain, chain.tip)


def _blocks_to(chain: ChainBuilder, found: bytes) -> tuple[Block, ...]:
    blocks = []
    while found != chain.genesis.chain_id:
        blocks.append(chain.blocks[found])
        found = blocks[-1].header.parent_hash
    return tuple(reversed(blocks))


def a_crowd(
    seed: int = 0,
    *,
    number: int = STRANGER,
    waypoint: Waypoint | None = None,
    store: Storage | None = None,
    follows: int = 0,
) -> Crowd:
    """A node that starts from the founding document, or has followed some blocks; a stranger unless given."""
    chain, blocks = renewed()
    stage = Stage(chain.genesis, number=number, is_heard=False, contributes=False)
    stage.chain, stage.victim.waypoint = chain, waypoint
    if store is not None:
        stage.victim.store = cast(MemoryStore, store)
    stage.restart(is_heard=False)
    for block in blocks[:follows]:
        stage.receive(FinalMessage(block, chain.certificate(block)))
    return Crowd(stage, blocks, seed)


def newest_members(count: int = MEMBERS) -> list[PublicKey]:
    """Members at the head, the newest first: the node has none of their keys from the founding document."""
    return list(reversed(renewed()[0].state.member_set.members))[:count]


@cache
def another_past(count: int = 12) -> tuple[ChainBuilder, tuple[Block, ...]]:
    """Blocks by somebody that has the keys of all founders, which are no members any more: certified, and no past."""
    other = ChainBuilder(renewed()[0].genesis)
    first = other.extend(posts=other.posts()[:-1])
    return other, (first, *other.extend_many(count - 1))
