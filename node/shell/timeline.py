"""Timeline: observations of each block before it was final, beside the chain, which does not have them.

A line of ``timeline.jsonl`` is a JSON object about one final block: the time for which this peer trained, its model's
accuracy then, the candidates with their arrival times and what peers made of them, failed attempts to agree, and the
time at which one candidate became final. A block whose making was not observed has no line. A node writes what it saw
itself; a simulation writes what all honest peers saw, with times from the first of them.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from fedchain.files.json_text import to_json
from fedchain.files.layout import NO_FILE, is_device
from fedchain.files.spool import write_whole

log = logging.getLogger("fedchain.node")

SIZE_MAX = 8 * 2**20
"""Most bytes of the file; when it would have more, its older half is dropped."""


@dataclass(frozen=True, slots=True)
class SeenCandidate:
    """A candidate for a height."""

    hash: str
    """Its identity, in hexadecimal."""
    miner: str
    """Address of the member that mined it."""
    posts: int
    """Posts that it counts."""
    knowledge_root: str
    """The aggregate that it leaves behind: SHA-256 of the knowledge, in hexadecimal."""
    after_ms: int
    """Time of its arrival, in milliseconds after the previous block became final here."""
    seen: str = "0"
    """Members that received it, as a hexadecimal number: bit n stands for member n (:func:`members_in`)."""
    valid: str = "0"
    """Members that found it valid, or mined it."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Members that refused it, by their reason."""


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """Measurements of this peer after a training."""

    round: int
    """Round that it trained for."""
    accuracy: float | None
    """Accuracy of its model, as a fraction of its own test set; None if the phase measures none."""
    epsilon: float | None
    """Epsilon of differential privacy of its posts so far; None if noise does not cover everything they release."""


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """An attempt to agree that ended without a decision."""

    attempt: int
    """Its number, from 0."""
    why: Mapping[str, str]
    """Members that left it, by the reason that they saw: hexadecimal numbers as for a candidate."""


@dataclass(frozen=True, slots=True)
class SeenPost:
    """A post for the phase that a block closes, but that the block does not count."""

    member: int
    """Number of its sender."""
    after_ms: int
    """When it was sent or came, in milliseconds after the previous block became final here."""
    reason: str = ""
    """Why it was refused, as its sender's fault; empty if it was not."""


@dataclass(frozen=True, slots=True)
class NothingPosted:
    """A member that had nothing to post for the phase that a block closes, as its own node noted."""

    member: int
    """Its number."""
    reason: str
    """Why: its method asked for none, its training failed, or others would refuse its post."""


@dataclass(frozen=True, slots=True)
class SeenBlock:
    """Observations of a final block. Times are in milliseconds."""

    height: int
    """Blocks before it, the genesis document included."""
    hash: str
    """Its identity, in hexadecimal."""
    trained_ms: int | None
    """Time for which this peer trained for it; None if it did not."""
    final_ms: int
    """Time at which it became final, after the previous block did."""
    candidates: tuple[SeenCandidate, ...]
    """All candidates for its height, in the order of their arrival."""
    training: TrainingResult | None = None
    """The last measurements while this peer waited for the block; a slow peer's may be for an earlier round."""
    failed: tuple[FailedAttempt, ...] = ()
    """Attempts that failed."""
    posts: tuple[SeenPost, ...] = ()
    """Posts that it does not count."""
    nothing: tuple[NothingPosted, ...] = ()
    """Members that had nothing to post for it."""


def members_text(mask: int) -> str:
    """Members as text: ``mask`` has bit n if member n is meant."""
    return f"{mask:x}"


def members_in(text: str) -> Iterator[int]:
    """Numbers of the members that a text stands for, ascending. Raises ValueError."""
    return (number for number, bit in enumerate(reversed(f"{int(text, 16):b}")) if bit == "1")


class TimelineFile:
    """The file to which a node adds lines. Any thread may use it; a refusal of the disk is logged once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._is_refused = False

    def add(self, block: SeenBlock) -> None:
        """Add a line."""
        line = line_of_block(block)
        with self._lock:
            try:
                if is_device(self._path):
                    raise OSError(f"it is {NO_FILE}")
                self._make_room(len(line))
                with self._path.open("ab") as file:
                    file.write(line)
                self._is_refused = False
            except OSError as error:
                if not self._is_refused:
                    log.warning("%s is not written any more: %s", self._path, error.strerror or error)
                self._is_refused = True

    def _make_room(self, size_bytes: int) -> None:
        """Drop the older half of a full file, and an incomplete line that a crash left."""
        if not self._path.exists():
            return
        size = self._path.stat().st_size
        with self._path.open("rb") as file:
            file.seek(max(0, size - 1))
            is_whole = size == 0 or file.read(1) == b"\n"
            if is_whole and size + size_bytes <= SIZE_MAX:
                return
            file.seek(0 if size + size_bytes <= SIZE_MAX else size - SIZE_MAX // 2)
            lines = file.read().splitlines(keepends=True)
        whole = lines[(1 if size + size_bytes > SIZE_MAX else 0) : len(lines) - (not is_whole)]
        write_whole(b"".join(whole), self._path)  # half a file would take the last room from the chain


def newest_lines(blocks: Sequence[SeenBlock], line_of: Callable[[SeenBlock], bytes] | None = None) -> bytes:
    """A whole file's content: a line for each of the newest blocks that fit into it, oldest first.

    Args:
        blocks: of a chain, by height.
        line_of: returns :func:`line_of_block`, which it may remember; None: nothing does.
    """
    lines, size = list[bytes](), 0
    for line in map(line_of or line_of_block, reversed(blocks)):
        size += len(line)
        if size > SIZE_MAX:
            break
        lines.append(line)
    return b"".join(reversed(lines))


def line_of_block(block: SeenBlock) -> bytes:
    """The line of a block."""
    return to_json(asdict(block), separators=(",", ":")).encode() + b"\n"
