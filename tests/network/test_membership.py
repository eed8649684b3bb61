"""Membership: one object for all parts of a network, which follows the head."""

from fedchain.network.membership import Membership
from tests.support.chain.builders import keys

A, B, C = (key.public_key for key in keys(3))


def test_members_come_and_go_with_the_height_and_the_difference_is_told() -> None:
    membership = Membership([A, B])
    assert (membership.height, len(membership)) == (0, 2)
    assert membership.track(7, [B, C]) == (frozenset({C}), frozenset({A}))
    assert (membership.height, len(membership)) == (7, 2)
    assert [peer in membership for peer in (A, B, C)] == [False, True, True]


def test_the_same_members_at_another_height_are_no_change() -> None:
    membership = Membership([A, B])
    assert membership.track(1, (B, A, A)) == (frozenset(), frozenset())
    assert (membership.height, len(membership)) == (1, 2)


def test_the_list_that_it_was_given_may_change_afterwards() -> None:
    members = [A]
    membership = Membership(members)
    members.append(B)
    assert B not in membership
