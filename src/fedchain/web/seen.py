"""Nodes' observations of blocks before they were final: files that grow and may hold anything."""

import math
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedchain.files.json_text import from_json
from fedchain.files.layout import TIMELINE_FILE, open_found
from fedchain.node.shell.timeline import (
    SIZE_MAX,
    FailedAttempt,
    NothingPosted,
    SeenBlock,
    SeenCandidate,
    SeenPost,
    TrainingResult,
)

BLOCKS_AT_ONCE = 1_024
"""Most blocks that are read for one page."""

CANDIDATES_MAX, ATTEMPTS_MAX, REASONS_MAX, REASON_SIZE_MAX = 1_024, 64, 64, 400
"""Most candidates and failed attempts of a height, most reasons of each, and most characters of one."""

POSTS_MAX = 10_000
"""Most posts that a block does not count, and most members that had nothing to post for it."""

EPSILON_MAX = 1e12
"""Largest epsilon that is believed but for infinity; a larger one was not measured."""

HEIGHTS_MISSED_MAX = 10_000_000
"""Most blocks that a node may have missed. A greater height is damage, and taken as true it would hide later lines."""

TAIL_SIZE = 1_024
"""Bytes before the end of what was read that are compared: a file that was written anew has others there."""

_BEGINNING = re.compile(rb'\{"height":(\d{1,18}),')
_MEASURED = b'"training":{'


@dataclass(slots=True)
class SeenFile:
    """The timeline in a node's folder; only the place of each line and its training result are kept in memory."""

    folder: Path
    members: int
    """Number of members; a line that tells of others is damaged."""
    trainings: dict[int, TrainingResult] = field(default_factory=dict)
    """Training results by round."""
    _heights: "array[int]" = field(default_factory=lambda: array("Q"))  # ascending
    _places: "array[int]" = field(default_factory=lambda: array("Q"))
    _end: int = 0
    _tail: bytes = b""  # what was read last
    _file: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        """Number of lines that were found."""
        return len(self._heights)

    @property
    def version(self) -> object:
        """A value that changes when the observations may have changed."""
        return self._file, self.count

    def look(self) -> None:
        """Find new lines; in a file that was written anew, all lines."""
        try:
            stat = (self.folder / TIMELINE_FILE).stat()
            file = stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns
            if file != self._file and self._read_on():
                self._file = file
        except OSError:
            return

    def blocks(self, first: int, last: int) -> Iterator[SeenBlock]:
        """Observations of blocks between two heights; only of the newest if there are many."""
        start, stop = bisect_left(self._heights, first), bisect_right(self._heights, last)
        start = max(start, stop - BLOCKS_AT_ONCE)
        if start >= stop:
            return
        end = self._places[stop] if stop < len(self._places) else self._end
        try:
            with open_found(self.folder / TIMELINE_FILE) as file:
                file.seek(self._places[start])
                lines = file.read(min(SIZE_MAX, end - self._places[start])).split(b"\n")
        except OSError:
            return
        for line in lines:
            found = _read_line(line, self.members)
            if found is not None and first <= found.height <= last:
                yield found

    def _read_on(self) -> bool:
        """Read more; return whether that was the rest."""
        with open_found(self.folder / TIMELINE_FILE) as file:
            file.seek(self._end - len(self._tail))
            if file.read(len(self._tail)) != self._tail:
                self._heights, self._places, self._end, self._tail = array("Q"), array("Q"), 0, b""
                self.trainings = {}
                file.seek(0)
            data = file.read(2 * SIZE_MAX)
        began = self._end
        *lines, rest = data.split(b"\n")
        if len(rest) > SIZE_MAX:  # no node wrote it; a shorter rest is a line that is being written
            lines.append(rest[:-1])
        for line in lines:
            found = _BEGINNING.match(line)
            height, last = int(found[1]) if found else 0, self._heights[-1] if self._heights else 0
            if last < height <= last + HEIGHTS_MISSED_MAX:
                self._heights.append(height)
                self._places.append(self._end)
                self._note_training(line)
            self._end += len(line) + 1
        self._tail = (self._tail + data[: self._end - began])[-TAIL_SIZE:]
        return len(data) < 2 * SIZE_MAX

    def _note_training(self, line: bytes) -> None:
        block = _read_line(line, self.members) if _MEASURED in line else None
        if block is not None and block.training is not None:
            self.trainings[block.training.round] = block.training


def _read_line(line: bytes, members: int) -> SeenBlock | None:
    """The observation in a line of a federation of so many members; None if the line is damaged."""
    try:
        found: Any = from_json(line)
        candidates = tuple(SeenCandidate(**item) for item in found.pop("candidates")[:CANDIDATES_MAX])
        training = found.pop("training", None)  # lines of earlier versions have none
        block = SeenBlock(
            failed=tuple(FailedAttempt(**item) for item in found.pop("failed", [])[:ATTEMPTS_MAX]),
            posts=tuple(SeenPost(**item) for item in found.pop("posts", [])[:POSTS_MAX]),
            nothing=tuple(NothingPosted(**item) for item in found.pop("nothing", [])[:POSTS_MAX]),
            **found,
            candidates=candidates,
            training=None if training is None else TrainingResult(**training),
        )
    except (ValueError, RecursionError, TypeError, AttributeError, KeyError):
        return None
    numbers = [block.height, block.final_ms, *([] if block.trained_ms is None else [block.trained_ms])]
    numbers += [number for item in candidates for number in (item.posts, item.after_ms)]
    fates: list[SeenPost | NothingPosted] = [*block.posts, *block.nothing]
    numbers += [*(item.member for item in fates), *(post.after_ms for post in block.posts)]
    texts = [block.hash, *(text for item in candidates for text in (item.hash, item.miner, item.knowledge_root))]
    is_sound = all(type(number) is int and 0 <= number < 2**62 for number in numbers)
    is_sound = is_sound and all(isinstance(text, str) and len(text) <= 100 for text in texts)
    is_sound = is_sound and all(item.member < members for item in fates)
    is_sound = is_sound and all(_are_members(text, members) for item in candidates for text in (item.seen, item.valid))
    is_sound = is_sound and all(_is_text(item.reason) for item in fates)
    told = [*(item.refused for item in candidates), *(item.why for item in block.failed)]
    is_sound = is_sound and all(_are_reasons(why, members) for why in told)
    is_sound = is_sound and all(type(item.attempt) is int for item in block.failed)
    return block if is_sound and (block.training is None or _is_sound(block.training)) else None


def _are_reasons(why: Any, members: int) -> bool:
    return (
        isinstance(why, dict)
        and len(why) <= REASONS_MAX
        and all(_is_text(reason) and _are_members(text, members) for reason, text in why.items())
    )


def _is_text(text: Any) -> bool:
    return isinstance(text, str) and len(text) <= REASON_SIZE_MAX


def _are_members(text: Any, members: int) -> bool:
    """Whether a text is a hexadecimal number whose bits are members."""
    is_number = isinstance(text, str) and len(text) <= members // 4 + 1 and re.fullmatch("[0-9a-f]+", text) is not None
    return is_number and int(text, 16) < 1 << members


def _is_sound(training: TrainingResult) -> bool:
    accuracy, epsilon = training.accuracy, training.epsilon
    return (
        (type(training.round) is int and 0 <= training.round < 2**62)
        and (accuracy is None or (type(accuracy) in (int, float) and 0 <= accuracy <= 1))
        and (epsilon in (None, math.inf) or (type(epsilon) in (int, float) and 0 <= epsilon <= EPSILON_MAX))
    )
