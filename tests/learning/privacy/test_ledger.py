"""The privacy ledger: it never shrinks, charges nothing twice, and refuses what the budget does not cover."""

import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from fedchain.learning.exceptions import LedgerDamaged, ReleaseRefused
from fedchain.learning.privacy.ledger import (
    COPY_SIZE,
    RECORD_SIZE,
    Budget,
    Entry,
    Memory,
    PrivacyLedger,
    no_ledger,
    read_entry,
    write_entry,
)
from fedchain.learning.privacy.releases import Release, Sampling, total_epsilon
from tests.learning.privacy.crashes import UNLIMITED, Member, play

ONE = Release("prototypes", 2.0 / 0.26806, 2.0)
"""Worth (1, 1e-5)."""


def entry(number: int, release: Release = ONE, identity: str = "ab") -> Entry:
    return Entry(number, "update", identity, release)


def filled(count: int) -> Memory:
    disk = Memory()
    for number in range(count):
        PrivacyLedger(3, disk).charge(entry(number + 1), UNLIMITED)
    return disk


def all_of(disk: Memory) -> bytes:
    return disk.read(0, 2**20)


def test_it_adds_up_whatever_is_charged() -> None:
    ledger = PrivacyLedger(3, filled(10))
    assert ledger.epsilon(1e-5) == pytest.approx(3.62, abs=0.005)
    assert [found.round for found in ledger.entries()] == list(range(1, 11))
    sampled = Release("gradients", 1.1, 1.0, 20, Sampling.POISSON, 0.05)
    other = PrivacyLedger(0, Memory())
    other.charge(entry(1, sampled), UNLIMITED)
    assert other.entries() == (entry(1, sampled),)
    assert other.epsilon(1e-5) == total_epsilon([sampled], 1e-5)


def test_the_same_release_is_charged_once_and_another_of_the_same_phase_again() -> None:
    ledger = PrivacyLedger(3, Memory())
    for identity in ("ab", "ab", "cd", "ab"):
        ledger.charge(entry(1, identity=identity), UNLIMITED)
    assert [found.identity for found in ledger.entries()] == ["ab", "cd"]


def test_a_budget_is_spent_to_its_end_and_no_further() -> None:
    epsilon = total_epsilon([ONE], 1e-5)
    for budget, entries in ((epsilon, 1), (epsilon * (1 - 1e-9), 0)):
        ledger = PrivacyLedger(3, Memory())
        with suppress(ReleaseRefused):
            ledger.charge(entry(1), Budget(budget, 1e-5))
        assert len(ledger.entries()) == entries


def test_what_other_phases_of_a_round_let_out_is_spent_too() -> None:
    ledger, budget = PrivacyLedger(3, Memory()), Budget(total_epsilon([ONE], 1e-5), 1e-5)
    ledger.charge(entry(1), budget)
    other = Entry(1, "refine", "cd", ONE)
    with pytest.raises(ReleaseRefused):
        ledger.charge(other, budget)
    with pytest.raises(ReleaseRefused):
        ledger.validate(1, "refine", [ONE], budget)
    assert len(ledger.entries()) == 1


def test_a_release_beyond_the_budget_is_refused_and_leaves_no_trace() -> None:
    disk, budget = Memory(), Budget(2.0, 1e-5)
    ledger = PrivacyLedger(3, disk)
    for number in (1, 2, 3):
        ledger.validate(number, "update", [ONE], budget)
        ledger.charge(entry(number), budget)
    assert ledger.epsilon(1e-5) < 2.0
    before = all_of(disk)
    message = (
        r"member 3, round 4: its total epsilon would be 2\.15\d, the budget is 2 \(delta 1e-05\); nothing is posted"
    )
    with pytest.raises(ReleaseRefused, match=message):
        ledger.validate(4, "update", [ONE], budget)
    with pytest.raises(ReleaseRefused, match=message):
        ledger.charge(entry(4), budget)
    assert all_of(disk) == before
    with pytest.raises(ReleaseRefused, match=r"member 3, round 3: its total epsilon would be 2\.15\d"):
        ledger.validate(3, "another phase", [ONE], budget)
    ledger.validate(3, "update", [ONE], budget)  # as after a crash, when it was charged already
    ledger.charge(entry(3), budget)
    assert all_of(disk) == before


@pytest.mark.parametrize("copy", [0, 1])
def test_one_copy_is_enough_and_the_other_is_written_again(copy: int) -> None:
    disk = filled(3)
    whole = all_of(disk)
    disk.write(b"\0" * 100, 1 * RECORD_SIZE + copy * COPY_SIZE + 50)
    assert len(PrivacyLedger(3, disk).entries()) == 3
    assert all_of(disk) == whole


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_damaged_record_stops_everything_also_the_last_one(number: int) -> None:
    disk = filled(3)
    for copy in (0, 1):
        disk.write(b"\0", number * RECORD_SIZE + copy * COPY_SIZE + 70)
    with pytest.raises(LedgerDamaged, match=f"member 3 is damaged: record {number} was written, and is not whole"):
        PrivacyLedger(3, disk).charge(entry(9), UNLIMITED)


def test_a_record_in_anothers_place_is_damage() -> None:
    disk = filled(2)
    disk.write(all_of(disk)[:RECORD_SIZE], RECORD_SIZE)
    with pytest.raises(LedgerDamaged, match="record 1"):
        PrivacyLedger(3, disk).entries()


@pytest.mark.parametrize("size", [COPY_SIZE + 1, RECORD_SIZE - 1])
def test_a_first_copy_was_whole_once_the_second_was_begun(size: int) -> None:
    disk, torn = filled(2), bytearray(all_of(filled(3))[2 * RECORD_SIZE :][:size])
    torn[70] = 0
    disk.write(bytes(torn), 2 * RECORD_SIZE)
    with pytest.raises(LedgerDamaged, match="record 2 was written, and is not whole"):
        PrivacyLedger(3, disk).entries()


@pytest.mark.parametrize("size", [0, 1, 100, COPY_SIZE - 1])
def test_a_first_copy_that_was_never_finished_counts_nothing(size: int) -> None:
    disk, torn = filled(2), all_of(filled(3))[2 * RECORD_SIZE :][:size]
    disk.write(torn, 2 * RECORD_SIZE)
    ledger = PrivacyLedger(3, disk)
    assert len(ledger.entries()) == 2
    ledger.charge(entry(3), UNLIMITED)
    assert all_of(disk) == all_of(filled(3))


def test_entries_of_earlier_versions_are_read() -> None:
    text = (
        '{"identity": "ab", "phase": "update", "release": {"count": 3, "mechanism": "gradients", "rate": 1e-07, '
        '"sampling": "poisson", "sensitivity": 0.5, "sigma": 4}, "round": 2}'
    )
    written = Entry(2, "update", "ab", Release("gradients", 4.0, 0.5, 3, Sampling.POISSON, 1e-7))
    assert read_entry(text) == read_entry(write_entry(written)) == written
    for broken in ("[", "null", "{}", text.replace("poisson", "fish"), text.replace("4}", '"4"}')):
        with pytest.raises(ValueError, match=r"xpected|equired|Invalid|truncated"):
            read_entry(broken)


def test_the_records_of_many_rounds_are_read_in_little_more_time_than_their_entries() -> None:
    """Each round reads all of them, three times: to strip their copies of spaces took seconds after weeks."""
    ledger, text = PrivacyLedger(3, Memory()), write_entry(entry(1))
    ledger.adopt([entry(number) for number in range(1_000)])

    def seconds(read: Callable[[], object]) -> float:
        taken = list[float]()
        for _ in range(5):
            begun = time.process_time()
            read()
            taken.append(time.process_time() - begun)
        return min(taken)

    assert seconds(ledger.entries) < 10 * seconds(lambda: [read_entry(text) for _ in range(1_000)])


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5])
def test_a_ledger_is_read_piece_by_piece(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """After weeks it is larger than all else that a training process has in memory."""
    monkeypatch.setattr("fedchain.learning.privacy.ledger.READ_SIZE", 2 * RECORD_SIZE)
    sizes = list[int]()

    class Noting(Memory):
        def read(self, offset: int, size: int) -> bytes:
            sizes.append(len(data := super().read(offset, size)))
            return data

    ledger = PrivacyLedger(3, Noting())
    ledger.adopt([entry(number) for number in range(count)])
    sizes.clear()
    assert [found.round for found in ledger.entries()] == list(range(count))
    assert sizes == [*[2 * RECORD_SIZE] * (count // 2), count % 2 * RECORD_SIZE]


@pytest.mark.parametrize("place", [70, 2_000, COPY_SIZE - 1])
def test_a_copy_counts_only_as_it_was_written(place: int) -> None:
    disk = filled(1)
    whole = all_of(disk)
    disk.write(b"\n" if place < COPY_SIZE - 1 else b" ", place)
    assert len(PrivacyLedger(3, disk).entries()) == 1
    assert all_of(disk) == whole


def test_a_client_without_one_lets_nothing_out() -> None:
    with pytest.raises(LedgerDamaged, match="without a privacy ledger"):
        no_ledger()


def test_whenever_it_is_killed_nothing_is_forgotten_and_the_same_bytes_are_sent() -> None:
    kills = sum(play(seed) for seed in range(120))
    assert kills >= 200


@pytest.mark.parametrize("crash_at", range(0, 90, 3))
def test_every_instant_of_a_life_is_one_to_be_killed_at(crash_at: int) -> None:
    member = Member(crash_at)
    member.live(crash_at)
    member.check()
    assert member.live(1 << 20)
    member.check()


def test_who_lost_its_post_but_not_its_ledger_is_charged_for_another_value_with_other_noise() -> None:
    """The rule that the play relies on does not depend on what else survives."""
    member = Member(1)
    assert member.live(1 << 20)
    member.check()
    kept, member.kept = member.kept, {}
    assert member.live(1 << 20)
    assert member.kept == kept
    member.check()
