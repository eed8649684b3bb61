"""Members, budgets, blame and bans."""

import json
from pathlib import Path

import pytest

from fedchain.crypto.address import address
from fedchain.network.admission import BAN_FILE, BAN_FILE_SIZE_MAX, Gate
from fedchain.network.limits import Limits, TokenBucket
from tests.chain.builders import keys

MEMBERS = [key.public_key for key in keys(3)]
ONE, TWO, THREE = MEMBERS
STRANGER = bytes(32)
LIMITS = Limits(
    messages_per_s=2.0,
    messages_burst=4.0,
    bytes_per_s=10.0,
    bytes_burst=100.0,
    blame_max=10.0,
    blame_decay_per_s=1.0,
    ban_s=60.0,
)


def test_members_are_admitted_and_nobody_else() -> None:
    gate = Gate(MEMBERS, LIMITS)
    assert all(gate.admits(member, 0.0) for member in MEMBERS)
    assert not gate.admits(STRANGER, 0.0)


def test_messages_are_counted_and_refill() -> None:
    gate = Gate(MEMBERS, LIMITS)
    assert [gate.pays(ONE, 0.0) for _ in range(5)] == [True] * 4 + [False]
    assert [gate.pays(ONE, 1.0) for _ in range(3)] == [True, True, False]
    assert gate.pays(TWO, 1.0)


def test_bytes_beyond_the_budget_are_waited_for() -> None:
    gate = Gate(MEMBERS, LIMITS)
    assert gate.pause_s(ONE, 100, 0.0) == 0.0
    assert gate.pause_s(ONE, 1, 0.0) == pytest.approx(0.1)
    assert gate.pause_s(ONE, 10, 0.1) == pytest.approx(1.0)
    assert gate.pause_s(ONE, 5, 10.0) == 0.0
    assert gate.pause_s(TWO, 100, 0.0) == 0.0
    assert gate.admits(ONE, 10.0)


def test_a_bucket_never_holds_more_than_its_burst_and_a_clock_that_goes_back_fills_nothing() -> None:
    bucket = TokenBucket(1.0, 5.0, 100.0)
    assert not bucket.spends(5.1, 1e9)
    assert bucket.spends(5.0, 1e9)
    assert not bucket.spends(1.0, 0.0)
    assert bucket.spends(1.0, 1.0)


def test_blame_adds_up_is_forgiven_and_bans() -> None:
    gate = Gate(MEMBERS, LIMITS)
    assert not gate.blame(ONE, 9.0, 0.0)
    assert not gate.blame(ONE, 5.0, 5.0)  # 9 − 5 + 5
    assert gate.admits(ONE, 5.0)
    assert gate.blame(ONE, 1.0, 5.0)
    assert not gate.admits(ONE, 64.9)
    assert gate.banned(64.9) == [ONE]
    assert gate.admits(ONE, 65.0)
    assert gate.banned(65.0) == []
    assert not gate.blame(ONE, 9.0, 65.0)  # it begins anew


def test_whoever_goes_on_beyond_its_budget_is_banned() -> None:
    gate = Gate(MEMBERS, LIMITS)
    for _ in range(1_000):
        gate.pays(ONE, 0.0)
    assert not gate.admits(ONE, 0.0)


def test_bans_outlive_the_process(tmp_path: Path) -> None:
    gate = Gate(MEMBERS, LIMITS, tmp_path)
    gate.ban(ONE, 0.0)
    gate.ban(TWO, 30.0)
    again = Gate(MEMBERS, LIMITS, tmp_path)
    assert again.banned(59.0) == sorted([ONE, TWO])
    assert again.banned(61.0) == [TWO]
    again.pardon(TWO, 61.0)
    again.pardon(THREE, 61.0)
    assert Gate(MEMBERS, LIMITS, tmp_path).banned(0.0) == []


def test_the_ban_list_holds_members_only_and_no_past_bans(tmp_path: Path) -> None:
    gate = Gate(MEMBERS, LIMITS, tmp_path)
    gate.ban(STRANGER, 0.0)
    gate.ban(ONE, 0.0)
    gate.ban(TWO, 100.0)
    assert list(json.loads((tmp_path / BAN_FILE).read_text())) == [address(TWO)]
    assert not gate.admits(STRANGER, 1e9)
    assert Gate(MEMBERS[:1], LIMITS, tmp_path).banned(0.0) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"x": 1}',
        json.dumps({address(ONE): "soon"}),
        json.dumps({address(ONE): None}),
        json.dumps({address(ONE): float("nan")}),
        json.dumps({address(ONE): float("inf")}),
        "\x00",
        "[" * 5_000,
    ],
)
def test_a_damaged_list_bans_nobody(tmp_path: Path, text: str) -> None:
    (tmp_path / BAN_FILE).write_text(text)
    assert Gate(MEMBERS, LIMITS, tmp_path).banned(0.0) == []


def test_a_list_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    entry = json.dumps({address(ONE): 1e12})
    (tmp_path / BAN_FILE).write_text(entry + " " * BAN_FILE_SIZE_MAX)
    assert Gate(MEMBERS, LIMITS, tmp_path).banned(0.0) == []
    (tmp_path / BAN_FILE).write_text(entry)
    assert Gate(MEMBERS, LIMITS, tmp_path).banned(0.0) == [ONE]
