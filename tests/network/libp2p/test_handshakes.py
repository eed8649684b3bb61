"""The peer that makes way when all places for handshakes are taken."""

import pytest

from fedchain.network.libp2p.handshakes import Handshakes, origin


def test_who_holds_most_makes_way_oldest_first() -> None:
    door = Handshakes[str](4)
    assert [door.add(name, "10.0.0.1") for name in ("a1", "a2", "a3")] == [None, None, None]
    assert door.add("b1", "10.0.0.2") is None
    assert door.add("c1", "10.0.0.3") == "a1"
    assert door.add("c2", "10.0.0.3") == "a2"
    assert door.add("c3", "10.0.0.3") == "c1"
    assert len(door) == 4


def test_a_flood_from_one_address_never_touches_another() -> None:
    door = Handshakes[int](8)
    door.add(-1, "192.0.2.1")
    evicted = [door.add(number, "10.0.0.1") for number in range(1_000)]
    assert [item for item in evicted if item is not None] == list(range(993))
    assert len(door) == 8


def test_strangers_with_many_addresses_push_out_the_oldest() -> None:
    door = Handshakes[int](4)
    evicted = [door.add(number, f"10.0.0.{number}") for number in range(8)]
    assert evicted == [None] * 4 + [0, 1, 2, 3]


def test_a_handshake_that_ended_leaves_room() -> None:
    door = Handshakes[int](1)
    door.add(1, "10.0.0.1")
    door.remove(1)
    door.remove(1)
    assert door.add(2, "10.0.0.1") is None
    assert len(door) == 1


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("", "what", True),
    ],
)
def test_what_counts_as_one(one: str, other: str, is_same: bool) -> None:
    assert (origin(one) == origin(other)) is is_same
