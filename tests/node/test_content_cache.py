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
    cache.forget(needed=set(), recent=(), fetched=set(), current=(1, 0))
    assert cache.hold(sha256(CONTENT)) == CONTENT
    assert len(asked) == 2, "what is no longer needed is read again"
    assert cache.hold(sha256(b"unknown")) is None


def test_recent_contents_stay_in_memory_in_order_of_preference_as_far_as_there_is_room() -> None:
    cache = ContentCache(genesis(4), lambda _: None, lambda *_: None, lambda _, data: data, recent_size_max=10)
    contents = {bytes([name]): bytes([name]) * size for name, size in ((1, 20), (2, 4), (3, 7), (4, 6), (5, 1))}
    for content_hash, data in contents.items():
        cache.put(content_hash, data)
    cache.forget(needed={b"\x01"}, recent=[b"\x02", b"\x01", b"\x03", b"\x04", b"\x05"], fetched=set(), current=(1, 0))
    held = [name for name in contents if cache.get(name) is not None]
    assert held == [b"\x01", b"\x02", b"\x04"], "what is needed takes no room, and what does not fit lets others in"
    cache.forget(needed=set(), recent=[b"\x04"], fetched=set(), current=(1, 0))
    assert [name for name in contents if cache.get(name) is not None] == [b"\x04"]
