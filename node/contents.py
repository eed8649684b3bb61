"""Contents: the payloads and knowledges a node holds in memory, and those it is fetching for somebody who waits.

What has been in a block is in the store too, so memory is needed only for the open phase and the last few blocks.
"""

from collections.abc import Iterable

from fedchain.chain.exceptions import LimitReached
from fedchain.chain.knowledge import ContentLookup
from fedchain.chain.transaction import PostKey, Transaction
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import Chunk
from fedchain.network.sync import Downloads, Request


class Contents:
    """Content-addressed bytes, and the posts whose payloads are on their way.

    Args:
        stored: what the node persisted.
    """

    def __init__(self, stored: ContentLookup) -> None:
        self._stored = stored
        self._held: dict[Hash, bytes] = {}
        self._downloads = Downloads()
        self._waiting: dict[PostKey, Transaction] = {}

    def get(self, content_hash: Hash) -> bytes | None:
        """Bytes by their hash, from memory or from the store."""
        held = self._held.get(content_hash)
        return self._stored(content_hash) if held is None else held

    def require(self, content_hash: Hash) -> bytes:
        """Bytes that must be here: the tree or our own posts refer to them."""
        content = self.get(content_hash)
        assert content is not None, "what the tree and our own posts refer to is held or stored"
        return content

    def put(self, content_hash: Hash, data: bytes) -> None:
        """Hold bytes that hash to ``content_hash``."""
        self._held[content_hash] = data

    def waiting(self, key: PostKey) -> Transaction | None:
        """The post under ``key``, if it waits for its payload."""
        return self._waiting.get(key)

    def senders_waited_for(self) -> set[PublicKey]:
        """Members whose posts wait for their payloads."""
        return {post.sender for post in self._waiting.values()}

    def await_payload(self, post: Transaction, provider: PublicKey, now_ms: int) -> list[Request]:
        """Fetch the payload of ``post`` and keep the post until then. Raises LimitReached."""
        requests = self._downloads.want(post.payload_hash, post.payload_size, provider, now_ms)
        self._waiting[post.key] = post
        return requests

    def add_provider(self, member: PublicKey, provider: PublicKey, now_ms: int) -> None:
        """Note that ``provider`` has the post of ``member``, and with it the payload that we may be fetching."""
        for post in self._waiting.values():
            if post.sender == member and post.payload_hash in self._downloads:
                self._downloads.want(post.payload_hash, post.payload_size, provider, now_ms)

    def fetch_missing(self, posts: Iterable[Transaction], provider: PublicKey, now_ms: int) -> list[Request]:
        """Fetch the payloads of a block's posts that are not here, as far as there is room for them."""
        requests: list[Request] = []
        for post in posts:
            if self.get(post.payload_hash) is None:
                try:
                    requests += self._downloads.want(post.payload_hash, post.payload_size, provider, now_ms)
                except LimitReached:
                    break  # the block comes again with a later status
        return requests

    def on_chunk(self, peer: PublicKey, chunk: Chunk, now_ms: int) -> tuple[bytes | None, list[Request]]:
        """Take a chunk; as :meth:`Downloads.on_chunk`, and what is complete is held."""
        content, requests = self._downloads.on_chunk(peer, chunk, now_ms)
        if content is not None:
            self._held[chunk.content_hash] = content
        return content, requests

    def take_waiting(self, content_hash: Hash) -> list[Transaction]:
        """Posts that waited for a payload which is here now."""
        ready = [post for post in self._waiting.values() if post.payload_hash == content_hash]
        for post in ready:
            del self._waiting[post.key]
        return ready

    def on_tick(self, now_ms: int) -> list[Request]:
        """Replace providers that do not answer."""
        return self._downloads.on_tick(now_ms)

    def forget(self, needed: set[Hash], fetched: set[Hash], current: tuple[int, int]) -> None:
        """Drop what is not ``needed``, downloads not in ``fetched``, and waiting posts of phases before ``current``."""
        self._waiting = {key: post for key, post in self._waiting.items() if key[:2] >= current}
        awaited = {post.payload_hash for post in self._waiting.values()}
        self._downloads.keep_only(awaited | fetched)
        self._held = {item: data for item, data in self._held.items() if item in needed}
