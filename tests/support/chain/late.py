"""Chains in which late posts count."""

from collections.abc import Sequence
from typing import Any

from fedchain.chain.block import Block
from fedchain.chain.genesis import Genesis
from fedchain.chain.membership.change import CHANGES_VERSION
from fedchain.chain.post import Post
from tests.support.chain.builders import ChainBuilder, genesis


def late_genesis(count: int = 5, late_rounds: int = 2, **fields: Any) -> Genesis:
    """A founding document with which posts count up to so many rounds late."""
    said: dict[str, Any] = {"version": CHANGES_VERSION, "late_rounds": late_rounds} | fields
    return genesis(count, **said)


def late_chain(count: int = 5, late_rounds: int = 2, **fields: Any) -> ChainBuilder:
    """A chain from such a document after its first round, which everybody is counted in."""
    chain = ChainBuilder(late_genesis(count, late_rounds, **fields))
    chain.extend_many(len(chain.genesis.phases))
    return chain


def place(post: Post) -> tuple[bytes, int]:
    """Sort key of a block's posts."""
    return post.sender, post.round


def without(chain: ChainBuilder, *numbers: int) -> tuple[Post, ...]:
    """The posts for the open phase, but those of the members with these seats."""
    absent = {chain.genesis.members[number] for number in numbers}
    return tuple(post for post in chain.posts() if post.sender not in absent)


def skip(chain: ChainBuilder, *numbers: int) -> list[Post]:
    """Close the open phase without some members; returns the posts that they owe then."""
    owed = [post for post in chain.posts() if post.sender in {chain.genesis.members[number] for number in numbers}]
    chain.extend(posts=without(chain, *numbers))
    return owed


def extend_with(chain: ChainBuilder, late: Sequence[Post], *numbers: int) -> Block:
    """Close the open phase with late posts, and without the posts of some members."""
    return chain.extend(posts=sorted((*without(chain, *numbers), *late), key=place))
