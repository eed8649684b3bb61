"""A block that is judged on two final ones, and changed so that it breaks a rule."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.exceptions import (
    Refused,
)
from fedchain.chain.genesis import AggregatorRule
from fedchain.chain.post import Post
from fedchain.chain.state import State
from fedchain.chain.transition import judge_block
from fedchain.crypto.keys import PublicKey, is_valid_signature
from tests.support.chain.builders import (
    GLOBAL,
    UPDATE,
    ChainBuilder,
    double_vote,
    genesis,
    keys,
)
from tests.support.chain.peer import Peer, encode_final

KEYS = keys(12)
STRANGER = KEYS[11]
TWO_PHASES: dict[str, Any] = {"phases": (UPDATE, GLOBAL), "aggregator": AggregatorRule.FIXED}
CENTRALIZED: dict[str, Any] = {"centralized": True, "aggregator": AggregatorRule.FIXED}


class Scene:
    """Two final blocks that everybody has, and a third one, ``block``, that is judged."""

    def __init__(self, count: int = 4, **overrides: Any) -> None:
        self.genesis = genesis(count, **overrides)
        self.builder = ChainBuilder(self.genesis)
        self.peer = Peer(self.genesis)
        self.first, self.second = self.step(), self.step()
        self.block = self.propose()

    def step(self, **extension: Any) -> Block:
        """One more final block that everybody has."""
        block = self.builder.extend(self.peer.state.block_hash, **extension)
        self.peer.receive_final(encode_final(block, self.builder.certificate(block)))
        self.peer.contents |= self.builder.contents
        return block

    def propose(self, **extension: Any) -> Block:
        """A valid block that nobody has yet, whose payloads everybody holds."""
        self.block = self.builder.extend(self.parent.block_hash, **extension)
        self.peer.contents |= self.builder.contents
        return self.block

    @property
    def parent(self) -> State:
        return self.peer.state

    @property
    def posts(self) -> tuple[Post, ...]:
        return self.block.transactions

    @property
    def certificate(self) -> Certificate:
        assert self.block.certificate is not None
        return self.block.certificate

    def post(self, **changes: Any) -> Post:
        """The block's first post with other fields, signed anew."""
        changed = replace(self.posts[0], **changes)
        key = next(key for key in KEYS if key.public_key == changed.sender)
        return replace(changed, signature=key.sign(changed.signing_message(self.genesis.chain_id)))

    def with_post(self, post: Post, **header: Any) -> Block:
        """The block with that post in place of its first one."""
        others = [item for item in self.posts[1:] if item.sender != post.sender]
        return self.remake(transactions=sorted([*others, post], key=lambda item: item.sender), **header)

    def with_voters(self, voters: Sequence[PublicKey], **said: Any) -> Block:
        """The block with a certificate for its parent by those voters."""
        return self.remake(certificate=self.builder.certificate(self.parent.block_hash, voters, **said))

    def remake(self, **changes: Any) -> Block:
        return self.builder.remake(self.block, **changes)


Case = Callable[[], tuple[Scene, Block, str]]
"""The scene, the block that breaks the rule, and the whole message."""


def at_aggregator_phase(**overrides: Any) -> Scene:
    """A scene whose block closes the phase of the aggregator."""
    scene = Scene(**(TWO_PHASES | overrides))
    scene.step()
    scene.propose()
    return scene


def with_conviction() -> Scene:
    """Seven members, the second of which was convicted by the final block before."""
    scene = Scene(7)
    scene.step(evidence=[double_vote(KEYS[1], scene.genesis, 2)])
    scene.propose()
    return scene


def empty(scene: Scene, **changes: Any) -> Block:
    """The scene's block without posts."""
    return scene.remake(transactions=(), knowledge_root=scene.parent.knowledge_root, **changes)


def expect_refusal(scene: Scene, block: Block, error: type[Refused], message: str) -> None:
    """A block is refused with that error, and leaves the peer as it was."""
    before = scene.peer.snapshot()
    with pytest.raises(error) as caught:
        scene.peer.receive_block(block.encode())
    assert type(caught.value) is error
    assert str(caught.value) == message
    assert caught.value.rule == message.split(":")[0]
    assert scene.peer.snapshot() == before


def expect_cost(case: Case, checks: int) -> None:
    """A block is refused after at most so many checks of a signature."""
    scene, block, message = case()
    calls: list[PublicKey] = []

    def counting(public_key: PublicKey, signature: bytes, content: bytes) -> bool:
        calls.append(public_key)
        return is_valid_signature(public_key, signature, content)

    with pytest.raises(Refused) as caught:
        judge_block(scene.genesis, scene.parent, block, None, counting)
    assert str(caught.value) == message
    assert len(calls) <= checks
