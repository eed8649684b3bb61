"""Lists of parts: who may have one, and how many are remembered."""

import pytest

from fedchain.chain.knowledge import AGGREGATOR, EVERYBODY, NEXT_AGGREGATOR
from fedchain.node.core.contents.part_lists import LISTS_MAX
from tests.support.chain.builders import keys, post
from tests.support.node.listed import lists_of, places, rotating


@pytest.mark.parametrize(
    ("reader", "posted_in", "open_round", "members"),
    [
        (AGGREGATOR, 1, 1, {1}),
        (AGGREGATOR, 1, 2, {1, 2}),
        (AGGREGATOR, 1, 3, {2, 3}),
        (NEXT_AGGREGATOR, 1, 1, {2}),
        (NEXT_AGGREGATOR, 1, 2, {2}),
        (NEXT_AGGREGATOR, 1, 3, {2, 3}),
        (3, 1, 2, {3}),
        (9, 1, 2, set()),
        (-4, 1, 2, set()),
        (EVERYBODY, 1, 2, {0, 1, 2, 3}),
    ],
)
def test_a_rotating_aggregator_may_have_a_part_from_the_round_on_in_which_it_reads_it(
    reader: int, posted_in: int, open_round: int, members: set[int]
) -> None:
    lists = lists_of(rotating(), 0, open_round)
    found = {place for place, peer in enumerate(rotating().members) if lists.may_have(peer, reader, posted_in)}
    assert found == (places(members) if reader in (AGGREGATOR, NEXT_AGGREGATOR) else members)


@pytest.mark.parametrize(
    ("reader", "posted_in", "open_round", "members"),
    [
        (AGGREGATOR, 1, 1, {1}),
        (AGGREGATOR, 1, 3, {3}),
        (AGGREGATOR, 2, 1, {2}),
        (NEXT_AGGREGATOR, 1, 1, {2}),
        (NEXT_AGGREGATOR, 1, 2, {2}),
        (NEXT_AGGREGATOR, 1, 3, {3}),
        (3, 1, 2, {3}),
        (9, 1, 2, set()),
        (-4, 1, 2, set()),
        (EVERYBODY, 1, 2, {0, 1, 2, 3}),
    ],
)
def test_where_an_aggregator_is_silent_the_one_of_the_open_round_reads_what_was_for_it(
    reader: int, posted_in: int, open_round: int, members: set[int]
) -> None:
    document = rotating()
    found = {place for place in range(4) if lists_of(document, place, open_round).is_ours(reader, posted_in)}
    assert found == (places(members) if reader in (AGGREGATOR, NEXT_AGGREGATOR) else members)


def test_few_lists_are_remembered_and_the_newest_are_among_them() -> None:
    document = rotating()
    lists, key = lists_of(document, 0, 1), keys(2)[1]
    posts = [post(key, document, number, b"") for number in range(1, LISTS_MAX + 2)]
    for item in posts:
        assert lists.parts(item, b"") == []
    assert [*lists._lists] == [item.hash for item in posts[1:]]
