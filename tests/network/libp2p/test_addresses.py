"""Where members are said to be, and whom to dial when."""

import json
from pathlib import Path

import pytest

from fedchain.chain.encoding import encode
from fedchain.chain.exceptions import InvalidEncoding
from fedchain.crypto.address import address
from fedchain.files.layout import ADDRESS_FILE
from fedchain.network.libp2p.addresses import (
    ADDRESSES_PER_PEER,
    ENTRIES_MAX,
    EXCHANGE_SIZE_MAX,
    FILE_SIZE_PER_MEMBER_MAX,
    VERSION_SIZE_MAX,
    AddressBook,
    InvalidBootstrap,
    decode_exchange,
    encode_exchange,
    is_address,
    parse_bootstrap,
    seen_from,
)
from fedchain.network.limits import Limits
from fedchain.network.membership import Membership
from tests.support.chain.builders import keys

MEMBERS = [key.public_key for key in keys(20)]
ME, ONE, TWO, THREE = MEMBERS[:4]
STRANGER = keys(21)[20].public_key
LIMITS = Limits(peers_wanted=2, redial_min_s=1.0, redial_max_s=8.0)


def at(port: int) -> str:
    return f"/ip4/127.0.0.1/tcp/{port}"


def book(folder: Path | None = None) -> AddressBook:
    return AddressBook(ME, Membership(MEMBERS), LIMITS, folder)


def test_a_bootstrap_address_names_a_member_and_a_place() -> None:
    assert parse_bootstrap(f"/ip4/1.2.3.4/tcp/4001/p2p/{address(ONE)}", MEMBERS) == (ONE, "/ip4/1.2.3.4/tcp/4001")
    assert parse_bootstrap(f"/dns/example.org/tcp/1/p2p/{address(ONE)}", MEMBERS) == (ONE, "/dns/example.org/tcp/1")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"/ip4/1.2.3.4/tcp/4001/p2p/{address(STRANGER)}", "is not a member"),
        ("/ip4/1.2.3.4/tcp/4001", "peer id"),
        (f"/ip4/1.2.3.4/udp/4001/quic-v1/p2p/{address(ONE)}", "not of the form"),
        (f"/ip4/1.2.3.4/tcp/0/p2p/{address(ONE)}", "tcp/0/p2p/.*': nobody can dial port 0$"),
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
        "/ip4/1.2.3.4/tcp/0",
        "/ip4/1.2.3.4/tcp/1/ws",
        "/unix/a/tcp/1",
        "/ip4/1.2.3.4//tcp/1",
        "/ip4/1.2.3.4/tcp/1/",
        "/ip4/1.2.3.4/tcp/0001",
        "/ip6/0::1/tcp/1",
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
        ("/ip4/0.0.0.0/tcp/1", "", ""),
        ("/ip4/0.0.0.0/tcp/1", "2001:db8::1", ""),
        ("/ip6/::/tcp/1", "1.2.3.4", "/ip4/1.2.3.4/tcp/1"),
    ],
)
def test_who_listens_everywhere_is_where_it_is_seen(place: str, host: str, seen: str) -> None:
    assert seen_from(place, host) == seen


def test_bootstrap_members_are_dialled_whatever_is_connected() -> None:
    known = book()
    known.add_fixed(ONE, at(1))
    known.add_told(TWO, [at(2)], by_itself=True)
    assert sorted(known.due([], 0.0)) == sorted([(ONE, [at(1)]), (TWO, [at(2)])])
    assert known.due([THREE, MEMBERS[5]], 0.0) == [(ONE, [at(1)])]
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
        assert known.due([], now_s) == [(ONE, [at(1)])]
        due_s = known.on_failure(ONE, now_s)
        pauses.append(due_s - now_s)
        assert known.due([], now_s + 0.99 * pauses[-1]) == []
        now_s = due_s
    for pause_s, longest_s in zip(pauses, [1, 2, 4, 8, 8, 8, 8, 8], strict=True):
        assert 0.75 * longest_s <= pause_s <= longest_s
    known.on_connected(ONE)
    known.on_disconnected(ONE, now_s)
    assert known.due([], now_s) == []
    assert known.due([], now_s + 1.0) == [(ONE, [at(1)])]
    assert known.on_failure(ONE, now_s) <= now_s + 1.0


def test_all_addresses_of_a_member_are_tried_in_turn() -> None:
    known = book()
    known.add_told(ONE, [at(1), at(2)], by_itself=True)
    known.add_fixed(ONE, at(3))
    tried = []
    for attempt in range(4):
        ((_, places),) = known.due([], 100.0 * attempt)
        tried.append(places)
        known.on_failure(ONE, 100.0 * attempt)
    assert tried == [[at(3), at(1), at(2)], [at(1), at(2), at(3)], [at(2), at(3), at(1)], [at(3), at(1), at(2)]]


def test_a_members_own_word_replaces_hearsay() -> None:
    known = book()
    known.add_told(ONE, [at(1)], by_itself=False)
    known.add_told(ONE, [at(1), at(2)], by_itself=False)
    assert known.sample(TWO) == [(ONE, [at(1), at(2)])]
    known.add_told(ONE, [at(3)], by_itself=True)
    known.add_told(ONE, [at(4)], by_itself=False)
    assert known.sample(TWO) == [(ONE, [at(3)])]


def test_a_member_that_names_no_place_leaves_it_to_hearsay() -> None:
    known = book()
    known.add_told(ONE, [at(1)], by_itself=False)
    known.add_told(ONE, [""], by_itself=True)
    known.add_told(ONE, [at(2)], by_itself=False)
    assert known.known() == {ONE: [at(1), at(2)]}


def test_a_member_that_cannot_be_reached_at_its_word_is_tried_where_others_say_that_it_is() -> None:
    known = book()
    known.add_told(ONE, [at(1)], by_itself=True)
    known.on_failure(ONE, 0.0)
    for port in range(2, 9):
        known.add_told(ONE, [at(1), at(port)], by_itself=False)
    known.on_failure(ONE, 0.0)
    assert sorted(known.due([], 99.0)) == [(ONE, [at(6), at(7), at(8), at(1), at(5)])]
    known.on_connected(ONE)
    known.add_told(ONE, [at(9)], by_itself=False)
    known.add_told(ONE, [at(3)], by_itself=True)
    assert known.known() == {ONE: [at(3)]}


def test_what_is_remembered_and_told_is_bounded() -> None:
    known = book()
    for member in MEMBERS:
        known.add_told(member, ["garbage", *map(at, range(1, 50))], by_itself=False)
    told = known.sample(ONE)
    assert len(told) == ENTRIES_MAX
    assert ONE not in dict(told)
    assert ME not in dict(told)
    assert all(len(places) == ADDRESSES_PER_PEER for _, places in told)
    assert len(encode_exchange("x" * VERSION_SIZE_MAX, told)) < EXCHANGE_SIZE_MAX


def test_an_address_is_kept_once_whoever_tells_of_it(tmp_path: Path) -> None:
    for by_itself in (True, False):
        known = book(tmp_path)
        known.add_fixed(ONE, at(1))
        known.add_told(ONE, [at(1), at(2), at(2)], by_itself=by_itself)
        assert known.known() == {ONE: [at(1), at(2)]}


def test_newer_hearsay_takes_the_place_of_older() -> None:
    known = book()
    for port in range(1, 10):
        known.add_told(ONE, [at(port)], by_itself=False)
    assert known.sample(TWO) == [(ONE, [at(6), at(7), at(8), at(9)])]


def test_what_is_known_survives_a_restart_as_hearsay(tmp_path: Path) -> None:
    first = book(tmp_path)
    first.add_fixed(ONE, at(1))
    first.add_told(TWO, [at(2), at(3)], by_itself=True)
    first.save()
    again = book(tmp_path)
    assert sorted(again.sample(THREE)) == sorted([(ONE, [at(1)]), (TWO, [at(2), at(3)])])
    assert again.due([THREE], 0.0) in (
        [(ONE, [at(1)])],
        [(TWO, [at(2), at(3)])],
    )  # no bootstrap members: as many as are wanted
    again.add_told(TWO, [at(4)], by_itself=False)
    assert (TWO, [at(2), at(3), at(4)]) in again.sample(THREE)
    again.add_told(TWO, [at(5)], by_itself=True)
    assert (TWO, [at(5)]) in again.sample(THREE)


def test_addresses_are_written_only_when_they_changed(tmp_path: Path) -> None:
    known, path = book(tmp_path), tmp_path / ADDRESS_FILE
    known.save()
    assert not path.exists()
    known.add_told(ONE, [at(1)], by_itself=True)
    known.save()
    path.unlink()
    known.add_told(ONE, [at(1)], by_itself=True)
    known.on_failure(ONE, 0.0)
    known.save()
    assert not path.exists()
    known.add_told(ONE, [at(2)], by_itself=True)
    known.save()
    assert [file.name for file in tmp_path.iterdir()] == [ADDRESS_FILE]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[" * 100_000,
        "[]",
        '{"nobody": ["/ip4/127.0.0.1/tcp/1"]}',
        json.dumps({address(ONE): 5}),
        json.dumps({address(ONE): "/ip4/127.0.0.1/tcp/1"}),
        json.dumps({address(ONE): [5, None, "garbage"], address(STRANGER): [at(1)], address(ME): [at(1)]}),
        json.dumps({address(ONE): [at(1)]}) + " " * FILE_SIZE_PER_MEMBER_MAX * (1 + len(MEMBERS)),
        "\ud800",
    ],
)
def test_a_damaged_file_tells_nothing_and_is_written_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / ADDRESS_FILE).write_text(text, encoding="utf-8", errors="surrogatepass")
    known = book(tmp_path)
    assert known.sample(bytes(32)) == []
    known.add_told(ONE, [at(1)], by_itself=True)
    known.save()
    assert book(tmp_path).sample(bytes(32)) == [(ONE, [at(1)])]


def test_the_fullest_book_is_read_again(tmp_path: Path) -> None:
    known = book(tmp_path)
    for number, member in enumerate(MEMBERS):
        longest = [f"/dns/{'a.' * 54}{number:02}{place}/tcp/65535" for place in range(ADDRESSES_PER_PEER)]
        known.add_told(member, longest, by_itself=True)
    known.save()
    told = dict(known.sample(ME))
    assert len(told) == ENTRIES_MAX
    again = book(tmp_path)
    assert again._known() == known._known()
    assert all(len(places) == ADDRESSES_PER_PEER for places in again._known().values())


def test_entries_and_a_version_travel() -> None:
    entries = [(ONE, [at(1), at(2)]), (TWO, []), (b"", [at(3)])]
    for version in ("", "1.2.3", "x" * VERSION_SIZE_MAX):
        assert decode_exchange(encode_exchange(version, entries)) == (version, entries)


@pytest.mark.parametrize(
    "items",
    [[5], [[ONE]], [[ONE, at(1)]], [[at(1), []]], [[ONE, [5]]], [[ONE, [at(1)] * 5]], [[ONE, []]] * 17],
)
def test_other_entries_are_refused(items: object) -> None:
    with pytest.raises(InvalidEncoding):
        decode_exchange(encode(["1.0", items]))


@pytest.mark.parametrize("value", [5, [], ["1.0"], [5, []], ["1.0", 5], ["x" * 33, []], ["\x1b[2J", []], ["ü", []]])
def test_other_versions_are_refused(value: object) -> None:
    with pytest.raises(InvalidEncoding):
        decode_exchange(encode(value))


def test_addresses_are_those_of_the_members_that_are_tracked() -> None:
    membership = Membership([ME, ONE])
    known = AddressBook(ME, membership, LIMITS)
    for member in (ONE, TWO):
        known.add_told(member, [at(1)], by_itself=True)
    assert known.sample(THREE) == [(ONE, [at(1)])]
    membership.track(1, [ME, TWO])
    known.forget(ONE)
    for member in (ONE, TWO):
        known.add_told(member, [at(2)], by_itself=True)
    assert known.sample(THREE) == [(TWO, [at(2)])]
    assert known.due((), 0.0) == [(TWO, [at(2)])]
    known.on_failure(ONE, 0.0)  # an attempt that began before
    assert known.failures(ONE) == 0


def test_a_bootstrap_peer_that_is_no_member_yet_is_dialled_once_it_is() -> None:
    members = Membership(MEMBERS)
    known = AddressBook(ME, members, LIMITS, None)
    known.add_fixed(STRANGER, at(1))
    assert known.due([], 0.0) == []
    known.adopt(STRANGER)
    assert known.due([], 0.0) == [], "it is no member yet"
    known.add_fixed(STRANGER, at(1))
    members.track(1, [*MEMBERS, STRANGER])
    known.adopt(STRANGER)
    assert known.due([], 0.0) == [(STRANGER, [at(1)])]


def test_saved_addresses_of_members_that_came_later_are_found_again(tmp_path: Path) -> None:
    (tmp_path / ADDRESS_FILE).write_text(json.dumps({address(STRANGER): [at(1), "nowhere"]}))
    members = Membership(MEMBERS)
    known = AddressBook(ME, members, LIMITS, tmp_path)
    assert known.known() == {}
    members.track(1, [*MEMBERS, STRANGER])
    known.adopt(STRANGER)
    assert known.known() == {STRANGER: [at(1)]}


def test_however_many_guests_are_connected_members_are_dialled() -> None:
    """A liar vouches for eight keys at a time: a node that starts again would wait for members for ever."""
    membership = Membership(MEMBERS)
    membership.guests = frozenset(MEMBERS[10:])
    known = AddressBook(ME, membership, LIMITS)
    known.add_told(ONE, [at(1)], by_itself=True)
    assert known.due(MEMBERS[10:], 0.0) == [(ONE, [at(1)])]
    assert known.lacking(MEMBERS[9:]) == LIMITS.peers_wanted - 1
    assert known.due([TWO, THREE, *MEMBERS[10:]], 0.0) == []
