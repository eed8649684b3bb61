"""Timeline: a node's observations of each block before it was final, beside its chain, which does not have them.

A line of ``timeline.jsonl`` is a JSON object about one final block: the time for which this peer trained, its model's
accuracy then, the candidates and their arrival times, and the time at which one of them became final. A block whose
making this node did not observe has no line.
"""

import json
import logging
import threading
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from fedchain.crypto.address import address
from fedchain.crypto.hashing import Hash
from fedchain.node.core.ledger import Entry

log = logging.getLogger("fedchain.node")

SIZE_MAX = 8 * 2**20
"""Most bytes of the file; when it would have more, its older half is dropped."""

CANDIDATES_MAX = 64
"""Most candidates of one height that are noted."""


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
class SeenBlock:
    """This node's observations of a final block. Times are in milliseconds."""

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


@dataclass(slots=True)
class Watch:
    """Collects observations of the next block."""

    since_ms: int
    """Time at which the previous block became final here, by the monotonic clock."""
    _trained_ms: int | None = None
    _training: TrainingResult | None = None
    _candidates: dict[Hash, SeenCandidate] = field(default_factory=dict)

    def train(self, took_ms: int) -> None:
        """Note that this peer has trained for the block."""
        self._trained_ms = (self._trained_ms or 0) + took_ms

    def measure(self, training: TrainingResult) -> None:
        """Note measurements after a training for the block, or for an earlier one if this peer is slow."""
        self._training = training

    def look(self, entries: Iterable[Entry]) -> None:
        """Note new candidates."""
        for entry in entries:
            if entry.hash not in self._candidates and len(self._candidates) < CANDIDATES_MAX:
                self._candidates[entry.hash] = SeenCandidate(
                    hash=entry.hash.hex(),
                    miner=address(entry.block.header.miner),
                    posts=entry.posts,
                    knowledge_root=entry.block.header.knowledge_root.hex(),
                    after_ms=max(0, entry.arrived_ms - self.since_ms),
                )

    def end(self, height: int, block_hash: Hash, now_ms: int) -> SeenBlock | None:
        """The block is final; returns the observations of it, or None if there are none."""
        if self._trained_ms is None and self._training is None and not self._candidates:
            return None
        found = tuple(self._candidates.values())
        return SeenBlock(height, block_hash.hex(), self._trained_ms, now_ms - self.since_ms, found, self._training)


class TimelineFile:
    """The file to which a node adds lines. Any thread may use it; a refusal of the disk is logged once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._is_refused = False

    def add(self, block: SeenBlock) -> None:
        """Add a line."""
        line = _line(block)
        with self._lock:
            try:
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
        unfinished = self._path.with_suffix(".unfinished")
        unfinished.write_bytes(b"".join(whole))
        unfinished.replace(self._path)


def newest_lines(blocks: Sequence[SeenBlock]) -> bytes:
    """A whole file's content: a line for each of the newest blocks that fit into it, oldest first."""
    lines, size = list[bytes](), 0
    for line in map(_line, reversed(blocks)):
        size += len(line)
        if size > SIZE_MAX:
            break
        lines.append(line)
    return b"".join(reversed(lines))


def _line(block: SeenBlock) -> bytes:
    return json.dumps(asdict(block), separators=(",", ":")).encode() + b"\n"
