"""Bitmaps of members."""

from hypothesis import given
from hypothesis import strategies as st

from fedchain.chain.membership.change import PLACES_MAX
from fedchain.network.bitmaps import difference, from_bitmap, to_bitmap
from fedchain.network.messages import BITMAP_SIZE_MAX


@given(st.integers(1, 200), st.data())
def test_what_was_marked_is_read_back(size: int, data: st.DataObject) -> None:
    places = data.draw(st.sets(st.integers(0, size - 1)))
    bitmap = to_bitmap(places, size)
    assert len(bitmap) == (size + 7) // 8
    assert list(from_bitmap(bitmap, size)) == sorted(places)


def test_the_first_member_is_the_least_significant_bit_of_the_first_byte() -> None:
    assert to_bitmap([0, 9], 10) == b"\x01\x02"


@given(st.binary(max_size=40), st.integers(0, 100))
def test_what_lies_beyond_the_members_is_not_looked_at(bitmap: bytes, size: int) -> None:
    places = list(from_bitmap(bitmap, size))
    assert all(place < size and bitmap[place >> 3] >> (place & 7) & 1 for place in places)


@given(st.integers(1, 100), st.data())
def test_a_difference_is_of_the_marked_that_no_other_marks(size: int, data: st.DataObject) -> None:
    marked, *others = (data.draw(st.sets(st.integers(0, size + 9))) for _ in range(3))
    found = difference(to_bitmap(marked, size + 10), [to_bitmap(item, size + 10) for item in others], size)
    left = {place for place in marked.difference(*others) if place < size}
    assert found == (to_bitmap(left, size) if left else None)


def test_a_status_has_a_bit_for_each_place_that_there_may_ever_be() -> None:
    assert len(to_bitmap([PLACES_MAX - 1], PLACES_MAX)) == BITMAP_SIZE_MAX
