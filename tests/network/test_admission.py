"""Members, budgets, blame and bans."""

import json
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedchain.crypto.address import address
from fedchain.network.admission import EXCESS, Gate
from fedchain.network.bans import BAN_FILE_SIZE_MAX, REASON_SIZE_MAX, Ban, read_bans, write_bans
from fedchain.network.data_folder import BAN_FILE
from fedchain.network.limits import Limits, TokenBucket
from fedchain.network.membership import Membership
from tests.support.chain.builders import keys

MEMBERS = [key.public_key for key in keys(3)]
ONE, TWO, THREE = MEMBERS
STRANGER = bytes(32)
LIMITS = Limits(
    messages_per_s=2.0,
    messages_burst=4.0,
    bytes_per_s=10.0,
    bytes_burst=100.0,
    cpu_share=0.25,
    cpu_burst_s=5.0,
    answer_bytes_per_s=100.0,
    answer_bytes_burst=1_000.0,
    blame_max=10.0,
    blame_decay_per_s=1.0,
    ban_s=60.0,
)
NOON_S = 1_700_000_000.0


class Calendar:
    """A clock that people set."""

    def __init__(self, now_s: float = NOON_S) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


def gate(folder: Path | None = None, calendar: Calendar | None = None, now_s: float = 0.0) -> Gate:
    return Gate(Membership(MEMBERS), LIMITS, folder, wall=calendar or Calendar(), now_s=now_s)


def who(bans: tuple[Ban, ...]) -> list[bytes]:
    return [ban.peer for ban in bans]


def test_members_are_admitted_and_nobody_else() -> None:
    assert all(gate().admits(member, 0.0) for member in MEMBERS)
    assert not gate().admits(STRANGER, 0.0)


def test_messages_are_counted_and_refill() -> None:
    door = gate()
    assert [door.pays(ONE, 0.0) for _ in range(5)] == [True] * 4 + [False]
    assert [door.pays(ONE, 1.0) for _ in range(3)] == [True, True, False]
    assert door.pays(TWO, 1.0)


def test_bytes_beyond_the_budget_are_waited_for() -> None:
    door = gate()
    assert door.pause_s(ONE, 100, 0.0) == 0.0
    assert door.pause_s(ONE, 1, 0.0) == pytest.approx(0.1)
    assert door.pause_s(ONE, 10, 0.1) == pytest.approx(1.0)
    assert door.pause_s(ONE, 5, 10.0) == 0.0
    assert door.pause_s(TWO, 100, 0.0) == 0.0
    assert door.admits(ONE, 10.0)


def test_time_beyond_the_share_is_waited_for_and_not_held_against_anybody() -> None:
    door = gate()
    door.charge(ONE, cpu_s=5.0, now_s=0.0)
    assert door.pause_s(ONE, 0, 0.0) == 0.0
    door.charge(ONE, cpu_s=1.0, now_s=0.0)
    assert door.pause_s(ONE, 0, 0.0) == pytest.approx(4.0)
    assert door.pause_s(ONE, 0, 3.0) == pytest.approx(1.0)
    assert door.pause_s(ONE, 0, 4.0) == 0.0
    assert door.pause_s(TWO, 0, 0.0) == 0.0
    for _ in range(1_000):
        door.charge(ONE, cpu_s=100.0, bytes_out=10**9, now_s=4.0)
    assert door.admits(ONE, 4.0)
    assert not door.blame(ONE, 9.0, "the first blame", 4.0)


@pytest.mark.parametrize(
    ("cost", "wait_s"), [({"cpu_s": 6.0}, 4.0), ({"bytes_out": 1_200}, 2.0)], ids=["time", "bytes"]
)
def test_who_has_cost_too_much_gets_no_answers_until_that_is_paid(cost: dict[str, float], wait_s: float) -> None:
    door = gate()
    assert door.may_ask(ONE, 0.0)
    door.charge(ONE, now_s=0.0, **cost)  # type: ignore[arg-type]
    assert not door.may_ask(ONE, 0.0)
    assert not door.may_ask(ONE, 0.9 * wait_s)
    assert door.may_ask(ONE, 1.01 * wait_s)
    assert door.may_ask(TWO, 0.0)


def test_answers_up_to_the_burst_are_free() -> None:
    door = gate()
    door.charge(ONE, cpu_s=5.0, bytes_out=1_000, now_s=0.0)
    assert door.may_ask(ONE, 0.0)


def test_a_bucket_never_holds_more_than_its_burst_and_a_clock_that_goes_back_fills_nothing() -> None:
    bucket = TokenBucket(1.0, 5.0, 100.0)
    assert not bucket.spends(5.1, 1e9)
    assert bucket.spends(5.0, 1e9)
    assert not bucket.spends(1.0, 0.0)
    assert bucket.spends(1.0, 1.0)


def test_blame_adds_up_is_forgiven_and_bans_for_the_last_reason() -> None:
    door = gate()
    assert not door.blame(ONE, 9.0, "this", 0.0)
    assert not door.blame(ONE, 5.0, "that", 5.0)  # 9 − 5 + 5
    assert door.admits(ONE, 5.0)
    assert door.blame(ONE, 1.0, "something else", 5.0)
    assert not door.admits(ONE, 64.9)
    assert door.bans(64.9) == (Ban(ONE, "something else", NOON_S, NOON_S + 60.0),)
    assert door.admits(ONE, 65.0)
    assert door.bans(65.0) == ()
    assert not door.blame(ONE, 9.0, "it begins anew", 65.0)


def test_who_is_over_its_budget_is_slowed_down_and_blamed_only_far_beyond_it() -> None:
    door = gate()
    for _ in range(4):
        assert door.pays(ONE, 0.0)
    assert door.pause_s(ONE, 0, 0.0) == 0.0
    beyond = round((EXCESS - 1.0) * 4)
    for _ in range(beyond):
        assert not door.pays(ONE, 0.0)
        assert door.pause_s(ONE, 0, 0.0) == pytest.approx(0.5)
        assert door.pause_s(ONE, 0, 0.0) == 0.0, "it is waited for once"
    assert not door.blame(ONE, 9.95, "nothing was held against it before", 0.0)
    assert not door.pays(ONE, 0.0)
    assert not door.admits(ONE, 0.0)
    assert "messages" in door.bans(0.0)[0].reason


def test_whoever_goes_on_far_beyond_its_budget_is_banned() -> None:
    door = gate()
    for number in range(1_000):
        door.pays(ONE, 0.001 * number)
    assert not door.admits(ONE, 1.0)


@given(
    offered=st.lists(st.tuples(st.floats(0.0, 3.0), st.integers(0, 20)), max_size=60),
)
def test_nobody_within_four_times_its_budget_is_ever_blamed(offered: list[tuple[float, int]]) -> None:
    door, allowed, now_s = gate(), TokenBucket(EXCESS * 2.0, EXCESS * 4.0 - 4.0, 0.0), 0.0
    for pause_s, count in offered:
        now_s += pause_s
        for _ in range(count):
            if allowed.spends(1.0, now_s):
                door.pays(ONE, now_s)
    assert not door.blame(ONE, 9.99, "the first blame", now_s)


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


def test_a_pardon_forgets_blame(tmp_path: Path) -> None:
    door = gate()
    door.blame(ONE, 9.0, "almost", 0.0)
    door.pardon(ONE, 0.0)
    assert not door.blame(ONE, 9.0, "again", 0.0)


def test_the_ban_list_holds_members_only_and_no_past_bans(tmp_path: Path) -> None:
    calendar = Calendar()
    door = gate(tmp_path, calendar)
    door.ban(STRANGER, "", 0.0)
    door.ban(ONE, "", 0.0)
    calendar.now_s += 100.0
    door.ban(TWO, "", 100.0)
    assert list(json.loads((tmp_path / BAN_FILE).read_text())) == [address(TWO)]
    assert not door.admits(STRANGER, 1e9)
    assert Gate(Membership(MEMBERS[:1]), LIMITS, tmp_path, wall=calendar).bans(100.0) == ()


def test_nobody_else_reads_the_list(tmp_path: Path) -> None:
    for _ in range(2):
        gate(tmp_path).ban(ONE, "it lied", 0.0)
        assert stat.S_IMODE((tmp_path / BAN_FILE).stat().st_mode) == 0o600
        (tmp_path / BAN_FILE).chmod(0o644)


def test_a_list_that_cannot_be_saved_bans_nevertheless(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    door = gate(tmp_path / "missing")
    door.ban(ONE, "it lied", 0.0)
    assert not door.admits(ONE, 0.0)
    assert "could not be saved" in caplog.text


def test_a_reason_is_short_and_steers_no_terminal(tmp_path: Path) -> None:
    door = gate(tmp_path)
    door.ban(ONE, "\x1b[2J\n" + "x" * 1_000, 0.0)
    (ban,) = door.bans(0.0)
    assert ban.reason == "?[2J?" + "x" * (REASON_SIZE_MAX - 5)
    assert read_bans(tmp_path) == (ban,)


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


def test_a_member_is_admitted_from_the_height_at_which_it_is_tracked() -> None:
    membership = Membership(MEMBERS[:2])
    door = Gate(membership, LIMITS, wall=Calendar())
    assert [door.admits(member, 0.0) for member in MEMBERS[:3]] == [True, True, False]
    assert membership.track(7, MEMBERS[1:3]) == (frozenset(MEMBERS[2:3]), frozenset(MEMBERS[:1]))
    assert [door.admits(member, 0.0) for member in MEMBERS[:3]] == [False, True, True]
    assert (membership.height, len(membership)) == (7, 2)
