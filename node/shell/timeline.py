"""What a node saw of each block before it was final, written beside its chain: the chain itself says none of it.

A line of ``timeline.jsonl`` is a JSON object about one final block: how long this peer trained for it, how good its
model was then, which candidates came and when, and when one of them was final. Blocks that this node did not see come
about have no line.
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
"""Bytes of the file; when it has more, its older half goes."""

CANDIDATES_MAX = 64
"""Candidates of one height that are noted."""


@dataclass(frozen=True, slots=True)
class SeenCandidate:
    """A block that might have become final."""

    hash: str
    """Its identity, in hexadecimal."""
    miner: str
    """Address of the member that mined it."""
    posts: int
    """Posts that it counts."""
    knowledge_root: str
    """The aggregate that it leaves behind: SHA-256 of the knowledge, in hexadecimal."""
    after_ms: int
    """When it came, in milliseconds after the block before was final here."""


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """What this peer measured when it had trained."""

    round: int
    """Round that it trained for."""
    accuracy: float | None
    """Of its model on its own test set, a fraction; None where the phase measures none."""
    epsilon: float | None
    """Epsilon of differential privacy of its posts so far; None where no noise covers all that they let out."""


@dataclass(frozen=True, slots=True)
class SeenBlock:
    """A final block as this node saw it come about. Times are in milliseconds."""

    height: int
    """Blocks before it, the genesis document included."""
    hash: str
    """Its identity, in hexadecimal."""
    trained_ms: int | None
    """How long this peer trained for it; None where it did not."""
    final_ms: int
    """When it was final, after the block before was."""
    candidates: tuple[SeenCandidate, ...]
    """All that came for its height, in their order."""
    training: TrainingResult | None = None
    """The last that this peer measured while it waited for the block; of a slow one it may be for a round before."""


@dataclass(slots=True)
class Watch:
    """Watches the next block come about."""

    since_ms: int
    """When the block before became final here, by the monotonic clock."""
    _trained_ms: int | None = None
    _training: TrainingResult | None = None
    _candidates: dict[Hash, SeenCandidate] = field(default_factory=dict)

    def train(self, took_ms: int) -> None:
        """This peer has trained for the block."""
        self._trained_ms = (self._trained_ms or 0) + took_ms

    def measure(self, training: TrainingResult) -> None:
        """This peer has trained, for the block or, being slow, for one before it."""
        self._training = training

    def look(self, entries: Iterable[Entry]) -> None:
        """Note candidates that are new."""
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
        """The block is final; what was seen of it, or None where that is nothing."""
        if self._trained_ms is None and self._training is None and not self._candidates:
            return None
        found = tuple(self._candidates.values())
        return SeenBlock(height, block_hash.hex(), self._trained_ms, now_ms - self.since_ms, found, self._training)


class TimelineFile:
    """The file to which a node adds lines. Any thread may use it; a disk that refuses is told of once."""

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
        """Drop the older half of a file that is full, and what a crash left of a line."""
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
    """A whole file's content: a line for each block, oldest first, of as many of the newest as it may have."""
    lines, size = list[bytes](), 0
    for line in map(_line, reversed(blocks)):
        size += len(line)
        if size > SIZE_MAX:
            break
        lines.append(line)
    return b"".join(reversed(lines))


def _line(block: SeenBlock) -> bytes:
    return json.dumps(asdict(block), separators=(",", ":")).encode() + b"\n"
