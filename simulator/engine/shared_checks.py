"""Checks that all peers of a simulation share: each is computed once, by the first peer that needs it."""

from fedchain.chain.genesis import Genesis
from fedchain.chain.knowledge import Rules
from fedchain.chain.post import Post
from fedchain.chain.state import State
from fedchain.crypto.hashing import Hash
from fedchain.node.core.checks import Checks
from fedchain.node.core.contents.content_cache import Intern

HEADS = 2
"""Number of heads whose good posts are remembered: while a block becomes final, only some peers have it."""


class SharedChecks(Checks):
    """Checks that remember good posts with their payloads, each one object for all peers that get it."""

    def __init__(self, genesis: Genesis, rules: Rules, intern: Intern) -> None:
        super().__init__(genesis, rules, intern)
        self._good: dict[Hash, dict[Hash, bytes]] = {}  # payloads by head and post

    def note_good(self, state: State, post: Post, payload: bytes) -> None:
        """See :class:`Checks`."""
        good = self._good.get(state.block_hash)
        if good is None:
            good = self._good[state.block_hash] = {}
            if len(self._good) > HEADS:
                del self._good[next(iter(self._good))]
        good[post.hash] = payload

    def knows(self, state: State, post: Post, payload: bytes) -> bool:
        """See :class:`Checks`."""
        good = self._good.get(state.block_hash)
        return good is not None and good.get(post.hash) is payload
