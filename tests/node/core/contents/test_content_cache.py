"""Contents that a node holds in memory beside its store."""

from collections.abc import Iterable
from pathlib import Path
from unittest.mock import Mock

import pytest

from fedchain.chain.storage.sqlite import Store
from fedchain.chain.storage.store import Contents
from fedchain.crypto.hashing import Hash, sha256
from fedchain.files.spool import SpoolFolder, write_pieces
from fedchain.network.messages import CHUNK_SIZE, CandidateMessage, Chunk, GetContent, PostMessage
from fedchain.node.core.contents import content_cache as module
from fedchain.node.core.contents.content_cache import OWN_COPIES, ContentCache
from tests.support.chain.builders import genesis, keys, payload, post
from tests.support.node.stage import Stage, sent

CONTENT = b"a knowledge"
A, B = (key.public_key for key in keys(2))


def test_what_is_held_is_read_from_the_store_once() -> None:
    asked: list[Hash] = []

    def stored(content_hash: Hash) -> bytes | None:
        asked.append(content_hash)
        return CONTENT if content_hash == sha256(CONTENT) else None

    cache = ContentCache(genesis(4), stored, lambda *_: None, OWN_COPIES)
    assert [cache.hold(sha256(CONTENT)) for _ in range(3)] == [CONTENT] * 3
    assert asked == [sha256(CONTENT)]
    cache.forget(needed=set(), recent=(), fetched=set(), is_pending=lambda post: post[:2] >= (1, 0))
    assert cache.hold(sha256(CONTENT)) == CONTENT
    assert len(asked) == 2, "what is no longer needed is read again"
    assert cache.hold(sha256(b"unknown")) is None


def test_small_contents_of_the_last_blocks_are_left_to_a_store_that_has_them_in_memory() -> None:
    copies = Mock(wraps=OWN_COPIES, stored_size_min=3)
    cache = ContentCache(genesis(4), lambda _: None, lambda *_: None, copies)
    contents = {bytes([size]): bytes(size) for size in range(1, 5)}
    for content_hash, data in contents.items():
        cache.put(content_hash, data)
    cache.forget(needed={b"\x01"}, recent=contents, fetched=set(), is_pending=lambda post: post[:2] >= (1, 0))
    assert [len(data) for data in map(cache.get, contents) if data is not None] == [1, 3, 4]


@pytest.mark.parametrize("offset", [2**62, 2**63, 2**64 - 1])
def test_no_file_is_read_from_where_the_system_refuses_to(tmp_path: Path, offset: int) -> None:
    large = bytes(2**21)
    with Store.create(tmp_path / "chain", genesis(4)) as store:
        store.append([Contents({sha256(large): large})])
        cache = ContentCache(genesis(4), lambda _: None, store.content_part, OWN_COPIES)
        assert cache.chunk(A, GetContent(sha256(large), 0)) == Chunk(sha256(large), 0, bytes(CHUNK_SIZE))
        assert cache.chunk(A, GetContent(sha256(large), offset)) == Chunk(sha256(large), offset, b"")


def test_recent_contents_stay_in_memory_in_order_of_preference_as_far_as_there_is_room() -> None:
    cache = ContentCache(genesis(4), lambda _: None, lambda *_: None, OWN_COPIES, recent_size_max=10)
    contents = {bytes([name]): bytes([name]) * size for name, size in ((1, 20), (2, 4), (3, 7), (4, 6), (5, 1))}
    for content_hash, data in contents.items():
        cache.put(content_hash, data)
    cache.forget(
        needed={b"\x01"},
        recent=[b"\x02", b"\x01", b"\x03", b"\x04", b"\x05"],
        fetched=set(),
        is_pending=lambda post: post[:2] >= (1, 0),
    )
    held = [name for name in contents if cache.get(name) is not None]
    assert held == [b"\x01", b"\x02", b"\x04"], "what is needed takes no room, and what does not fit lets others in"
    cache.forget(needed=set(), recent=[b"\x04"], fetched=set(), is_pending=lambda post: post[:2] >= (1, 0))
    assert [name for name in contents if cache.get(name) is not None] == [b"\x04"]


def test_recent_contents_that_are_read_from_files_take_no_room(tmp_path: Path) -> None:
    spools = SpoolFolder(tmp_path, size_min=10)
    cache = ContentCache(genesis(4), lambda _: None, lambda *_: None, OWN_COPIES, 10, spools)
    large = write_pieces([bytes(100)], spools)
    for content_hash, data in ((b"\x01", large), (b"\x02", bytes(8)), (b"\x03", bytes(8))):
        cache.put(content_hash, data)
    cache.forget(set(), [b"\x01", b"\x02", b"\x03"], set(), lambda post: True)
    assert [cache.get(bytes([name])) is not None for name in (1, 2, 3)] == [True, True, False]
    assert cache.get(b"\x01") is large


def cache_of(wanted: Iterable[Hash] = (), parts: Iterable[Hash] = ()) -> ContentCache:
    """A cache of a node that wants these contents, and these parts."""
    cache = ContentCache(genesis(4), lambda _: None, lambda *_: None, OWN_COPIES)
    cache.wanted, cache.is_part = {*wanted}.copy, {*parts}.__contains__
    return cache


def test_a_download_ends_with_the_last_that_wants_it() -> None:
    waiting = post(keys(1)[0], genesis(4), 1, b"of a post that waits")
    names = (b"nobody's", b"somebody else's", b"a part", waiting.payload_hash)
    cache = cache_of(wanted=[b"somebody else's"], parts=[b"a part"])
    for content_hash in names[:3]:
        cache.fetch(content_hash, A, 0)
    cache.await_payload(waiting, A, 0)
    cache.release(*names, b"never heard of")
    assert [name for name in names if name in cache.downloads] == [*names[1:]]
    cache.stop_part(b"a part")
    assert b"a part" not in cache.downloads, "it is awaited as a content no more"


def test_what_is_released_may_be_fetched_again() -> None:
    cache = cache_of()
    for _ in range(2):
        assert cache.fetch(b"a state", A, 0) == [(A, GetContent(b"a state", 0))]
        cache.release(b"a state")


def test_contents_of_blocks_ahead_leave_room_for_those_of_the_open_height(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AHEAD_MAX", 2)
    posts = [post(keys(1)[0], genesis(4), 1, bytes([number])) for number in range(4)]
    cache = cache_of()
    assert len(cache.fetch_payloads(posts, A, 0, is_ahead=True)) == 2
    assert len(cache.fetch_payloads(posts, A, 0)) == 2, "the other two"
    cache.release(*(item.payload_hash for item in posts))
    assert len(cache.fetch_payloads(posts, A, 0, is_ahead=True)) == 2


def test_payloads_of_a_candidate_that_is_replaced_are_fetched_no_more() -> None:
    at = Stage(genesis(4, target_mining_time_ms=1_000))
    miner = at.chain.key(at.others[0])
    blocks = []
    for number in range(9):
        data = payload(1, 1, 0, number)
        at.chain.contents[sha256(data)] = data
        blocks.append(at.block(posts=(post(at.chain.key(at.others[1]), at.genesis, 1, data),), miner=miner))
    for block in blocks:
        at.receive(CandidateMessage(block))
    kept = {item.payload_hash for entry in at.node.ledger.entries.values() for item in entry.block.transactions}
    assert len(kept) < len(blocks)
    assert {*at.node._context.contents.downloads._downloads} == kept


def test_payloads_of_a_candidate_are_fetched_once_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    at = Stage(genesis(4))
    downloads = at.node._context.contents.downloads
    monkeypatch.setattr(downloads, "_count_max", 0)
    block = at.block(without=[at.me])
    assert sent(at.receive(CandidateMessage(block)), GetContent) == []
    monkeypatch.undo()
    wanted = {question.content_hash for question in sent(at.tick(1), GetContent)}
    assert wanted == {item.payload_hash for item in block.transactions}
    assert not sent(at.tick(1), GetContent)


def test_a_full_table_keeps_no_payload_of_a_post_from_being_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contents of blocks and states fill what is left beside the posts of the window."""
    monkeypatch.setattr(module, "DOWNLOADS_MAX", 3)
    at = Stage(genesis(4, inline_size_max=0))
    contents = at.node._context.contents
    for number in range(5):
        contents.fetch(sha256(bytes([number])), A, 0)
    item = at.chain.posts(at.node.head.block_hash)[0]
    effects = at.receive(PostMessage(item, None))
    assert [question.content_hash for question in sent(effects, GetContent)] == [item.payload_hash]


def test_few_peers_wait_for_a_content_that_is_on_its_way_and_the_others_are_told_that_it_is_not_here() -> None:
    cache, content_hash = cache_of(wanted=[sha256(CONTENT)]), sha256(CONTENT)
    cache.fetch(content_hash, A, 0)
    peers = [key.public_key for key in keys(2 * module.ASKERS_MAX)]
    told = [cache.chunk(peer, GetContent(content_hash, 0)) for peer in peers]
    assert told == [None] * module.ASKERS_MAX + [Chunk(content_hash, 0, b"")] * module.ASKERS_MAX
    assert cache.has_askers
    assert cache.chunk(peers[0], GetContent(content_hash, 0)) is None, "it waits already"
    cache.on_chunk(A, Chunk(content_hash, 0, CONTENT), 0)
    served = [peer for peer, chunk in cache.take_askers(content_hash) if chunk.data == CONTENT]
    assert served == peers[: module.ASKERS_MAX]
    assert not cache.has_askers


def test_places_of_contents_ahead_are_free_as_soon_as_they_are_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AHEAD_MAX", 2)
    payloads = [bytes([number]) for number in range(4)]
    posts = [post(keys(1)[0], genesis(4), 1, data) for data in payloads]
    cache = cache_of()
    assert len(cache.fetch_payloads(posts, A, 0, is_ahead=True)) == 2
    for data in payloads[:2]:
        cache.on_chunk(A, Chunk(sha256(data), 0, data), 0)
    assert len(cache.fetch_payloads(posts, A, 0, is_ahead=True)) == 2


def test_nobody_waits_for_a_content_that_is_on_its_way_no_more() -> None:
    cache, content_hash = cache_of(), sha256(CONTENT)
    cache.fetch(content_hash, A, 0)
    assert cache.chunk(B, GetContent(content_hash, 0)) is None
    cache.forget(needed=set(), recent=(), fetched=set(), is_pending=lambda post: True)
    assert not cache.has_askers


def test_what_the_store_has_is_public() -> None:
    cache = ContentCache(genesis(4), {sha256(CONTENT): CONTENT}.get, lambda *_: None, OWN_COPIES)
    assert cache.is_public(sha256(CONTENT))
    assert not cache.is_public(sha256(b"unknown"))


def test_a_part_that_is_a_posts_payload_too_is_fetched_on_when_the_part_is_given_up() -> None:
    cache, item = cache_of(), post(keys(1)[0], genesis(4), 1, CONTENT)
    cache.await_payload(item, A, 0)
    cache.stop_part(item.payload_hash)
    assert item.payload_hash in cache.downloads


def test_what_is_held_back_is_to_be_released_though_nobody_has_asked() -> None:
    cache = ContentCache(genesis(4), lambda _: None, lambda *_: None, OWN_COPIES, holds_back=True)
    content_hash = sha256(CONTENT)
    cache.fetch(content_hash, A, 0)
    cache.on_chunk(A, Chunk(content_hash, 0, CONTENT), 0)
    assert cache.has_askers
    assert not cache.is_public(content_hash)
    cache.publish(content_hash)
    assert cache.is_public(content_hash)
    assert not cache.has_askers


def test_what_was_held_back_is_given_to_those_that_asked_once_it_is_known_from_elsewhere() -> None:
    cache = ContentCache(genesis(4), lambda _: None, lambda *_: None, OWN_COPIES, holds_back=True)
    content_hash = sha256(CONTENT)
    cache.fetch(content_hash, A, 0)
    cache.on_chunk(A, Chunk(content_hash, 0, CONTENT), 0)
    assert cache.hold(content_hash) == CONTENT
    assert cache.chunk(B, GetContent(content_hash, 0)) is None, "whoever reads it here does not release it"
    assert cache.take_askers(content_hash) == []
    cache.put(content_hash, CONTENT)
    assert cache.take_askers(content_hash) == [(B, Chunk(content_hash, 0, CONTENT))]


def test_what_was_held_back_for_one_that_has_given_it_up_is_forgotten() -> None:
    cache = ContentCache(genesis(4), lambda _: None, lambda *_: None, OWN_COPIES, holds_back=True)
    content_hash = sha256(CONTENT)
    cache.fetch(content_hash, A, 0)
    cache.on_chunk(A, Chunk(content_hash, 0, CONTENT), 0)
    cache.wanted = {content_hash}.copy
    cache.release(content_hash)
    assert cache.get(content_hash) == CONTENT
    cache.wanted = set
    cache.release(content_hash)
    assert cache.get(content_hash) is None
    assert not cache.has_askers


def test_what_was_held_back_and_is_not_needed_any_more_is_forgotten() -> None:
    cache = ContentCache(genesis(4), lambda _: None, lambda *_: None, OWN_COPIES, holds_back=True)
    content_hash = sha256(CONTENT)
    for needed, held in (({content_hash}, CONTENT), (set[Hash](), None)):
        cache.fetch(content_hash, A, 0)
        cache.on_chunk(A, Chunk(content_hash, 0, CONTENT), 0)
        assert cache.get(content_hash) == CONTENT
        cache.forget(needed=needed, recent=(), fetched=set(), is_pending=lambda post: post[:2] >= (1, 0))
        assert cache.get(content_hash) == held


def test_a_part_that_was_wanted_as_a_content_too_is_held_as_none_once_it_is_wanted_as_a_part_alone() -> None:
    content_hash = sha256(CONTENT)
    for wanted, held in (([content_hash], CONTENT), ([], None)):
        cache = cache_of(wanted=wanted, parts=[content_hash])
        cache.fetch(content_hash, A, 0)
        cache.forget(needed=set(), recent=(), fetched={content_hash}, is_pending=lambda post: True)
        content, _ = cache.on_chunk(A, Chunk(content_hash, 0, CONTENT), 0)
        assert (content, cache.get(content_hash)) == (CONTENT, held)


def test_there_is_room_for_the_payloads_of_all_posts_that_may_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DOWNLOADS_MAX", 0)
    founded = genesis(4, version=3, late_rounds=2)
    cache = ContentCache(founded, lambda _: None, lambda *_: None, OWN_COPIES)
    for number in range(1, 5):  # two late rounds, the open one and the next
        for key in keys(4):
            cache.await_payload(post(key, founded, number, key.public_key + bytes([number])), A, 0)
    assert len(cache.downloads) == 16


def test_what_the_process_has_hashed_is_what_is_held() -> None:
    pool = Mock(wraps=OWN_COPIES, known={sha256(CONTENT): CONTENT}.get, stored_size_min=0)
    cache = ContentCache(genesis(4), lambda _: None, lambda *_: None, pool)
    cache.fetch(sha256(CONTENT), A, 0)
    fetched, _ = cache.on_chunk(A, Chunk(sha256(CONTENT), 0, bytes(bytearray(CONTENT))), 0)
    assert fetched is CONTENT
    assert cache.get(sha256(CONTENT)) is CONTENT
