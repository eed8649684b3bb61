"""Pieces are read as if they were joined, and in place where they can be."""

import pytest

from fedchain.simulator.trained.joined import Joined

PIECES = (b"abc", b"", b"d", memoryview(b"efgh"))
WHOLE = b"".join(PIECES)


def part(joined: Joined, begin: int, end: int) -> memoryview:
    found = joined[begin:end]
    assert isinstance(found, memoryview)
    return found


def test_every_part_is_that_of_the_joined_bytes() -> None:
    joined = Joined(PIECES)
    assert len(joined) == len(WHOLE)
    assert [joined[place] for place in range(len(WHOLE))] == list(WHOLE)
    for begin in range(len(WHOLE) + 2):
        for end in range(len(WHOLE) + 2):
            assert part(joined, begin, end) == WHOLE[begin:end], (begin, end)
    with pytest.raises(IndexError):
        _ = joined[len(WHOLE)]
    assert len(Joined(())) == len(part(Joined(()), 0, 3)) == 0


def test_a_part_of_one_piece_is_not_copied() -> None:
    found = part(Joined(PIECES), 5, 8)
    assert found.obj is memoryview(PIECES[3]).obj
