"""Good posts that all peers of a simulation share: a post that one peer found good takes a short path in the others."""

from collections.abc import Mapping

from fedchain.chain.post import Post
from fedchain.chain.state import State
from fedchain.crypto.hashing import Hash

HEADS = 2
"""Number of heads whose good posts are remembered: while a block becomes final, only some peers have it."""


class SharedPosts:
    """Remembers good posts with their payloads, each one object for all peers that get it."""

    def __init__(self) -> None:
        self._good: dict[Hash, dict[Hash, bytes]] = {}  # payloads by head and post

    def note(self, state: State, post: Post, payload: bytes) -> None:
        """See :class:`~fedchain.node.core.posts.GoodPosts`."""
        good = self._good.get(state.block_hash)
        if good is None:
            good = self._good[state.block_hash] = {}
            if len(self._good) > HEADS:
                del self._good[next(iter(self._good))]
        good[post.hash] = payload

    def at(self, state: State) -> Mapping[Hash, bytes]:
        """See :class:`~fedchain.node.core.posts.GoodPosts`."""
        return self._good.get(state.block_hash) or {}
