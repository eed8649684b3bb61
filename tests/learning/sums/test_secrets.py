"""Private randomness repeats for its owner and for nobody else."""

import pytest

from fedchain.learning.exceptions import SecretMissing
from fedchain.learning.sums.secrets import ROOT_SIZE, Secrets, no_secrets

MINE = Secrets(1, bytes(range(ROOT_SIZE)), {"share": b"s"})


def test_the_same_labels_give_the_same_bytes_and_any_others_others() -> None:
    drawn = {MINE.draw(16, *labels) for labels in (("a", 1), ("a", 2), ("a", "1"), ("a1",), ("a", 1, 1))}
    assert len(drawn) == 5
    assert MINE.draw(16, "a", 1) == MINE.draw(16, "a", 1)
    assert Secrets(1, bytes(ROOT_SIZE)).draw(16, "a", 1) not in drawn


def test_labels_are_told_apart_where_each_ends() -> None:
    """A label is a method's or a phase's name: one that ends like the beginning of another must not be drawn alike."""
    assert len({MINE.draw(16, *labels) for labels in (("a", "b"), ("asb",), ("ab",), ("as", "b"), ("a", "sb"))}) == 5


def test_a_source_can_be_asked_again_and_repeats_from_its_beginning() -> None:
    one, two = MINE.stream("noise"), MINE.stream("noise")
    first, second = one(8), one(8)
    assert first != second
    assert (two(8), two(8)) == (first, second)


def test_what_is_not_there_is_named_with_its_member() -> None:
    assert MINE.value("share") == b"s"
    with pytest.raises(SecretMissing, match="member 1 has no secret 'key'"):
        MINE.value("key")
    with pytest.raises(SecretMissing, match="member -1 has no root"):
        no_secrets().draw(1)
    with pytest.raises(SecretMissing, match="member 1 has no root"):
        Secrets(1, bytes(ROOT_SIZE - 1)).draw(1)


def test_nothing_is_shown_of_them() -> None:
    assert repr(MINE) == "Secrets(member=1)"
