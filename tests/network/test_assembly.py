"""Chunks become a content."""

from fedchain.network.assembly import AHEAD_MAX, Assembly
from fedchain.network.messages import CHUNK_SIZE
from tests.support.network.contents import LONG, LONG_HASH, A, B


def test_an_assembly_waits_for_what_is_missing() -> None:
    parts = Assembly(LONG_HASH, len(LONG), 2**30)
    assert list(parts.wanted()) == list(range(AHEAD_MAX))
    for number in (1, 3):
        parts.put(number, LONG[number * CHUNK_SIZE :][:CHUNK_SIZE], A)
    assert list(parts.wanted()) == [0, 2, *range(4, AHEAD_MAX)]
    parts.put(0, LONG[:CHUNK_SIZE], B)
    assert list(parts.wanted()) == [2, *range(4, AHEAD_MAX + 2)]
    assert parts.senders == {A, B}
    assert not parts.is_complete
    assert not parts.ends_here()
