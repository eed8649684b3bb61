"""The privacy ledger: every noised release of a member, written down before it is sent, and never forgotten.

The cost of a release is spent whether or not anybody received it, so the ledger only grows. It is written while the
noised bytes are still in one process: a member that was killed before that sent nothing, and one that was killed after
it finds the release here, computes the same bytes again, and is not charged twice. `Release.count` values under one
`identity`, which follows from the values and the member's private randomness, are one release; other values in the same
phase are another one, with noise of its own, and cost what they cost.

The records lie one after another, `RECORD_SIZE` bytes each, in two copies that share no sector of a disk::

    copy    4,096   check (64 hexadecimal digits), space, JSON, spaces, newline

A record counts if either copy is whole. The second copy is written when the first one is durable: where there is
nothing of it, the first may have been torn by a crash in the middle of a write that nobody was told to have succeeded.
Any other record without a whole copy is damaged, and stops all releases.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import count
from typing import Protocol

import msgspec

from fedchain.learning.exceptions import LedgerDamaged, ReleaseRefused
from fedchain.learning.privacy.releases import Release, Sampling, total_epsilon
from fedchain.wording import shown_epsilon

COPY_SIZE = 4_096
"""Bytes of a copy of a record: a sector of today's disks."""

RECORD_SIZE = 2 * COPY_SIZE

READ_SIZE = 128 * RECORD_SIZE
"""Bytes that are read at a time: a ledger of weeks is larger than the memory of small machines."""

_MAGIC = b"fedchain privacy ledger 1\n"


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that a member is willing to spend over the whole run."""

    epsilon: float
    """Largest total epsilon; 0: no bound."""

    delta: float
    """The delta that totals are stated for."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One release, where it was made."""

    round: int
    """Number of the round."""

    phase: str
    """Name of the phase whose post it went into."""

    identity: str
    """Differs for different values, and says nothing about them to others."""

    release: Release
    """The noise that was added."""


class Disk(Protocol):
    """Bytes that survive. Each of its methods raises OSError where it cannot do what it shall."""

    def lock(self) -> AbstractContextManager[None]:
        """Keep all others out, in this process or another."""

    def read(self, offset: int, size: int) -> bytes:
        """Return the bytes from a place on, at most so many; fewer where they end before."""

    def write(self, data: bytes, offset: int) -> None:
        """Write at a place, at most where the bytes end now; they are durable on return."""


class Memory:
    """A disk for peers that live no longer than their process, as simulated ones do."""

    def __init__(self) -> None:
        self._data = bytearray()

    def lock(self) -> AbstractContextManager[None]:
        """There is nobody else."""
        return nullcontext()

    def read(self, offset: int, size: int) -> bytes:
        """See :class:`Disk`."""
        return bytes(self._data[offset : offset + size])

    def write(self, data: bytes, offset: int) -> None:
        """See :class:`Disk`."""
        self._data[offset : offset + len(data)] = data


class PrivacyLedger:
    """One member's ledger of one federation.

    Args:
        member: its place among the members, for messages.
        disk: where the records lie; nothing else is kept.
    """

    def __init__(self, member: int, disk: Disk) -> None:
        self._member, self._disk = member, disk

    def validate(self, round_number: int, phase: str, releases: Sequence[Release], budget: Budget) -> None:
        """Raise `ReleaseRefused` if these releases would exceed the budget; earlier charges of the phase are not added.

        To be asked before long work; `charge` decides.
        """
        with self._locked():
            entries = self._entries()
            before = [entry for entry in entries if (entry.round, entry.phase) != (round_number, phase)]
            expected = [Entry(round_number, phase, "", release) for release in releases]
            self._validate([*before, *expected], round_number, budget)

    def charge(self, entry: Entry, budget: Budget) -> None:
        """Write a release down, before the noised values leave the process; on return it is durable.

        An entry that is there already is not charged again. Raises `ReleaseRefused` where the total would exceed the
        budget, and nothing is written then, and `LedgerDamaged` where the ledger cannot be read or written.
        """
        with self._locked():
            entries = self._entries()
            if entry in entries:
                return
            self._validate([*entries, entry], entry.round, budget)
            self._append(len(entries), entry)

    def entries(self) -> tuple[Entry, ...]:
        """Return all releases, in the order in which they were made. Raises `LedgerDamaged`."""
        with self._locked():
            return tuple(self._entries())

    def validate_adoption(self, entries: Sequence[Entry]) -> None:
        """Raise `LedgerDamaged` if this ledger holds an entry that another copy, which holds `entries`, does not."""
        with self._locked():
            self._validate_adoption(entries)

    def adopt(self, entries: Sequence[Entry]) -> None:
        """Take over the entries that another copy of this ledger has beyond this one's, as when a member moves.

        Raises `LedgerDamaged` as `validate_adoption`; nothing is written then.
        """
        with self._locked():
            known = self._validate_adoption(entries)
            for number, entry in enumerate(entries[len(known) :], len(known)):
                self._append(number, entry)

    def epsilon(self, delta: float) -> float:
        """Return the total epsilon of all releases so far at a delta. Raises `LedgerDamaged`."""
        return total_epsilon((entry.release for entry in self.entries()), delta)

    def _validate_adoption(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return the entries that are here, if the others begin with them."""
        known = self._entries()
        if list(entries[: len(known)]) != known:
            raise LedgerDamaged(
                f"privacy ledger of member {self._member} holds {len(known)} releases, which are not the first of "
                f"the {len(entries)} to be taken over; it stays as it is"
            )
        return known

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            with self._disk.lock():
                yield
        except OSError as error:
            raise LedgerDamaged(f"privacy ledger of member {self._member} cannot be used: {error}") from None

    def _validate(self, entries: Sequence[Entry], round_number: int, budget: Budget) -> None:
        is_poisson = {entry.release.sampling is Sampling.POISSON for entry in entries}
        assert len(is_poisson) < 2, "one federation has one notion of neighbours"
        if budget.epsilon <= 0:
            return
        epsilon = total_epsilon((entry.release for entry in entries), budget.delta)
        if epsilon > budget.epsilon:
            raise ReleaseRefused(
                f"member {self._member}, round {round_number}: its total epsilon would be {shown_epsilon(epsilon)}, "
                f"the budget is {budget.epsilon:g} (delta {budget.delta:g}); nothing is posted"
            )

    def _entries(self) -> list[Entry]:
        entries: list[Entry] = []
        for number, record in enumerate(_records(self._disk)):
            one, other = record[:COPY_SIZE], record[COPY_SIZE:]
            copies = [_read_copy(number, one)]
            copies.append(copies[0] if other == one else _read_copy(number, other))
            found = copies[0] or copies[1]
            if found is None and len(record) > COPY_SIZE:
                raise LedgerDamaged(
                    f"privacy ledger of member {self._member} is damaged: record {number} was written, and is not "
                    "whole; nothing noised is posted before it is put back"
                )
            if found is None:
                break  # it was never finished, so nothing was sent
            for place, copy in enumerate(copies):
                if copy is None:
                    self._disk.write(_to_copy(number, found), number * RECORD_SIZE + place * COPY_SIZE)
            entries.append(found)
        return entries

    def _append(self, number: int, entry: Entry) -> None:
        copy = _to_copy(number, entry)
        for place in (0, COPY_SIZE):
            self._disk.write(copy, number * RECORD_SIZE + place)


def no_ledger() -> PrivacyLedger:
    """Stand in for the ledger of a client that has none. Raises `LedgerDamaged`."""
    raise LedgerDamaged("a client without a privacy ledger cannot let noised numbers out")


def _records(disk: Disk) -> Iterator[bytes]:
    """The records, of which the last one may be cut short."""
    for start in count(0, READ_SIZE):
        data = disk.read(start, READ_SIZE)
        for offset in range(0, len(data), RECORD_SIZE):
            yield data[offset : offset + RECORD_SIZE]
        if len(data) < READ_SIZE:
            return


def write_entry(entry: Entry) -> str:
    """Return an entry as JSON."""
    return msgspec.json.encode(entry, order="sorted").decode()


def read_entry(text: str | bytes) -> Entry:
    """Return the entry that `write_entry` wrote; other bytes raise ValueError."""
    return msgspec.json.decode(text, type=Entry)


def _to_copy(number: int, entry: Entry) -> bytes:
    text = write_entry(entry).encode()
    line = f"{_check(number, text)} ".encode() + text
    assert len(line) < COPY_SIZE, "names of phases and mechanisms are short"
    return _padded(line)


def _padded(line: bytes) -> bytes:
    return line.ljust(COPY_SIZE - 1) + b"\n"


def _read_copy(number: int, copy: bytes) -> Entry | None:
    """The entry of a copy; None if it is torn, damaged or another record's."""
    line = copy[: copy.rfind(b"}") + 1]  # to strip its thousands of spaces takes fifty times as long
    check, _, text = line.partition(b" ")
    if copy != _padded(line) or check != _check(number, text).encode():
        return None
    return read_entry(text)


def _check(number: int, text: bytes) -> str:
    return hashlib.sha256(_MAGIC + number.to_bytes(8, "big") + text).hexdigest()
