"""One provider of one content: how long it is waited for, and when it is replaced."""

from itertools import count

from fedchain.network.download import PIPELINE
from fedchain.network.downloads import Downloads
from fedchain.network.messages import CHUNK_SIZE
from fedchain.network.source import RATE_MIN, RATE_WINDOW_MS, STALL_MS
from tests.support.network.contents import DATA_HASH, LONG, LONG_HASH, A, B, C, asked_of, chunk_of, numbers_of


def test_a_single_provider_is_asked_again_ever_more_seldom() -> None:
    downloads = Downloads(2**20)
    downloads.want(DATA_HASH, 10, A, 0)
    asked_ms = [now_ms for now_ms in range(100, 60_000, 100) if downloads.on_tick(now_ms)]
    pauses = [after - before for before, after in zip([0, *asked_ms], asked_ms, strict=False)]
    assert pauses[:3] == [STALL_MS, 2 * STALL_MS, 4 * STALL_MS]
    assert set(pauses[3:]) == {4 * STALL_MS}


def test_a_slow_provider_is_replaced() -> None:
    """A chunk now and then keeps it from being silent; 16 MiB would take two minutes."""
    downloads = Downloads(2**30)
    downloads.want(LONG_HASH, len(LONG), A, 0)
    for number, now_ms in enumerate((1_850, 3_700)):
        assert downloads.on_tick(now_ms - 1) == []
        assert numbers_of(downloads.on_chunk(A, chunk_of(number, LONG, LONG_HASH), now_ms)[1], A) == [number + PIPELINE]
    assert downloads.on_tick(RATE_WINDOW_MS - 1, [B]) == []
    requests = downloads.on_tick(RATE_WINDOW_MS, [B])
    assert requests == asked_of(2, 3, 4, 5, peer=B, content_hash=LONG_HASH), "B goes on where A broke off"
    (_, more) = downloads.on_chunk(A, chunk_of(2, LONG, LONG_HASH), RATE_WINDOW_MS + 1)
    assert more == asked_of(6, peer=B, content_hash=LONG_HASH), "what comes late is taken, and no more is asked of A"


def test_a_slow_provider_that_is_the_only_one_is_measured_again() -> None:
    downloads = Downloads(2**30)
    downloads.want(LONG_HASH, len(LONG), A, 0)
    for number, now_ms in enumerate(range(1_500, 12_500, 1_500)):
        downloads.on_chunk(A, chunk_of(number, LONG, LONG_HASH), now_ms)
        assert downloads.on_tick(now_ms) == [], "there is nobody else"
    for number in range(8, 40):
        downloads.on_chunk(A, chunk_of(number, LONG, LONG_HASH), 12_500)
    assert downloads.on_tick(12_600, [B]) == [], "it is fast now"


def test_a_provider_that_is_fast_enough_stays() -> None:
    downloads = Downloads(2**30)
    requests = downloads.want(LONG_HASH, len(LONG), A, 0)
    downloads.want(LONG_HASH, len(LONG), B, 0)
    downloads.drop(B, 0)
    downloads.on_tick(0, [])
    pause_ms = 1_000 * CHUNK_SIZE // RATE_MIN - 1
    content = None
    for now_ms in count(pause_ms, pause_ms):
        who, request = requests.pop(0)
        assert who == A
        content, more = downloads.on_chunk(A, chunk_of(request.offset // CHUNK_SIZE, LONG, LONG_HASH), now_ms)
        requests += more
        if content is not None:
            break
        assert downloads.on_tick(now_ms, [C]) == []
    assert content == LONG
