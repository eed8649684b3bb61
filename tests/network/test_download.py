"""One content from several at once: ahead, in parts, and never mixed."""

import gc
import random
from pathlib import Path

import pytest

from fedchain.chain.exceptions import InvalidPayload, LimitReached
from fedchain.crypto.hashing import sha256
from fedchain.files.spool import SpoolFile, SpoolFolder, digest_of, path_of
from fedchain.network.assembly import AHEAD_MAX
from fedchain.network.download import DISK_PAUSE_MS, PIPELINE, SOURCES_MAX
from fedchain.network.downloads import Downloads
from fedchain.network.messages import CHUNK_SIZE, Chunk
from fedchain.network.source import STALL_MS
from tests.support.network.contents import DATA, DATA_HASH, LONG, LONG_HASH, A, B, C, D, asked_of, chunk_of, numbers_of


def test_a_few_chunks_are_asked_for_ahead() -> None:
    downloads = Downloads(2**30)
    requests = downloads.want(LONG_HASH, len(LONG), A, 0)
    assert numbers_of(requests, A) == list(range(PIPELINE))
    for number in range(51):
        content, more = downloads.on_chunk(A, chunk_of(number, LONG, LONG_HASH), number)
        assert numbers_of(more, A) == ([number + PIPELINE] if number + PIPELINE < 51 else [])
    assert content == LONG


def test_a_content_of_unknown_size_ends_with_a_short_chunk() -> None:
    downloads = Downloads(2**20)
    assert downloads.want(DATA_HASH, None, A, 0) == asked_of(0)
    for number in range(2):
        assert downloads.on_chunk(A, chunk_of(number), 0) == (None, asked_of(number + 1))
    assert downloads.on_chunk(A, chunk_of(2), 0) == (DATA, [])


def test_a_content_of_unknown_size_and_whole_chunks_ends_where_its_hash_is_right() -> None:
    data = bytes(2 * CHUNK_SIZE)
    downloads = Downloads(2**20)
    downloads.want(sha256(data), None, A, 0)
    assert downloads.on_chunk(A, chunk_of(0, data, sha256(data)), 0)[0] is None
    assert downloads.on_chunk(A, chunk_of(1, data, sha256(data)), 0) == (data, [])


def test_a_provider_that_drops_a_content_of_unknown_size_half_way_is_replaced() -> None:
    downloads = Downloads(2**20)
    for provider in (A, B):
        downloads.want(DATA_HASH, None, provider, 0)
    downloads.on_chunk(A, chunk_of(0), 0)
    lack = Chunk(DATA_HASH, CHUNK_SIZE, b"")
    assert downloads.on_chunk(A, lack, 0) == (None, asked_of(0, peer=B)), "A may have sent anything"


@pytest.mark.parametrize("data", [b"wrong", bytes(CHUNK_SIZE + 1)], ids=["another content", "more than a chunk"])
def test_a_content_of_unknown_size_is_checked_like_any_other(data: bytes) -> None:
    downloads = Downloads(2**20)
    downloads.want(DATA_HASH, None, A, 0)
    with pytest.raises(InvalidPayload):
        downloads.on_chunk(A, Chunk(DATA_HASH, 0, data), 0)


def test_more_than_the_bound_of_one_content_is_nobodys_fault() -> None:
    """A liar that hands out a large content's hash for that of a state would have honest providers banned."""
    downloads = Downloads(2**20)
    downloads.want(DATA_HASH, None, A, 0, size_max=len(DATA) - 1)
    downloads.want(DATA_HASH, None, B, 0, size_max=10)
    for number in range(2):
        assert downloads.on_chunk(A, chunk_of(number), 0) == (None, asked_of(number + 1))
    assert downloads.on_chunk(A, chunk_of(2), 0) == (None, asked_of(0, peer=B)), "A has something else under this hash"


def test_a_bound_that_was_too_low_rises_with_who_wants_more() -> None:
    downloads = Downloads(2**20)
    downloads.want(DATA_HASH, None, A, 0, size_max=10)
    downloads.want(DATA_HASH, None, B, 0)
    assert downloads.on_chunk(A, chunk_of(0), 0) == (None, asked_of(0, peer=B))
    for number in range(3):
        content, _ = downloads.on_chunk(B, chunk_of(number), 0)
    assert content == DATA


def test_a_content_of_unknown_size_is_asked_of_one_more_each_time_that_a_while_has_passed() -> None:
    downloads = Downloads(2**30)
    downloads.want(LONG_HASH, None, A, 0)
    wrong = bytes(CHUNK_SIZE)
    for number, now_ms in enumerate(range(900, 9_900, 900)):
        downloads.on_chunk(A, Chunk(LONG_HASH, number * CHUNK_SIZE, wrong), now_ms)
    assert downloads.on_tick(9_900, [A, B]) == asked_of(0, peer=B, content_hash=LONG_HASH), "A is not slow"
    for number in range(51):
        content, _ = downloads.on_chunk(B, chunk_of(number, LONG, LONG_HASH), 10_000)
    assert content == LONG


def test_a_content_of_unknown_size_cannot_grow_without_end() -> None:
    downloads = Downloads(2 * CHUNK_SIZE)
    downloads.want(DATA_HASH, None, A, 0)
    for number in range(2):
        downloads.on_chunk(A, Chunk(DATA_HASH, number * CHUNK_SIZE, bytes(CHUNK_SIZE)), 0)
    with pytest.raises(InvalidPayload, match="0 wanted"):
        downloads.on_chunk(A, Chunk(DATA_HASH, 2 * CHUNK_SIZE, bytes(CHUNK_SIZE)), 0)


def test_several_providers_send_different_parts_of_a_large_content() -> None:
    downloads = Downloads(2**30)
    requests = downloads.want(LONG_HASH, len(LONG), A, 0)
    for provider in (B, C, D):
        assert downloads.want(LONG_HASH, len(LONG), provider, 0) == [], "it is asked at the next tick"
    requests += downloads.on_tick(1)
    assert [who for who, _ in requests] == [A] * PIPELINE + [B] * PIPELINE + [C] * PIPELINE
    assert [request.offset // CHUNK_SIZE for _, request in requests] == list(range(SOURCES_MAX * PIPELINE))
    content, sent = None, 0
    while requests:
        peer, request = requests.pop(random.Random(sent).randrange(len(requests)))
        content, more = downloads.on_chunk(peer, chunk_of(request.offset // CHUNK_SIZE, LONG, LONG_HASH), 2)
        requests += more
        sent += 1
    assert content == LONG
    assert sent == 51, "nothing was asked for twice"


def test_chunks_that_come_too_early_do_not_fill_memory() -> None:
    downloads = Downloads(2**30)
    downloads.want(LONG_HASH, len(LONG), A, 0)
    downloads.want(LONG_HASH, len(LONG), B, 0)
    requests = downloads.on_tick(1)
    taken = list[int]()
    while requests:
        _, request = requests.pop(0)
        taken.append(request.offset // CHUNK_SIZE)
        requests += downloads.on_chunk(B, chunk_of(taken[-1], LONG, LONG_HASH), 1)[1]
    assert taken == list(range(PIPELINE, AHEAD_MAX)), "the first chunks, which A owes, are missing"


def test_a_silent_provider_is_replaced_and_its_part_goes_on_at_another() -> None:
    downloads = Downloads(2**20)
    downloads.want(DATA_HASH, len(DATA), A, 0)
    downloads.on_chunk(A, chunk_of(0), 10)
    assert downloads.on_tick(10 + STALL_MS - 1) == []
    downloads.want(DATA_HASH, len(DATA), B, 10)
    assert downloads.on_tick(10 + STALL_MS) == asked_of(1, 2, peer=B)
    assert downloads.on_tick(10 + STALL_MS) == [], "B has its time"
    assert downloads.on_chunk(A, chunk_of(1), 20 + STALL_MS) == (None, []), "A is late, and its chunk is as good"
    assert downloads.on_chunk(B, chunk_of(2), 20 + STALL_MS) == (DATA, [])


def test_who_lies_among_several_is_found_by_asking_one_after_another() -> None:
    downloads = Downloads(2**20)
    downloads.want(DATA_HASH, len(DATA), A, 0)
    downloads.on_chunk(A, chunk_of(0, bytes(len(DATA))), 0)
    downloads.drop(A, 0, [B])
    downloads.want(DATA_HASH, len(DATA), A, 0)
    downloads.on_chunk(B, chunk_of(1), 1)
    content, requests = downloads.on_chunk(B, chunk_of(2), 1)
    assert content is None, "it is wrong, and nobody knows whose fault that is"
    assert requests == [*asked_of(0, 1, 2, peer=B), *asked_of(0, 1, 2)], "each sends a copy of its own"
    for number in range(2):
        downloads.on_chunk(A, chunk_of(number, bytes(len(DATA))), 3)
        downloads.on_chunk(B, chunk_of(number), 3)
    with pytest.raises(InvalidPayload, match="payload hash"):
        downloads.on_chunk(A, chunk_of(2, bytes(len(DATA))), 3)
    assert downloads.on_chunk(B, chunk_of(2), 5) == (DATA, [])


def test_parts_of_two_are_never_mixed_once_one_has_to_send_all() -> None:
    downloads = Downloads(2**20)
    downloads.want(DATA_HASH, len(DATA), A, 0)
    downloads.on_chunk(A, chunk_of(0, bytes(len(DATA))), 0)
    downloads.drop(A, 0, [B])
    for number in (1, 2):
        downloads.on_chunk(B, chunk_of(number), 1)
    downloads.want(DATA_HASH, len(DATA), C, 1)
    assert downloads.on_chunk(B, chunk_of(0, bytes(len(DATA))), 1) == (None, asked_of(0, 1, 2, peer=C))
    for number in (0, 1):
        for peer in (B, C):
            assert downloads.on_chunk(peer, chunk_of(number), 2) == (None, []), "B has sent its first chunk"
    assert downloads.on_chunk(C, chunk_of(2), 3) == (DATA, [])


@pytest.mark.parametrize("size", [len(LONG), None], ids=["signed", "unknown"])
def test_a_large_content_is_put_together_on_the_disk(tmp_path: Path, size: int | None) -> None:
    spools = SpoolFolder(tmp_path / "spool", size_min=2 * CHUNK_SIZE)
    downloads, content = Downloads(2**30, spools=spools), None
    downloads.want(LONG_HASH, size, A, 0)
    for number in range(51):
        assert spools.folder.exists() == (number > 2)
        content, _ = downloads.on_chunk(A, chunk_of(number, LONG, LONG_HASH), number)
    assert content is not None
    assert content[:] == LONG
    assert digest_of(content) == LONG_HASH
    assert [*spools.folder.iterdir()] == [path_of(content)]


def test_of_a_large_content_that_was_wrong_nothing_is_left(tmp_path: Path) -> None:
    spools = SpoolFolder(tmp_path / "spool", size_min=2 * CHUNK_SIZE)
    downloads, wrong = Downloads(2**30, spools=spools), LONG[:-1] + b"!"
    downloads.want(LONG_HASH, len(LONG), A, 0)
    for number in range(50):
        downloads.on_chunk(A, chunk_of(number, wrong, LONG_HASH), 0)
    assert len([*spools.folder.iterdir()]) == 1
    with pytest.raises(InvalidPayload, match="payload hash"):
        downloads.on_chunk(A, chunk_of(50, wrong, LONG_HASH), 0)
    gc.collect()
    assert not [*spools.folder.iterdir()]
    downloads.want(LONG_HASH, len(LONG), B, 0)
    assert {peer for peer, _ in downloads.on_tick(0)} == {B}
    for number in range(30):  # half of it, and no more
        downloads.on_chunk(B, chunk_of(number, LONG, LONG_HASH), number)
    assert downloads.arrived(LONG_HASH) == 30 * CHUNK_SIZE
    assert len([*spools.folder.iterdir()]) == 1
    downloads.give_up(LONG_HASH)
    assert not [*spools.folder.iterdir()]


def test_a_full_disk_is_nobodys_fault_and_may_have_room_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    downloads = Downloads(2**30, spools=SpoolFolder(tmp_path / "spool", size_min=2 * CHUNK_SIZE))
    downloads.want(LONG_HASH, len(LONG), A, 0)
    write, written = SpoolFile.write, list[int]()

    def full(spool: SpoolFile, piece: bytes | memoryview) -> None:
        written.append(len(piece))
        if len(written) == 20:
            raise OSError(28, "No space left on device")
        write(spool, piece)

    monkeypatch.setattr(SpoolFile, "write", full)
    for number in range(19):
        downloads.on_chunk(A, chunk_of(number, LONG, LONG_HASH), 0)
    with pytest.raises(LimitReached, match="No space left"):
        downloads.on_chunk(A, chunk_of(19, LONG, LONG_HASH), 0)
    gc.collect()
    assert downloads.arrived(LONG_HASH) == 0
    assert not [*(tmp_path / "spool").iterdir()]
    assert downloads.on_tick(DISK_PAUSE_MS - 1) == []
    assert numbers_of(downloads.on_tick(DISK_PAUSE_MS), A) == list(range(PIPELINE))
    content = None
    for number in range(51):
        content, _ = downloads.on_chunk(A, chunk_of(number, LONG, LONG_HASH), DISK_PAUSE_MS)
    assert content is not None
    assert content[:] == LONG
