"""Where members are said to be, and whom to dial when."""

import pytest

from fedchain.chain.encoding import encode
from fedchain.chain.exceptions import InvalidEncoding
from fedchain.crypto.address import address
from fedchain.network.libp2p_addresses import (
    ADDRESSES_PER_PEER,
    ENTRIES_MAX,
    EXCHANGE_SIZE_MAX,
    AddressBook,
    InvalidBootstrap,
    decode_entries,
    encode_entries,
    is_address,
    parse_bootstrap,
    seen_from,
)
from fedchain.network.limits import Limits
from tests.chain.builders import keys

MEMBERS = [key.public_key for key in keys(20)]
ME, ONE, TWO, THREE = MEMBERS[:4]
LIMITS = Limits(peers_wanted=2, redial_min_s=1.0, redial_max_s=8.0)


def at(port: int) -> str:
    return f"/ip4/127.0.0.1/tcp/{port}"


def book() -> AddressBook:
    return AddressBook(ME, MEMBERS, LIMITS)


def test_a_bootstrap_address_names_a_member_and_a_place() -> None:
    assert parse_bootstrap(f"/ip4/1.2.3.4/tcp/4001/p2p/{address(ONE)}", MEMBERS) == (ONE, "/ip4/1.2.3.4/tcp/4001")
    assert parse_bootstrap(f"/dns/example.org/tcp/1/p2p/{address(ONE)}", MEMBERS) == (ONE, "/dns/example.org/tcp/1")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"/ip4/1.2.3.4/tcp/4001/p2p/{address(bytes(32))}", "is not a member"),
        ("/ip4/1.2.3.4/tcp/4001", "peer id"),
        (f"/ip4/1.2.3.4/udp/4001/quic-v1/p2p/{address(ONE)}", "not of the form"),
        (f"/p2p/{address(ONE)}", "not of the form"),
        (address(ONE), "not of the form"),
        ("", "peer id"),
    ],
)
def test_other_bootstrap_addresses_are_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidBootstrap, match=reason):
        parse_bootstrap(text, MEMBERS)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "/tcp/1",
        "/ip4/1.2.3.4",
        "/ip4/999.1.1.1/tcp/1",
        "/ip4/1.2.3.4/tcp/99999",
        "/ip4/1.2.3.4/tcp/1/ws",
        "/unix/a/tcp/1",
        "/dns/" + "a" * 200 + "/tcp/1",
    ],
)
def test_what_cannot_be_dialled_is_no_address(text: str) -> None:
    assert not is_address(text)


@pytest.mark.parametrize(
    ("place", "host", "seen"),
    [
        ("/ip4/0.0.0.0/tcp/1", "1.2.3.4", "/ip4/1.2.3.4/tcp/1"),
        ("/ip6/::/tcp/1", "2001:db8::1", "/ip6/2001:db8::1/tcp/1"),
        ("/ip4/5.6.7.8/tcp/1", "1.2.3.4", "/ip4/5.6.7.8/tcp/1"),
        ("/ip4/0.0.0.0/tcp/1", "", "/ip4/0.0.0.0/tcp/1"),
    ],
)
def test_who_listens_everywhere_is_where_it_is_seen(place: str, host: str, seen: str) -> None:
    assert seen_from(place, host) == seen


def test_bootstrap_members_are_dialled_whatever_is_connected() -> None:
    known = book()
    known.add_fixed(ONE, at(1))
    known.add_told(TWO, [at(2)], by_itself=True)
    assert sorted(known.due([], 0.0)) == sorted([(ONE, at(1)), (TWO, at(2))])
    assert known.due([THREE, MEMBERS[5]], 0.0) == [(ONE, at(1))]
    assert known.due([ONE, THREE], 0.0) == []


def test_we_are_not_dialled_and_strangers_are_not_known() -> None:
    known = book()
    known.add_fixed(ME, at(1))
    known.add_told(bytes(32), [at(2)], by_itself=False)
    known.on_connected(bytes(32))
    known.on_disconnected(bytes(32), 0.0)
    assert known.due([], 0.0) == []


def test_pauses_grow_up_to_a_limit_and_end_with_success() -> None:
    known = book()
    known.add_fixed(ONE, at(1))
    now_s, pauses = 0.0, []
    for _ in range(8):
        assert known.due([], now_s) == [(ONE, at(1))]
        pause_s = known.on_dial(ONE, now_s)
        assert known.due([], now_s + 0.99 * pause_s) == []
        now_s += pause_s
        pauses.append(pause_s)
    for pause_s, middle_s in zip(pauses, [1, 2, 4, 8, 8, 8, 8, 8], strict=True):
        assert 0.75 * middle_s <= pause_s <= 1.25 * middle_s
    known.on_connected(ONE)
    known.on_disconnected(ONE, now_s)
    assert known.due([], now_s) == []
    assert known.due([], now_s + 1.0) == [(ONE, at(1))]
    assert known.on_dial(ONE, now_s) <= 1.25


def test_addresses_of_a_member_are_tried_in_turn() -> None:
    known = book()
    known.add_told(ONE, [at(1), at(2)], by_itself=True)
    tried = []
    for attempt in range(4):
        tried += known.due([], 100.0 * attempt)
        known.on_dial(ONE, 100.0 * attempt)
    assert tried == [(ONE, at(1)), (ONE, at(2)), (ONE, at(1)), (ONE, at(2))]


def test_a_members_own_word_replaces_hearsay() -> None:
    known = book()
    known.add_told(ONE, [at(1)], by_itself=False)
    known.add_told(ONE, [at(1), at(2)], by_itself=False)
    assert known.sample(TWO) == [(ONE, [at(1), at(2)])]
    known.add_told(ONE, [at(3)], by_itself=True)
    known.add_told(ONE, [at(4)], by_itself=False)
    assert known.sample(TWO) == [(ONE, [at(3)])]


def test_what_is_remembered_and_told_is_bounded() -> None:
    known = book()
    for member in MEMBERS:
        known.add_told(member, ["garbage", *map(at, range(1, 50))], by_itself=False)
    told = known.sample(ONE)
    assert len(told) == ENTRIES_MAX
    assert ONE not in dict(told)
    assert ME not in dict(told)
    assert all(len(places) == ADDRESSES_PER_PEER for _, places in told)
    assert len(encode_entries(told)) < EXCHANGE_SIZE_MAX


def test_entries_travel() -> None:
    entries = [(ONE, [at(1), at(2)]), (TWO, []), (b"", [at(3)])]
    assert decode_entries(encode_entries(entries)) == entries


@pytest.mark.parametrize(
    "value",
    [5, [5], [[ONE]], [[ONE, at(1)]], [[at(1), []]], [[ONE, [5]]], [[ONE, [at(1)] * 5]], [[ONE, []]] * 17],
)
def test_other_entries_are_refused(value: object) -> None:
    with pytest.raises(InvalidEncoding):
        decode_entries(encode(value))
