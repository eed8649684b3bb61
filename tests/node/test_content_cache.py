"""What a node holds in memory beside its store."""

from fedchain.crypto.hashing import Hash, sha256
from fedchain.node.core.content_cache import ContentCache
from tests.chain.builders import genesis

CONTENT = b"a knowledge"


def test_what_is_held_is_read_from_the_store_once() -> None:
    asked: list[Hash] = []

    def stored(content_hash: Hash) -> bytes | None:
        asked.append(content_hash)
        return CONTENT if content_hash == sha256(CONTENT) else None

    cache = ContentCache(genesis(4), stored, lambda *_: None, lambda _, data: data)
    assert [cache.hold(sha256(CONTENT)) for _ in range(3)] == [CONTENT] * 3
    assert asked == [sha256(CONTENT)]
    cache.forget(needed=set(), fetched=set(), current=(1, 0))
    assert cache.hold(sha256(CONTENT)) == CONTENT
    assert len(asked) == 2, "what is no longer needed is read again"
    assert cache.hold(sha256(b"unknown")) is None
