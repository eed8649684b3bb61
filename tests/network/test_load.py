"""One provider owes a bounded number of contents and chunks."""

import pytest

from fedchain.crypto.hashing import sha256
from fedchain.network.downloads import Downloads, Request
from fedchain.network.load import LARGE_AT_ONCE_MAX, LARGE_BYTES_MAX, OWED_MAX
from fedchain.network.messages import CHUNK_SIZE, Chunk
from tests.support.network.contents import LONG, LONG_HASH, A, B, asked_of, chunk_of


@pytest.mark.parametrize(
    ("size", "at_once"), [(CHUNK_SIZE + 1, LARGE_AT_ONCE_MAX), (LARGE_BYTES_MAX // 2, 2), (2 * LARGE_BYTES_MAX, 1)]
)
def test_one_provider_sends_a_few_large_contents_at_a_time(size: int, at_once: int) -> None:
    """Otherwise a member could have us hold the beginnings of as many contents as it has posts for."""
    hashes = [sha256(bytes([number])) for number in range(LARGE_AT_ONCE_MAX + 2)]
    downloads, requests = Downloads(2**20), list[Request]()
    for content_hash in hashes:
        requests += downloads.want(content_hash, size, A, 0)
    assert {request.content_hash for _, request in requests} == set(hashes[:at_once])
    assert downloads.want(sha256(b"small"), 5, A, 0), "what fits into a chunk never waits for them"
    downloads.keep_only({*hashes[1:]})
    assert {request.content_hash for _, request in downloads.on_tick(1)} == {hashes[at_once]}
    assert downloads.on_tick(2) == []


def test_the_next_large_content_is_asked_for_when_one_is_complete() -> None:
    large = [bytes([number]) * (CHUNK_SIZE + 1) for number in range(LARGE_AT_ONCE_MAX + 2)]
    downloads = Downloads(2**20)
    for data in large:
        downloads.want(sha256(data), len(data), A, 0)
    done = large[0]
    assert downloads.on_chunk(A, chunk_of(0, done, sha256(done)), 1) == (None, [])
    content, more = downloads.on_chunk(A, chunk_of(1, done, sha256(done)), 1)
    assert content == done
    assert more == asked_of(0, 1, content_hash=sha256(large[LARGE_AT_ONCE_MAX]))


def test_one_provider_owes_a_bounded_number_of_chunks() -> None:
    data = [number.to_bytes(8, "big") for number in range(2 * OWED_MAX)]
    downloads, requests = Downloads(2**20), list[Request]()
    for item in data:
        requests += downloads.want(sha256(item), len(item), A, 0)
    assert len(requests) == OWED_MAX
    by_hash, done = {sha256(item): item for item in data}, 0
    while requests:
        _, request = requests.pop(0)
        content, more = downloads.on_chunk(A, Chunk(request.content_hash, 0, by_hash[request.content_hash]), 1)
        requests += more
        done += content is not None
    assert done == 2 * OWED_MAX


def test_beginnings_that_nobody_goes_on_with_are_dropped() -> None:
    downloads = Downloads(2**30)
    downloads.want(LONG_HASH, len(LONG), A, 0)
    downloads.on_chunk(A, chunk_of(0, LONG, LONG_HASH), 1)
    for number in range(LARGE_AT_ONCE_MAX):
        downloads.want(sha256(bytes([number])), LARGE_BYTES_MAX, B, 1)
    downloads.want(LONG_HASH, len(LONG), B, 1)
    assert downloads.drop(A, 2) == [], "B is busy"
    held = downloads._downloads[LONG_HASH]._shared
    assert (held.senders, next(held.wanted())) == (set(), 0)
