"""The list of bans: it outlives the process, is short, private, and harmless where it is damaged."""

import json
import stat
from pathlib import Path

import pytest

from fedchain.crypto.address import address
from fedchain.files.layout import BAN_FILE
from fedchain.network.admission import Gate
from fedchain.network.bans import BAN_FILE_SIZE_MAX, REASON_SIZE_MAX, Ban, read_bans, write_bans
from fedchain.network.membership import Membership
from tests.support.network.gate import LIMITS, MEMBERS, NOON_S, Calendar, gate

ONE, TWO, THREE = MEMBERS
STRANGER = bytes(32)


def who(bans: tuple[Ban, ...]) -> list[bytes]:
    return [ban.peer for ban in bans]


def test_bans_outlive_the_process_with_their_reasons(tmp_path: Path) -> None:
    calendar = Calendar()
    door = gate(tmp_path, calendar)
    door.ban(ONE, "it lied", 0.0)
    calendar.now_s += 30.0
    door.ban(TWO, "it flooded", 30.0)
    calendar.now_s += 10.0
    again = gate(tmp_path, calendar, now_s=1_000_000.0)
    assert again.bans(1_000_000.0) == (
        Ban(ONE, "it lied", NOON_S, NOON_S + 60.0),
        Ban(TWO, "it flooded", NOON_S + 30.0, NOON_S + 90.0),
    )
    assert who(again.bans(1_000_019.0)) == [ONE, TWO]
    assert who(again.bans(1_000_021.0)) == [TWO]
    assert again.pardon(TWO, 1_000_021.0)
    assert not again.pardon(TWO, 1_000_021.0)
    assert not again.pardon(THREE, 1_000_021.0)
    assert again.admits(TWO, 1_000_021.0)
    assert gate(tmp_path, calendar).bans(0.0) == ()


def test_a_ban_holds_as_long_as_it_was_meant_to_whatever_the_calendar_does(tmp_path: Path) -> None:
    calendar = Calendar()
    door = gate(tmp_path, calendar)
    door.ban(ONE, "it lied", 0.0)
    calendar.now_s -= 1e6  # somebody sets the clock back
    assert not door.admits(ONE, 59.0)
    assert door.admits(ONE, 60.0)
    again = gate(tmp_path, calendar)
    assert not again.admits(ONE, 59.0)
    assert again.admits(ONE, 60.0)


def test_the_ban_list_holds_members_only_and_no_past_bans(tmp_path: Path) -> None:
    calendar = Calendar()
    door = gate(tmp_path, calendar)
    door.ban(STRANGER, "", 0.0)
    door.ban(ONE, "", 0.0)
    calendar.now_s += 100.0
    door.ban(TWO, "", 100.0)
    assert list(json.loads((tmp_path / BAN_FILE).read_text())) == [address(TWO)]
    assert not door.admits(STRANGER, 1e9)


def test_a_ban_of_a_member_that_came_since_the_founding_outlives_the_process(tmp_path: Path) -> None:
    gate(tmp_path).ban(TWO, "it lied", 0.0)
    founders = Membership([ONE])
    again = Gate(founders, LIMITS, tmp_path, wall=Calendar())
    founders.track(7, MEMBERS)  # its chain is read
    assert [again.admits(member, 59.0) for member in MEMBERS] == [True, False, True]
    again.ban(ONE, "it lied", 0.0)
    assert who(read_bans(tmp_path)) == sorted([ONE, TWO])


def test_another_key_ends_no_ban_and_gives_no_budget(tmp_path: Path) -> None:
    door = gate(tmp_path)
    assert [door.pays(ONE, 0.0) for _ in range(4)] == [True] * 4
    assert not door.blame(ONE, 6.0, "it lied", 0.0)
    door.follow({ONE: TWO}, 0.0)
    assert not door.pays(TWO, 0.0), "it has spent what it had"
    assert not door.pays(ONE, 0.0), "its former key has no more"
    assert door.blame(TWO, 6.0, "it lied again", 0.0), "it lied before"
    door.follow({TWO: THREE}, 1.0)
    assert not door.admits(THREE, 1.0)
    assert set(who(gate(tmp_path, now_s=1.0).bans(1.0))) == {TWO, THREE}, "that outlives the process"
    assert door.pardon(THREE, 2.0)
    door.follow({TWO: THREE}, 3.0)
    assert [door.admits(member, 3.0) for member in (TWO, THREE)] == [True] * 2, "its operator's word holds"


def test_bans_that_are_over_take_no_room() -> None:
    door = gate()
    for number in range(100):
        door.ban(MEMBERS[number % 2], "it lied", 100.0 * number)
    assert len(door._bans) == 1


def test_nobody_else_reads_the_list(tmp_path: Path) -> None:
    for _ in range(2):
        gate(tmp_path).ban(ONE, "it lied", 0.0)
        assert stat.S_IMODE((tmp_path / BAN_FILE).stat().st_mode) == 0o600
        (tmp_path / BAN_FILE).chmod(0o644)


def test_a_list_that_cannot_be_saved_bans_nevertheless(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    door = gate(tmp_path / "missing")
    door.ban(ONE, "it lied", 0.0)
    assert not door.admits(ONE, 0.0)
    assert "the ban list cannot be saved" in caplog.text


def test_a_reason_is_short_and_steers_no_terminal(tmp_path: Path) -> None:
    door = gate(tmp_path)
    door.ban(ONE, "\x1b[2J\n" + "x" * 1_000, 0.0)
    (ban,) = door.bans(0.0)
    assert ban.reason == "?[2J?" + "x" * (REASON_SIZE_MAX - 5)
    assert read_bans(tmp_path) == (ban,)
    by_hand = {"why": "\x1b[2J\n", "since": ban.since_s, "until": ban.until_s}
    (tmp_path / BAN_FILE).write_text(json.dumps({address(ONE): by_hand}))
    assert [ban.reason for ban in read_bans(tmp_path)] == ["?[2J?"]


def test_an_older_list_and_a_newer_one_are_read(tmp_path: Path) -> None:
    later_s = NOON_S + 50.0
    newer = {"why": "it lied", "since": NOON_S - 10.0, "until": later_s, "evidence": ["a newer version's"]}
    (tmp_path / BAN_FILE).write_text(json.dumps({address(ONE): later_s, address(TWO): newer}))
    assert set(read_bans(tmp_path)) == {Ban(ONE, "", 0.0, later_s), Ban(TWO, "it lied", NOON_S - 10.0, later_s)}
    door = gate(tmp_path)
    assert set(who(door.bans(49.0))) == {ONE, TWO}
    assert door.bans(51.0) == ()


def test_what_was_written_is_read(tmp_path: Path) -> None:
    bans = {Ban(ONE, "it lied", NOON_S, NOON_S + 1.5), Ban(TWO, "", NOON_S, NOON_S + 60.0)}
    write_bans(tmp_path, bans)
    assert set(read_bans(tmp_path)) == bans
    write_bans(tmp_path, [])
    assert read_bans(tmp_path) == ()


GOOD = json.dumps({"why": "it lied", "since": 1.0, "until": 2.0})


@pytest.mark.parametrize(
    "entry",
    [
        '"soon"',
        "null",
        "NaN",
        "Infinity",
        "[]",
        "{}",
        '{"until": null}',
        '{"until": 1e999}',
        '{"until": 1, "since": "x"}',
        '{"until": 1, "since": -1e999}',
    ],
)
def test_a_damaged_entry_bans_nobody_and_leaves_the_others(tmp_path: Path, entry: str) -> None:
    text = f'{{"{address(ONE)}": {entry}, "nobody": {GOOD}, "{address(TWO)}": {GOOD}}}'
    (tmp_path / BAN_FILE).write_text(text)
    assert read_bans(tmp_path) == (Ban(TWO, "it lied", 1.0, 2.0),)


@pytest.mark.parametrize("text", ["", "[]", "{", "5", "\x00", "[" * 5_000, "\ud800"])
def test_a_damaged_list_bans_nobody(tmp_path: Path, text: str) -> None:
    (tmp_path / BAN_FILE).write_text(text, encoding="utf-8", errors="surrogatepass")
    assert read_bans(tmp_path) == ()
    assert gate(tmp_path).bans(0.0) == ()


def test_a_list_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    entry = json.dumps({address(ONE): 1e12})
    (tmp_path / BAN_FILE).write_text(entry + " " * BAN_FILE_SIZE_MAX)
    assert read_bans(tmp_path) == ()
    (tmp_path / BAN_FILE).write_text(entry)
    assert who(gate(tmp_path).bans(0.0)) == [ONE]
