"""Contents come in chunks from several at once, whole and right, or not at all; slow providers make way for others."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedchain.chain.exceptions import InvalidPayload, LimitReached
from fedchain.crypto.hashing import sha256
from fedchain.network.downloads import Downloads, Request
from fedchain.network.messages import CHUNK_SIZE, Chunk, GetContent
from fedchain.network.source import STALL_MS
from tests.support.network.contents import DATA, DATA_HASH, A, B, C, D, asked_of, chunk_of
from tests.support.network.world import HONEST, KINDS, world

# one provider


def test_content_comes_in_chunks() -> None:
    downloads = Downloads(2**20)
    assert downloads.want(DATA_HASH, len(DATA), A, 0) == asked_of(0, 1, 2)
    for number in range(3):
        assert DATA_HASH in downloads
        content, requests = downloads.on_chunk(A, chunk_of(number), number)
        assert requests == []
        assert content == (DATA if number == 2 else None)
    assert len(downloads) == 0


def test_chunks_may_come_in_any_order() -> None:
    downloads = Downloads(2**20)
    downloads.want(DATA_HASH, len(DATA), A, 0)
    assert [downloads.on_chunk(A, chunk_of(number), 1)[0] for number in (2, 0, 1)] == [None, None, DATA]


def test_content_of_exactly_one_chunk_needs_one() -> None:
    data = bytes(CHUNK_SIZE)
    downloads = Downloads(2**20)
    assert len(downloads.want(sha256(data), len(data), A, 0)) == 1
    assert downloads.on_chunk(A, Chunk(sha256(data), 0, data), 0) == (data, [])


def test_content_of_nothing_is_nothing() -> None:
    downloads = Downloads(2**20)
    downloads.want(sha256(b""), 0, A, 0)
    assert downloads.on_chunk(A, Chunk(sha256(b""), 0, b""), 0) == (b"", [])


def test_a_chunk_that_is_too_long_begins_the_download_again_with_others() -> None:
    downloads = Downloads(2**20)
    downloads.want(DATA_HASH, len(DATA), A, 0)
    downloads.want(DATA_HASH, len(DATA), B, 0)
    downloads.on_chunk(A, chunk_of(0), 1)
    with pytest.raises(InvalidPayload, match="chunk"):
        downloads.on_chunk(A, Chunk(DATA_HASH, CHUNK_SIZE, bytes(CHUNK_SIZE + 1)), 2)
    assert downloads.on_tick(3) == asked_of(0, 1, 2, peer=B)
    downloads.want(DATA_HASH, len(DATA), A, 3)
    assert downloads.drop(B, 4, [A, C]) == asked_of(0, 1, 2, peer=C), "who lied is not asked again"


@pytest.mark.parametrize("wrong", [DATA[: CHUNK_SIZE - 1], DATA[:1]])
def test_who_sends_less_than_it_has_is_found_out_by_the_hash(wrong: bytes) -> None:
    downloads = Downloads(2**20)
    downloads.want(DATA_HASH, len(DATA), A, 0)
    downloads.on_chunk(A, chunk_of(0), 1)
    assert downloads.on_chunk(A, Chunk(DATA_HASH, CHUNK_SIZE, wrong), 2) == (None, asked_of(0))
    with pytest.raises(InvalidPayload, match="payload hash"):
        downloads.on_chunk(A, Chunk(DATA_HASH, 0, wrong), 3)


@pytest.mark.parametrize("size", [10, CHUNK_SIZE, len(DATA) - 1, len(DATA) + 1, 2**20])
def test_a_wrong_size_is_no_lie_of_who_has_the_content(size: int) -> None:
    """A member that signs another's hash with another size would otherwise have honest providers banned."""
    downloads = Downloads(2**20)
    requests, content = downloads.want(DATA_HASH, size, A, 0), None
    for _ in range(10):
        chunks = [chunk_of(request.offset // CHUNK_SIZE) for _, request in requests]
        requests = []
        for chunk in chunks:
            content, more = downloads.on_chunk(A, chunk, 1)
            requests += more
            if content is not None:
                assert content == DATA
                return
    raise AssertionError("the content never came")


def test_a_wrong_hash_begins_the_download_again_and_names_who_sent_all_of_it() -> None:
    downloads = Downloads(2**20)
    downloads.want(DATA_HASH, len(DATA), A, 0)
    downloads.want(DATA_HASH, len(DATA), B, 0)
    other = bytes(len(DATA))
    for number in range(2):
        downloads.on_chunk(A, chunk_of(number, other), 1)
    with pytest.raises(InvalidPayload, match="payload hash"):
        downloads.on_chunk(A, chunk_of(2, other), 1)
    assert downloads.on_tick(2) == asked_of(0, 1, 2, peer=B)
    for number in range(3):
        content, _ = downloads.on_chunk(B, chunk_of(number), 3)
    assert content == DATA


def test_somebody_who_lied_is_asked_again_only_where_there_is_nobody_else() -> None:
    downloads = Downloads(2**20)
    downloads.want(DATA_HASH, None, A, 0)
    with pytest.raises(InvalidPayload):
        downloads.on_chunk(A, Chunk(DATA_HASH, 0, bytes(10)), 1)
    assert downloads.on_tick(2) == []
    assert downloads.on_tick(3, [A, B]) == [(B, GetContent(DATA_HASH, 0))]
    assert downloads.drop(B, 4) == []
    with pytest.raises(InvalidPayload):
        downloads.on_chunk(B, Chunk(DATA_HASH, 0, bytes(10)), 5) if downloads.on_tick(4 + STALL_MS) else None
    assert downloads.on_tick(10_000, [A]) == [(A, GetContent(DATA_HASH, 0))]


def test_chunks_that_nobody_asked_for_change_nothing() -> None:
    downloads = Downloads(2**20)
    assert downloads.on_chunk(A, chunk_of(0), 0) == (None, [])
    downloads.want(DATA_HASH, len(DATA), A, 0)
    before = (A, chunk_of(0))
    assert downloads.on_chunk(*before, 1) == (None, [])
    for peer, chunk in (
        before,
        (B, chunk_of(1)),
        (A, Chunk(sha256(b""), 0, b"1")),
        (A, Chunk(DATA_HASH, CHUNK_SIZE + 1, b"")),
        (A, Chunk(DATA_HASH, 99 * CHUNK_SIZE, b"1")),
        (B, Chunk(DATA_HASH, CHUNK_SIZE, b"")),
    ):
        assert downloads.on_chunk(peer, chunk, STALL_MS - 1) == (None, [])
    assert downloads.on_tick(1 + STALL_MS), "the clock of the download was not set back"


@pytest.mark.parametrize("size", [CHUNK_SIZE + 1, 2 * CHUNK_SIZE, 2**20])
def test_a_content_of_whole_chunks_comes_whatever_size_was_signed(size: int) -> None:
    data = bytes(range(256)) * (CHUNK_SIZE // 256)
    downloads = Downloads(2**20)
    requests = downloads.want(sha256(data), size, A, 0)
    answers = [downloads.on_chunk(A, chunk_of(number, data, sha256(data)), 1) for number in range(len(requests))]
    assert (data, []) in answers


def test_whose_small_content_is_wrong_is_named_at_once_and_others_are_asked() -> None:
    """Nobody that has more, or less, of it sends as much as was signed."""
    downloads = Downloads(2**28)
    downloads.want(DATA_HASH, 32, A, 0)
    downloads.want(DATA_HASH, 32, B, 0)
    with pytest.raises(InvalidPayload, match="payload hash"):
        downloads.on_chunk(A, Chunk(DATA_HASH, 0, bytes(32)), 1)
    assert downloads.go_on(DATA_HASH, 1) == asked_of(0, peer=B)


@pytest.mark.parametrize("data", [bytes(CHUNK_SIZE), bytes(33), bytes(31)], ids=["a chunk", "longer", "shorter"])
def test_who_contradicts_a_signed_size_holds_up_nobody(data: bytes) -> None:
    content = b"of thirty-two bytes, as is said."
    downloads = Downloads(2**28)
    downloads.want(sha256(content), len(content), A, 0)
    downloads.want(sha256(content), len(content), B, 0)
    _, requests = downloads.on_chunk(A, Chunk(sha256(content), 0, data), 1)
    assert {peer for peer, _ in requests} == {A, B}, "one of A and who signed the size lies"
    assert downloads.on_chunk(B, Chunk(sha256(content), 0, content), 2) == (content, [])


def test_who_contradicts_a_signed_size_is_named_once_its_own_copy_is_wrong() -> None:
    downloads = Downloads(2**28)
    downloads.want(DATA_HASH, 32, A, 0)
    assert downloads.on_chunk(A, Chunk(DATA_HASH, 0, bytes(33)), 1) == (None, asked_of(0))
    with pytest.raises(InvalidPayload, match="payload hash"):
        downloads.on_chunk(A, Chunk(DATA_HASH, 0, bytes(33)), 2)


def test_those_that_contradict_a_signed_size_leave_a_place_for_others() -> None:
    downloads = Downloads(2**28)
    peers = [sha256(bytes([number])) for number in range(5)]
    for peer in peers:
        downloads.want(DATA_HASH, 32, peer, 0)
    for peer in peers[:4]:
        _, requests = downloads.on_chunk(peer, Chunk(DATA_HASH, 0, bytes(CHUNK_SIZE)), 1)
        assert requests, "its successor is asked"
    assert peers[4] in {peer for peer, _ in requests}


def test_a_content_has_no_more_bytes_than_any_may_have_whatever_this_one_may() -> None:
    downloads = Downloads(CHUNK_SIZE)
    downloads.want(DATA_HASH, None, A, 0, size_max=2**30)
    assert downloads.on_chunk(A, chunk_of(0), 1) == (None, asked_of(1))
    with pytest.raises(InvalidPayload, match="chunk"):
        downloads.on_chunk(A, chunk_of(1), 2)


# unknown size


# several providers


def test_a_slow_provider_that_is_the_only_one_is_kept_and_not_asked_twice() -> None:
    downloads = Downloads(2**20)
    requests = downloads.want(DATA_HASH, len(DATA), A, 0)
    for number in range(3):
        for now_ms in range(number * 1_900 + 100, (number + 1) * 1_900, 100):
            requests += downloads.on_tick(now_ms)
        content, _ = downloads.on_chunk(A, chunk_of(number), (number + 1) * 1_900)
    assert content == DATA
    assert len(requests) == 3


def test_an_empty_chunk_passes_the_download_on() -> None:
    downloads = Downloads(2**20)
    for provider in (A, B, C):
        downloads.want(DATA_HASH, 10, provider, 0)
    assert downloads.on_chunk(A, Chunk(DATA_HASH, 0, b""), 2) == (None, asked_of(0, peer=B))
    assert downloads.on_chunk(A, Chunk(DATA_HASH, 0, b""), 2) == (None, [])
    assert downloads.on_chunk(B, Chunk(DATA_HASH, 0, b""), 2) == (None, asked_of(0, peer=C))


def test_peers_without_the_content_are_not_asked_in_circles() -> None:
    downloads = Downloads(2**20)
    requests = [*downloads.want(DATA_HASH, 10, A, 0), *downloads.want(DATA_HASH, 10, B, 0)]
    asked = 0
    while requests and asked < 100:
        asked += 1
        peer, request = requests.pop()
        requests += downloads.on_chunk(peer, Chunk(DATA_HASH, request.offset, b""), 5)[1]
    assert asked == 2
    assert DATA_HASH in downloads, "it is still wanted"
    assert downloads.on_tick(4 + STALL_MS) == []
    assert downloads.on_tick(5 + STALL_MS) == asked_of(0, peer=B)
    assert downloads.on_tick(6 + STALL_MS) == []


def test_somebody_new_is_asked_at_once_where_nobody_else_has_it() -> None:
    downloads = Downloads(2**20)
    downloads.want(DATA_HASH, 10, A, 0)
    downloads.on_chunk(A, Chunk(DATA_HASH, 0, b""), 1)
    downloads.want(DATA_HASH, 10, B, 2)
    assert downloads.on_tick(3) in (asked_of(0, peer=A), asked_of(0, peer=B))


def test_a_provider_that_is_gone_is_replaced_at_once() -> None:
    downloads = Downloads(2**20)
    downloads.want(DATA_HASH, len(DATA), A, 0)
    downloads.want(DATA_HASH, len(DATA), B, 0)
    downloads.on_chunk(A, chunk_of(0), 1)
    assert downloads.drop(C, 2) == []
    assert downloads.drop(A, 2) == asked_of(1, 2, peer=B)
    assert downloads.drop(B, 3, [C]) == asked_of(1, 2, peer=C)
    for number in (1, 2):
        content, _ = downloads.on_chunk(C, chunk_of(number), 4)
    assert content == DATA


# bounds


def test_what_only_its_authors_give_is_asked_of_nobody_else_unless_it_is_also_what_anybody_may_have() -> None:
    downloads = Downloads(2**20)
    requests = downloads.want(DATA_HASH, len(DATA), A, 0, asks_others=False)
    for second in range(1, 60):
        requests += downloads.on_tick(1_000 * second, [A, B, C])
    requests += downloads.drop(A, 60_000, [B, C])
    assert {peer for peer, _ in requests} == {A}
    downloads.want(DATA_HASH, len(DATA), A, 60_000)
    for second in range(60, 90):
        requests += downloads.on_tick(1_000 * second, [A, B, C])
    assert {peer for peer, _ in requests} == {A, B, C}


def test_there_is_a_limit_to_downloads() -> None:
    downloads = Downloads(2**20, count_max=3)
    for number in range(3):
        downloads.want(sha256(bytes([number])), 1, A, 0)
    with pytest.raises(LimitReached, match="3 contents"):
        downloads.want(DATA_HASH, 1, A, 0)
    assert len(downloads) == 3
    assert downloads.want(sha256(b"\x00"), 1, B, 0) == [], "one more provider is no download"
    downloads.keep_only({sha256(b"\x01")})
    assert len(downloads) == 1
    downloads.want(DATA_HASH, 1, A, 0)


@pytest.mark.parametrize("are_others_named", [False, True])
@pytest.mark.parametrize(("contents", "size"), [(20, 100), (1_000, 100), (4_000, 100), (100, 2 * CHUNK_SIZE)])
def test_a_silent_peer_that_is_named_first_for_everything_costs_seconds(
    contents: int, size: int, are_others_named: bool
) -> None:
    """If a provider is too busy, others are asked, whether or not anybody said that they have the content."""
    downloads = Downloads(2**20)
    data = {sha256(part): part for part in (b"%08d" % number * (size // 8) for number in range(contents))}
    asked: list[Request] = []
    for content_hash, part in data.items():
        asked += downloads.want(content_hash, len(part), A, 0)
        asked += downloads.want(content_hash, len(part), B, 0) if are_others_named else []
    now_ms = 0
    while len(downloads) and now_ms < 60_000:
        now_ms += 100
        arriving, asked = [(peer, question) for peer, question in asked if peer != A], []
        for peer, question in arriving:
            part = data[question.content_hash][question.offset :][:CHUNK_SIZE]
            asked += downloads.on_chunk(peer, Chunk(question.content_hash, question.offset, part), now_ms)[1]
        if now_ms % 1_000 == 0:
            asked += downloads.on_tick(now_ms, [A, B, C, D])
    assert now_ms <= 7_000


# all of it


@settings(deadline=None, max_examples=60)
@given(
    others=st.lists(st.sampled_from(KINDS), max_size=7),
    honest=st.integers(1, 2),
    chunks=st.integers(0, 12),
    rest=st.integers(1, 9),
    is_size_known=st.booleans(),
    known=st.integers(1, 4),
    seed=st.integers(0, 2**32),
)
def test_a_content_arrives_if_one_provider_is_honest_and_only_liars_are_named(
    others: list[str], honest: int, chunks: int, rest: int, is_size_known: bool, known: int, seed: int
) -> None:
    kinds = [*others, *["honest"] * honest]
    random.Random(seed).shuffle(kinds)
    data = random.Random(seed).randbytes(chunks * CHUNK_SIZE + rest)
    size = len(data) if is_size_known else None
    content, _, named = world(kinds, data, size, min(known, len(kinds)), seed, 1_800_000)
    assert content == data
    assert not named & HONEST


@pytest.mark.long
@pytest.mark.parametrize("slow", [1, 3, 6])
def test_a_large_content_does_not_wait_for_slow_providers(slow: int) -> None:
    data = random.Random(2).randbytes(16 * 2**20)
    kinds = [*["slow"] * slow, "honest"]
    taken_s = [
        at_ms / 1_000
        for seed in range(5)
        for content, at_ms, _ in [world(kinds, data, len(data), len(kinds), seed, 200_000)]
        if content == data
    ]
    assert len(taken_s) == 5
    assert max(taken_s) < 40.0  # alone, a slow one takes 118 s


def test_several_providers_are_faster_than_one() -> None:
    data = random.Random(3).randbytes(16 * 2**20)
    alone = world(["honest"], data, len(data), 1, 1, 200_000)[1]
    together = world(["honest"] * 3, data, len(data), 3, 1, 200_000)[1]
    assert together < 0.5 * alone


SMALL = b"thirty-two bytes, and no others."


@pytest.mark.parametrize("liars", [1, 2, 4, 7])
@pytest.mark.parametrize("kind", ["dripping", "dripping what fits"])
@pytest.mark.parametrize(
    ("data", "size", "size_max", "limit_s"),
    [
        (SMALL, len(SMALL), 2**28, 15),
        (SMALL, None, len(SMALL), 15),
        (SMALL, None, 2**28, 60),
        (random.Random(4).randbytes(2 * 2**20), None, 2**28, 60),
        (random.Random(4).randbytes(2 * 2**20), 2 * 2**20, 2**28, 60),
    ],
    ids=["payload", "state", "small knowledge", "knowledge", "large payload"],
)
def test_those_that_drip_hold_up_a_content_for_some_turns_and_no_longer(
    data: bytes, size: int | None, size_max: int, limit_s: int, kind: str, liars: int
) -> None:
    """They are asked first, and send what is wrong as slowly as is let pass."""
    kinds = [*[kind] * liars, "honest"]
    for seed in range(3):
        content, _, named = world(
            kinds, data, size, len(kinds), seed, 1_000 * limit_s, size_max=size_max, are_mixed=False
        )
        assert content == data
        assert named <= {kind}
