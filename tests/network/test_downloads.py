"""Contents come in chunks from whoever has them, whole and right, or not at all."""

import pytest

from fedchain.chain.exceptions import InvalidPayload, LimitReached
from fedchain.crypto.hashing import sha256
from fedchain.network import downloads as module
from fedchain.network.downloads import LARGE_AT_ONCE_MAX, PROVIDERS_MAX, Downloads, Request
from fedchain.network.messages import CHUNK_SIZE, Chunk, GetContent
from fedchain.network.sync import STALL_MS
from tests.chain.builders import keys

A, B, C = (key.public_key for key in keys(3))

DATA = bytes(range(256)) * 2_400
"""Three chunks, the last one short."""
DATA_HASH = sha256(DATA)


def _chunk(offset: int, data: bytes = DATA) -> Chunk:
    return Chunk(DATA_HASH, offset, data[offset : offset + CHUNK_SIZE])


def test_content_comes_in_chunks() -> None:
    downloads = Downloads(2**20)
    requests = downloads.want(DATA_HASH, len(DATA), A, 0)
    for number in range(3):
        assert requests == [(A, GetContent(DATA_HASH, number * CHUNK_SIZE))]
        assert DATA_HASH in downloads
        content, requests = downloads.on_chunk(A, _chunk(number * CHUNK_SIZE), number)
        assert content == (DATA if number == 2 else None)
    assert requests == []
    assert len(downloads) == 0


def test_content_of_exactly_one_chunk_needs_one() -> None:
    data = bytes(CHUNK_SIZE)
    downloads = Downloads(2**20)
    downloads.want(sha256(data), len(data), A, 0)
    assert downloads.on_chunk(A, Chunk(sha256(data), 0, data), 0) == (data, [])


def test_a_download_goes_on_at_another_provider_where_it_broke_off() -> None:
    downloads = Downloads(2**20)
    downloads.want(DATA_HASH, len(DATA), A, 0)
    assert downloads.want(DATA_HASH, len(DATA), B, 0) == [], "it is asked for once"
    downloads.on_chunk(A, _chunk(0), 10)
    assert downloads.on_tick(10 + STALL_MS - 1) == []
    assert downloads.on_tick(10 + STALL_MS) == [(B, GetContent(DATA_HASH, CHUNK_SIZE))]
    assert downloads.on_tick(10 + STALL_MS) == [], "B has its time"
    assert downloads.on_chunk(A, _chunk(CHUNK_SIZE), 20 + STALL_MS) == (None, []), "A is late"
    downloads.on_chunk(B, _chunk(CHUNK_SIZE), 20 + STALL_MS)
    assert downloads.on_chunk(B, _chunk(2 * CHUNK_SIZE), 30 + STALL_MS) == (DATA, [])


def test_a_single_provider_is_asked_again() -> None:
    downloads = Downloads(2**20)
    downloads.want(DATA_HASH, len(DATA), A, 0)
    assert downloads.on_tick(STALL_MS) == [(A, GetContent(DATA_HASH, 0))]


WRONG: dict[str, bytes] = {
    "longer than a chunk": bytes(CHUNK_SIZE + 1),
    "shorter than a chunk": DATA[: CHUNK_SIZE - 1],
    "one byte": DATA[:1],
}


@pytest.mark.parametrize("name", WRONG)
def test_a_chunk_of_another_size_begins_the_download_again(name: str) -> None:
    downloads = Downloads(2**20)
    downloads.want(DATA_HASH, len(DATA), A, 0)
    downloads.want(DATA_HASH, len(DATA), B, 0)
    downloads.on_chunk(A, _chunk(0), 1)
    with pytest.raises(InvalidPayload, match="chunk"):
        downloads.on_chunk(A, Chunk(DATA_HASH, CHUNK_SIZE, WRONG[name]), 2)
    assert downloads.on_tick(STALL_MS) == [(B, GetContent(DATA_HASH, 0))]


def test_more_than_was_promised_is_refused() -> None:
    downloads = Downloads(2**20)
    downloads.want(DATA_HASH, 10, A, 0)
    with pytest.raises(InvalidPayload, match="chunk"):
        downloads.on_chunk(A, _chunk(0), 1)


def test_a_wrong_hash_begins_the_download_again() -> None:
    downloads = Downloads(2**20)
    downloads.want(DATA_HASH, len(DATA), A, 0)
    downloads.want(DATA_HASH, len(DATA), B, 0)
    other = bytes(len(DATA))
    downloads.on_chunk(A, _chunk(0, other), 1)
    downloads.on_chunk(A, _chunk(CHUNK_SIZE, other), 1)
    with pytest.raises(InvalidPayload, match="payload hash"):
        downloads.on_chunk(A, _chunk(2 * CHUNK_SIZE, other), 1)
    assert downloads.on_tick(STALL_MS) == [(B, GetContent(DATA_HASH, 0))]
    for number in range(3):
        content, _ = downloads.on_chunk(B, _chunk(number * CHUNK_SIZE), STALL_MS)
    assert content == DATA


def test_an_empty_chunk_passes_the_download_on() -> None:
    downloads = Downloads(2**20)
    for provider in (A, B, C):
        downloads.want(DATA_HASH, len(DATA), provider, 0)
    downloads.on_chunk(A, _chunk(0), 1)
    assert downloads.on_chunk(A, Chunk(DATA_HASH, CHUNK_SIZE, b""), 2) == (
        None,
        [(B, GetContent(DATA_HASH, CHUNK_SIZE))],
    )
    assert downloads.on_chunk(A, Chunk(DATA_HASH, CHUNK_SIZE, b""), 2) == (None, [])


def test_peers_without_the_content_are_not_asked_in_circles() -> None:
    downloads = Downloads(2**20)
    requests = [*downloads.want(DATA_HASH, len(DATA), A, 0), *downloads.want(DATA_HASH, len(DATA), B, 0)]
    asked = 0
    while requests and asked < 100:
        asked += 1
        peer, request = requests.pop()
        requests += downloads.on_chunk(peer, Chunk(DATA_HASH, request.offset, b""), 5)[1]
    assert asked == 2
    assert DATA_HASH in downloads, "it is still wanted"
    assert downloads.on_tick(6) == [(B, GetContent(DATA_HASH, 0))]
    assert downloads.on_tick(7) == []


def test_chunks_that_nobody_asked_for_change_nothing() -> None:
    downloads = Downloads(2**20)
    assert downloads.on_chunk(A, _chunk(0), 0) == (None, [])
    assert len(downloads) == 0
    downloads.want(DATA_HASH, len(DATA), A, 0)
    for peer, chunk in (
        (B, _chunk(0)),
        (A, _chunk(CHUNK_SIZE)),
        (A, Chunk(sha256(b""), 0, b"1")),
        (A, Chunk(DATA_HASH, 1, b"")),
    ):
        assert downloads.on_chunk(peer, chunk, STALL_MS - 1) == (None, [])
    assert downloads.on_tick(STALL_MS) == [(A, GetContent(DATA_HASH, 0))], "the clock of the download was not reset"


def test_there_is_a_limit_to_downloads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DOWNLOADS_MAX", 3)
    downloads = Downloads(2**20)
    for number in range(3):
        downloads.want(sha256(bytes([number])), 1, A, 0)
    with pytest.raises(LimitReached, match="3 contents"):
        downloads.want(DATA_HASH, 1, A, 0)
    assert len(downloads) == 3
    assert downloads.want(sha256(b"\x00"), 1, B, 0) == [], "one more provider is no download"
    downloads.keep_only({sha256(b"\x01")})
    assert len(downloads) == 1
    downloads.want(DATA_HASH, 1, A, 0)


def test_there_is_a_limit_to_providers() -> None:
    downloads = Downloads(2**20)
    providers = [sha256(bytes([number])) for number in range(PROVIDERS_MAX + 5)]
    for provider in providers:
        downloads.want(DATA_HASH, len(DATA), provider, 0)
    asked = {downloads.on_tick((turn + 1) * STALL_MS)[0][0] for turn in range(3 * PROVIDERS_MAX)}
    assert asked == set(providers[:PROVIDERS_MAX])


def test_a_content_of_unknown_size_ends_with_a_short_chunk() -> None:
    downloads = Downloads(2**20)
    downloads.want(DATA_HASH, None, A, 0)
    for number in range(2):
        assert downloads.on_chunk(A, _chunk(number * CHUNK_SIZE), 0)[1]
    assert downloads.on_chunk(A, _chunk(2 * CHUNK_SIZE), 0) == (DATA, [])


def test_a_content_of_unknown_size_and_whole_chunks_ends_with_an_empty_one() -> None:
    data = bytes(2 * CHUNK_SIZE)
    downloads = Downloads(2**20)
    downloads.want(sha256(data), None, A, 0)
    for number in range(2):
        chunk = Chunk(sha256(data), number * CHUNK_SIZE, bytes(CHUNK_SIZE))
        assert downloads.on_chunk(A, chunk, 0) == (None, [(A, GetContent(sha256(data), (number + 1) * CHUNK_SIZE))])
    assert downloads.on_chunk(A, Chunk(sha256(data), 2 * CHUNK_SIZE, b""), 0) == (data, [])


def test_a_provider_that_drops_a_content_of_unknown_size_half_way_is_replaced() -> None:
    downloads = Downloads(2**20)
    for provider in (A, B):
        downloads.want(DATA_HASH, None, provider, 0)
    downloads.on_chunk(A, _chunk(0), 0)
    assert downloads.on_chunk(A, Chunk(DATA_HASH, CHUNK_SIZE, b""), 0) == (
        None,
        [(B, GetContent(DATA_HASH, CHUNK_SIZE))],
    )


@pytest.mark.parametrize("data", [b"wrong", bytes(CHUNK_SIZE + 1)], ids=["another content", "more than a chunk"])
def test_a_content_of_unknown_size_is_checked_like_any_other(data: bytes) -> None:
    downloads = Downloads(2**20)
    downloads.want(DATA_HASH, None, A, 0)
    with pytest.raises(InvalidPayload):
        downloads.on_chunk(A, Chunk(DATA_HASH, 0, data), 0)


def test_a_content_of_unknown_size_cannot_grow_without_end() -> None:
    downloads = Downloads(2 * CHUNK_SIZE)
    downloads.want(DATA_HASH, None, A, 0)
    for number in range(2):
        downloads.on_chunk(A, Chunk(DATA_HASH, number * CHUNK_SIZE, bytes(CHUNK_SIZE)), 0)
    with pytest.raises(InvalidPayload, match="0 wanted"):
        downloads.on_chunk(A, Chunk(DATA_HASH, 2 * CHUNK_SIZE, bytes(CHUNK_SIZE)), 0)


def test_one_provider_sends_a_few_large_contents_at_a_time() -> None:
    """Otherwise a member could have us hold the beginnings of as many contents as it has posts for."""
    large = [bytes([number]) * (CHUNK_SIZE + 1) for number in range(LARGE_AT_ONCE_MAX + 2)]
    downloads, requests = Downloads(2**20), list[Request]()
    for data in large:
        requests += downloads.want(sha256(data), len(data), A, 0)
    assert len(requests) == LARGE_AT_ONCE_MAX
    assert downloads.want(sha256(b"small"), 5, A, 0), "what fits into a chunk never waits"
    (more,) = [
        request
        for offset in (0, CHUNK_SIZE)
        for request in downloads.on_chunk(A, Chunk(sha256(large[0]), offset, large[0][offset:][:CHUNK_SIZE]), 1)[1]
        if request[1].content_hash != sha256(large[0])
    ]
    assert more == (A, GetContent(sha256(large[LARGE_AT_ONCE_MAX]), 0)), "the next one, when one is complete"
    for turn in range(1, 20):
        asked = {item.content_hash for _, item in downloads.on_tick(turn * STALL_MS)}
        held = [item for item in downloads._downloads.values() if item.is_asked and item.is_large]
        assert len(held) <= LARGE_AT_ONCE_MAX
        assert sha256(b"small") in asked


def test_a_provider_that_is_gone_is_replaced_at_once() -> None:
    downloads = Downloads(2**20)
    downloads.want(DATA_HASH, len(DATA), A, 0)
    downloads.want(DATA_HASH, len(DATA), B, 0)
    downloads.on_chunk(A, _chunk(0), 1)
    assert downloads.drop(C, 2) == []
    assert downloads.drop(A, 2) == [(B, GetContent(DATA_HASH, CHUNK_SIZE))]
    assert downloads.drop(B, 3, [C]) == [(C, GetContent(DATA_HASH, CHUNK_SIZE))]
    for number in (1, 2):
        content, _ = downloads.on_chunk(C, _chunk(number * CHUNK_SIZE), 4)
    assert content == DATA


def test_when_all_known_providers_stall_every_connected_peer_is_asked() -> None:
    peers = [sha256(bytes([number])) for number in range(3 * PROVIDERS_MAX)]
    downloads, asked = Downloads(2**20), set[bytes]()
    downloads.want(DATA_HASH, len(DATA), A, 0)
    for turn in range(200):
        ((peer, _),) = downloads.on_tick((turn + 1) * STALL_MS, peers)
        asked.add(peer)
    assert asked >= {*peers}
