"""Chunks become a content."""

import pytest

from fedchain.chain.exceptions import InvalidPayload
from fedchain.crypto.hashing import sha256
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


def test_a_content_that_is_forgotten_has_no_senders_and_one_of_a_single_chunk_is_not_large() -> None:
    parts = Assembly(LONG_HASH, len(LONG), 2**30)
    parts.put(0, LONG[:CHUNK_SIZE], A)
    parts.clear()
    assert (parts.senders, parts.arrived) == (set(), 0)
    assert [Assembly(LONG_HASH, CHUNK_SIZE + more, 2**30).is_large for more in (0, 1)] == [False, True]


def put_together(content: bytes, size: int | None, known: bytes | None) -> Assembly:
    """All of a content's chunks, which are to be LONG."""
    parts = Assembly(LONG_HASH, size, 2**30, known=lambda _: known)
    for number, start in enumerate(range(0, len(content), CHUNK_SIZE)):
        assert not parts.ends_here()
        parts.put(number, content[start : start + CHUNK_SIZE], A)
    return parts


@pytest.mark.parametrize("size", [len(LONG), None])
def test_what_agrees_with_a_known_content_is_that_content(size: int | None) -> None:
    parts = put_together(LONG, size, LONG)
    assert parts.is_complete
    assert parts.ends_here()
    assert parts.content() is LONG
    parts.clear()
    assert not parts.ends_here()


@pytest.mark.parametrize("size", [len(LONG), None])
@pytest.mark.parametrize("place", [0, 2 * CHUNK_SIZE, 30 * CHUNK_SIZE - 1, len(LONG) - 1])
def test_a_byte_that_differs_from_a_known_content_is_found(size: int | None, place: int) -> None:
    wrong = LONG[:place] + bytes([LONG[place] ^ 1]) + LONG[place + 1 :]
    for known in (LONG, None):
        parts = put_together(wrong, size, known)
        assert not parts.ends_here()
        with pytest.raises(InvalidPayload, match=sha256(wrong).hex()):
            parts.content()


def test_a_part_of_a_known_content_is_not_the_whole() -> None:
    parts = put_together(LONG[: 3 * CHUNK_SIZE], None, LONG)
    assert not parts.ends_here()
    with pytest.raises(InvalidPayload, match="payload hash"):
        parts.content()


def test_what_a_known_content_is_wrong_about_is_hashed() -> None:
    parts = put_together(LONG, len(LONG), LONG[:CHUNK_SIZE] + b"another end")
    assert parts.ends_here()
    assert parts.content() == LONG
