"""Measurements of a run or a node beside the chain: files that may be missing, may grow, and may hold anything."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedchain.files.layout import LINKS_FILE, MEMBERS_FILE, METRICS_FILE, read_metrics
from fedchain.files.links import NO_LINKS, read_links
from fedchain.files.members import NUMBER_END, read_members
from fedchain.web.seen import SeenFile

METRICS_SIZE_MAX = 64 * 2**20
"""Most bytes of measurements that are read."""

LINKS_SIZE_MAX = 8 * 2**20
"""Most bytes of the traffic between members; 256 members, all connected, fill less."""

_KEPT = ("taa", "tal", "test_accuracy", "training_s", "mining_s", "voting_s", "epsilon", "bytes_sent_per_peer")


@dataclass(frozen=True, slots=True)
class Measured:
    """One round of a run, or of one node."""

    round: int
    """The round."""
    values: dict[str, float]
    """Values by the names of ``metrics.jsonl``: accuracies as fractions, times in seconds."""


@dataclass(slots=True)
class MeasuredFile:
    """The measurements in the folder of a run or of a node, read again when their file has changed.

    A simulation writes them into a file of its own, and a node into its timeline.
    """

    folder: Path
    seen: SeenFile
    rounds: dict[int, Measured] = field(default_factory=dict)
    """Measurements by round."""
    members: dict[int, dict[int, Measured]] = field(default_factory=dict)
    """Accuracies of a finished simulation's members, by member number and round."""
    links: NDArray[np.int64] = field(default_factory=NO_LINKS.copy)
    """The traffic between a finished simulation's members, as :func:`read_links` has it."""
    links_damaged: int = 0
    """Lines of its file that are damaged."""
    _told: dict[int, Measured] = field(default_factory=dict)
    _file: tuple[int, int] | None = None
    _members_file: tuple[int, int] | None = None
    _links_file: tuple[int, int] | None = None
    _joined: object = None  # the files that `rounds` are of

    def look(self) -> None:
        """Read the file as it is now, and add the timeline's values. Lines that cannot be read are left out."""
        self._read()
        self._read_members()
        self._read_links()
        if (files := (self._file, self.seen.version)) == self._joined:
            return  # folders are looked at several times a second, and a timeline of weeks has thousands of lines
        self._joined, rounds = files, dict(self._told)
        for number, training in self.seen.trainings.items():
            found = (("taa", training.accuracy), ("epsilon", training.epsilon))
            known = rounds[number].values if number in rounds else {}
            rounds[number] = Measured(number, known | {name: x for name, x in found if x is not None and _is_number(x)})
        self.rounds = rounds

    def _read(self) -> None:
        try:
            stat = (self.folder / METRICS_FILE).stat()
            if (file := (stat.st_mtime_ns, stat.st_size)) != self._file:
                self._told, self._file = {item.round: item for item in _read_run(self.folder)}, file
        except OSError:
            return

    def _read_members(self) -> None:
        try:
            stat = (self.folder / MEMBERS_FILE).stat()
            if (file := (stat.st_mtime_ns, stat.st_size)) == self._members_file:
                return
            members = dict[int, dict[int, Measured]]()
            for item in read_members(self.folder, METRICS_SIZE_MAX):
                tested = {} if item.test_accuracy is None else {"test_accuracy": item.test_accuracy}
                members.setdefault(item.member, {})[item.round] = Measured(item.round, {"taa": item.accuracy} | tested)
            self.members, self._members_file = members, file
        except OSError:
            return

    def _read_links(self) -> None:
        try:
            stat = (self.folder / LINKS_FILE).stat()
            if (file := (stat.st_mtime_ns, stat.st_size)) != self._links_file:
                (self.links, self.links_damaged), self._links_file = read_links(self.folder, LINKS_SIZE_MAX), file
        except OSError:
            return

    @property
    def version(self) -> object:
        """A value that changes when the measurements may have changed."""
        return self._file, self._members_file, self._links_file

    def newest(self, name: str) -> float | None:
        """The newest value of a name; None if there is none."""
        return newest(self.rounds, name)


def newest(rounds: Mapping[int, Measured], name: str) -> float | None:
    """The value of a name in the last of ``rounds`` that has it; None if none has."""
    numbers = [number for number, item in rounds.items() if name in item.values]
    return rounds[max(numbers)].values[name] if numbers else None


def _read_run(folder: Path) -> Iterator[Measured]:
    for row in read_metrics(folder, METRICS_SIZE_MAX):
        if isinstance(number := row.get("round"), int) and 0 <= number < NUMBER_END:
            yield Measured(number, {name: float(row[name]) for name in _KEPT if _is_number(row.get(name))})


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e12
