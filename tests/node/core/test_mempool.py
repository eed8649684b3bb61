"""The mempool: the first post of a member for a phase counts, from the moment at which it came."""

from fedchain.chain.post import Post
from fedchain.node.core.mempool import Mempool
from tests.support.chain.builders import genesis, keys, payload, post

FOUNDING = genesis(4)
PHASE = (1, 0)


def _post(number: int, value: int = 0, round_number: int = 1, phase: int = 0) -> Post:
    return post(keys(4)[number], FOUNDING, round_number, payload(value), phase=phase)


def test_the_first_post_of_a_member_stays_and_so_does_the_moment_at_which_it_came() -> None:
    mempool, first, second = Mempool(), _post(0, 1), _post(0, 2)
    assert mempool.add(first, 5)
    changes = mempool.changes
    assert not mempool.add(second, 9)
    assert not mempool.add(first, 9)
    assert (mempool.get(PHASE, first.sender), mempool.changes, len(mempool)) == (first, changes, 1)
    assert [*mempool.held_before(PHASE, 6)] == [first.sender]
    assert (mempool.holds(first), mempool.holds(second)) == (True, False)


def test_a_post_that_nobody_demands_is_held_and_never_counts_as_held_for_long() -> None:
    mempool, item = Mempool(), _post(0)
    assert mempool.add(item, 5, is_demanded=False)
    assert mempool.posts(PHASE) == {item.sender: item}
    assert [*mempool.held_before(PHASE, 10**9)] == []


def test_what_is_dropped_may_come_again_and_is_held_since_then() -> None:
    mempool, item, other = Mempool(), _post(0, 1), _post(0, 2)
    mempool.add(item, 5)
    changes = mempool.changes
    mempool.drop(other)
    assert (mempool.holds(item), mempool.changes) == (True, changes), "another post of the same member is not held"
    mempool.drop(item)
    assert (mempool.get(PHASE, item.sender), mempool.changes) == (None, changes + 1)
    assert [*mempool.held_before(PHASE, 10**9)] == []
    assert mempool.add(item, 50)
    assert [*mempool.held_before(PHASE, 50)] == []
    assert [*mempool.held_before(PHASE, 51)] == [item.sender]


def test_closed_phases_are_forgotten_and_the_open_one_and_later_ones_stay() -> None:
    mempool = Mempool()
    kept = [_post(0, 1, 2, 1), _post(1, 1, 3, 0)]
    for item in (_post(0, 1, 1, 1), _post(0, 1, 2, 0), *kept):
        mempool.add(item, 5)
    bad = [_post(2, 1, 2, 0), _post(2, 1, 2, 1)]
    mempool.useless = {item.key: item for item in bad}
    mempool.drop_before((2, 1))
    assert [*mempool.useless.values()] == bad[1:]
    assert [*mempool.all()] == kept
    assert [*mempool.payload_hashes()] == [item.payload_hash for item in kept]
    assert [*mempool.held_before((2, 0), 10**9)] == []
    assert [*mempool.held_before((2, 1), 10**9)] == [kept[0].sender]


def test_a_post_was_held_by_the_moment_at_which_it_came() -> None:
    mempool, demanded, other = Mempool(), _post(0), _post(1)
    mempool.add(demanded, 5)
    mempool.add(other, 5, is_demanded=False)
    assert mempool.held_by(PHASE, 4) == {other.sender}
    assert mempool.held_by(PHASE, 5) == {other.sender, demanded.sender}


def test_whatever_is_dropped_or_not_demanded_the_others_are_held_since_they_came() -> None:
    mempool, posts = Mempool(), [_post(seat) for seat in range(4)]
    first, second, third, fourth = (item.sender for item in posts)
    mempool.add(posts[0], 1)
    mempool.add(posts[1], 2, is_demanded=False)
    mempool.open(PHASE).update({third: posts[2], fourth: posts[3]})
    mempool.note([3, 4], PHASE)
    assert mempool.demanded(PHASE) == {first, third, fourth}
    assert mempool.held_before(PHASE, 4) == {first, third}
    mempool.drop(posts[0])
    mempool.drop(posts[1])
    mempool.add(posts[1], 5)
    assert mempool.demanded(PHASE) == {third, fourth, second}
    assert mempool.held_before(PHASE, 5) == mempool.held_by(PHASE, 4) == {third, fourth}
    mempool.drop(posts[3])
    mempool.add(posts[3], 6, is_demanded=False)
    owed = {posts[2].key, posts[3].key}
    mempool.drop_before((2, 0), owed.__contains__)
    assert mempool.demanded(PHASE) == mempool.held_before(PHASE, 9) == {third}
    assert mempool.held_by(PHASE, 2) == {fourth}, "nobody insists on it, whenever it came"
    mempool.drop_before((3, 0))
    mempool.add(posts[3], 7)
    assert mempool.demanded(PHASE) == {fourth}


def test_posts_that_are_noted_afterwards_count_as_changes_and_are_demanded() -> None:
    mempool, item = Mempool(), _post(0)
    before = mempool.changes
    mempool.open(PHASE)[item.sender] = item
    mempool.note([5], PHASE)
    assert (mempool.changes, mempool.demanded(PHASE)) == (before + 1, {item.sender})


def test_of_closed_phases_the_posts_stay_that_are_owed_and_nothing_of_the_others() -> None:
    mempool, owed, other = Mempool(), _post(0), _post(1)
    bad = [_post(2), _post(3)]
    mempool.add(other, 5)
    mempool.add(owed, 7)
    mempool.useless = {item.key: item for item in bad}
    before = mempool.changes
    mempool.drop_before((2, 0), {owed.key, bad[0].key}.__contains__)
    assert mempool.changes > before
    assert [*mempool.all()] == [owed]
    assert mempool.demanded(PHASE) == {owed.sender}
    assert (mempool.held_before(PHASE, 7), mempool.held_before(PHASE, 8)) == (set(), {owed.sender})
    assert [*mempool.useless.values()] == bad[:1]
