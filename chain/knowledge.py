"""Knowledge is a function of the chain: how a block's posts become the bytes behind its ``knowledge_root``.

The chain sees payloads and knowledge as bytes. What they mean is the learning method's business; ``Rules`` is all
that the chain asks of it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from fedchain.chain.block import Block
from fedchain.chain.exceptions import InvalidBlock, MissingPayload
from fedchain.chain.genesis import Genesis
from fedchain.chain.state import State, phase_rule
from fedchain.chain.validation import validate_payload
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey

ContentLookup = Callable[[Hash], bytes | None]
"""Content-addressed bytes by their hash; None where they are not held."""


class Rules(Protocol):
    """What a learning method decides for the chain. Both functions are pure."""

    def check(self, phase: str, payload: bytes) -> None:
        """Raise ValueError if ``payload`` is not well-formed for ``phase``."""

    def aggregate(
        self, phase: str, round_number: int, knowledge: bytes, posts: Sequence[tuple[PublicKey, bytes]]
    ) -> bytes:
        """Knowledge after ``posts`` (sender, payload; in sender order); the same posts give the same bytes.

        Raises ValueError if well-formed payloads do not fit together.
        """


def missing_contents(parent: State, block: Block, content: ContentLookup) -> list[Hash]:
    """Hashes that :func:`recompute` needs and ``content`` lacks."""
    needed = [transaction.payload_hash for transaction in block.transactions]
    return [item for item in (parent.knowledge_root, *needed) if content(item) is None]


def recompute(genesis: Genesis, rules: Rules, parent: State, block: Block, content: ContentLookup) -> bytes:
    """The knowledge that ``block`` must leave behind, computed from its posts. An empty block keeps the old one.

    Raises:
        MissingPayload: not everything that is needed is held here.
        InvalidPayload: a payload is not what its transaction says, or the method cannot read it.
        InvalidBlock: the payloads do not fit together.
    """
    if missing := missing_contents(parent, block, content):
        first, total = missing[0].hex(), len(block.transactions) + 1
        raise MissingPayload("payload", f"{len(missing)} of {total} not held, the first is {first}")
    knowledge = _held(content, parent.knowledge_root)
    if not block.transactions:
        return knowledge
    phase = phase_rule(genesis, parent).name
    posts = []
    for transaction in block.transactions:
        payload = _held(content, transaction.payload_hash)
        validate_payload(transaction, payload, partial(rules.check, phase))
        posts.append((transaction.sender, payload))
    try:
        return rules.aggregate(phase, parent.round, knowledge, posts)
    except ValueError as error:
        raise InvalidBlock("aggregate", str(error)) from None


def _held(content: ContentLookup, content_hash: Hash) -> bytes:
    data = content(content_hash)
    assert data is not None, "missing_contents was asked first"
    return data
