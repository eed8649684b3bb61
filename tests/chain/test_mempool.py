"""The first post of a member counts; another one is evidence and changes nothing."""

from dataclasses import replace

import pytest

from fedchain.chain.exceptions import Equivocation
from fedchain.chain.transaction import Transaction
from fedchain.node.core.mempool import Mempool
from tests.chain.builders import CREATED_MS, genesis, keys, payload, post

GENESIS = genesis(4)
KEYS = keys(4)
NOW_MS = CREATED_MS + 5_000


def _post(member: int = 0, round_number: int = 1, phase: int = 0, number: int = 1) -> Transaction:
    return post(KEYS[member], GENESIS, round_number, payload(number), phase=phase)


def _held(pool: Mempool) -> list[Transaction]:
    steps = [(round_number, phase) for round_number in range(4) for phase in range(3)]
    return [transaction for step in steps for transaction in pool.posts(step).values()]


def test_a_post_is_kept_and_found() -> None:
    pool, transaction = Mempool(), _post()
    assert pool.add(transaction, NOW_MS)
    assert pool.get((1, 0), transaction.sender) is transaction
    assert pool.posts((1, 0)) == {transaction.sender: transaction}
    assert pool.get((1, 1), transaction.sender) is None
    assert pool.get((1, 0), KEYS[1].public_key) is None
    assert pool.posts((2, 0)) == {}
    assert len(pool) == 1


def test_a_post_that_comes_again_is_not_news() -> None:
    pool, transaction = Mempool(), _post()
    pool.add(transaction, NOW_MS)
    assert not pool.add(_post(), NOW_MS + 1)
    assert _held(pool) == [transaction]
    assert list(pool.held_before((1, 0), NOW_MS + 1)) == [transaction]  # the first time counts


def test_equivocation_is_refused_names_both_posts_and_changes_nothing() -> None:
    pool, first, second = Mempool(), _post(number=1), _post(number=2)
    pool.add(first, NOW_MS)
    with pytest.raises(Equivocation) as caught:
        pool.add(second, NOW_MS + 1)
    assert caught.value.rule == "one post per phase"
    sender = first.sender.hex()[:16]
    assert str(caught.value) == f"one post per phase: {sender}… signed {first.hash.hex()} and {second.hash.hex()}"
    assert _held(pool) == [first]
    assert list(pool.held_before((1, 0), NOW_MS + 1)) == [first]


def test_another_timestamp_is_another_post() -> None:
    pool, transaction = Mempool(), _post()
    pool.add(transaction, NOW_MS)
    with pytest.raises(Equivocation):
        pool.add(replace(transaction, timestamp_ms=transaction.timestamp_ms + 1), NOW_MS + 2)
    assert _held(pool) == [transaction]


def test_each_member_posts_once_in_each_phase() -> None:
    pool = Mempool()
    for member in range(4):
        for step in ((1, 0), (1, 1), (2, 0)):
            assert pool.add(_post(member, *step), NOW_MS)
    assert len(pool) == 12
    assert set(pool.posts((1, 1))) == {key.public_key for key in KEYS}


def test_posts_of_closed_phases_are_forgotten() -> None:
    pool = Mempool()
    steps = [(1, 0), (1, 1), (2, 0), (2, 1)]
    for step in steps:
        pool.add(_post(0, *step), NOW_MS)
    for dropped, step in enumerate([*steps, (3, 0)]):
        pool.drop_before(step)
        assert len(pool) == len(steps) - dropped
        assert all((item.round, item.phase) >= step for item in _held(pool))
        assert [bool(list(pool.held_before(known, NOW_MS + 1))) for known in steps] == [
            known >= step for known in steps
        ]


def test_a_forgotten_phase_starts_anew() -> None:
    pool = Mempool()
    pool.add(_post(number=1), NOW_MS)
    pool.drop_before((2, 0))
    assert pool.add(_post(number=2), NOW_MS + 9)
    assert list(pool.held_before((1, 0), NOW_MS + 9)) == []


def test_held_before_is_strict_and_knows_the_phase() -> None:
    pool = Mempool()
    for member in range(3):
        pool.add(_post(member), NOW_MS + member)
    pool.add(_post(3, 1, 1), NOW_MS)
    senders = [{item.sender for item in pool.held_before((1, 0), NOW_MS + late)} for late in range(4)]
    assert senders == [{key.public_key for key in KEYS[:count]} for count in range(4)]
    assert list(pool.held_before((9, 0), NOW_MS + 99)) == []
