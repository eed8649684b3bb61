"""How long each block took, and for what: waiting for its round, training, exchange, mining, voting.

A chain says when a block became final and how long it was mined. The rest comes from measurements of the run, or from
observations of its nodes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fedchain.chain.explorer.columns import Line
from fedchain.chain.explorer.views import BlockSummary
from fedchain.node.core.deadlines import INTERVALS_FROM
from fedchain.node.shell.timeline import SeenBlock
from fedchain.web.charts import WIDTH
from fedchain.web.measured import Measured
from fedchain.web.observed.rivals import Rival, Seen

LONGEST_DRAWN = 4
"""The longest bar of a list, in medians of their lengths."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a bar."""

    name: str
    """Use of the time: wait, posts, train, exchange, mine or vote."""
    x: float
    """Where it begins, in thousandths of the drawing."""
    width: float
    """How wide it is, in the same unit."""
    time_ms: int
    """How long it took, in milliseconds."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A block in a list, with its time."""

    summary: BlockSummary
    """The block."""
    attempt: int
    """Attempt in which its voters agreed, from 0."""
    took_ms: int | None
    """Time from the block before it to itself, in milliseconds; None if that block is not held."""
    parts: tuple[tuple[str, int], ...]
    """Parts of its time: names and milliseconds."""
    segments: tuple[Segment, ...]
    """The same as a bar; the longest bar of the list fills its width."""
    is_shortened: bool
    """Whether the bar is drawn shorter than to scale, so that a very long one does not dwarf the others."""
    lost: tuple[Rival, ...]
    """Blocks for its height that did not become final."""
    moments: tuple[tuple[float, str], ...] = ()
    """Faults of the scenario meanwhile: the place on the bar, in thousandths of the drawing, and a text."""

    def with_moments(self, found: Iterable[tuple[int, str]]) -> "Timed":
        """The same with moments: milliseconds since the block before, and texts."""
        drawn, whole_ms = sum(part.width for part in self.segments), sum(part.time_ms for part in self.segments)
        scale = drawn / whole_ms if whole_ms else 0.0
        return replace(self, moments=tuple((min(drawn, at_ms * scale), text) for at_ms, text in found))


def timed(
    lines: Sequence[Line],
    summaries: Iterable[BlockSummary],
    began_ms: int | None,
    measured: Mapping[int, Measured],
    candidates: Mapping[int, Sequence[Rival]],
    seen: Seen,
    intervals_ms: Mapping[int, int],
) -> tuple[Timed, ...]:
    """The blocks of ``lines``, oldest first.

    Args:
        lines: final blocks.
        summaries: summaries of the same blocks.
        began_ms: time of the block before the first of them; None if it is not held.
        measured: measurements of the run, by round.
        candidates: candidates by height, whether they became final or not.
        seen: the nodes' observations of the blocks, by height.
        intervals_ms: least time from the end of a round to the next, by height.
    """
    times = [began_ms, *(line.time_ms for line in lines)]
    rounds = [line.round for line in lines]
    parts = list[tuple[tuple[str, int], ...]]()
    for before_ms, line in zip(times, lines, strict=False):
        took_ms = None if before_ms is None else line.time_ms - before_ms
        own = measured.get(line.round) if rounds.count(line.round) == 1 else None
        waits_ms = intervals_ms[line.height] if line.phase == 0 and line.round >= INTERVALS_FROM else 0
        spent_ms = told(own) or watched(line, seen.get(line.height, ()))
        parts.append(split(took_ms, line.mining_ms, spent_ms, waits_ms))
    totals_ms = [sum(time_ms for _, time_ms in item) for item in parts]
    usual_ms = sorted(totals_ms)[len(totals_ms) // 2] if totals_ms else 1
    longest_ms = min(max(totals_ms, default=1), LONGEST_DRAWN * usual_ms)
    return tuple(
        Timed(
            summary=summary,
            attempt=line.attempt,
            took_ms=None if before_ms is None else line.time_ms - before_ms,
            parts=item,
            segments=bar(item, longest_ms),
            is_shortened=total_ms > longest_ms,
            lost=tuple(item for item in candidates.get(line.height, ()) if item.hash != line.hash.hex()),
        )
        for before_ms, line, summary, item, total_ms in zip(times, lines, summaries, parts, totals_ms, strict=False)
    )


def bar(parts: Sequence[tuple[str, int]], longest_ms: int) -> tuple[Segment, ...]:
    """Parts of a duration as a bar. Its full width stands for ``longest_ms``, or for their sum if that is more."""
    segments, x = list[Segment](), 0.0
    whole_ms = max(1, longest_ms, sum(max(0, time_ms) for _, time_ms in parts))
    for name, time_ms in parts:
        width = WIDTH * max(0, time_ms) / whole_ms
        if time_ms > 0:
            segments.append(Segment(name, round(x, 2), round(width, 2), time_ms))
        x += width
    return tuple(segments)


def told(measured: Measured | None) -> tuple[int, int] | None:
    """Training and voting times of a simulated run's round, in milliseconds; None if they were not measured.

    A vote always takes some time: 0 stands for a round whose end none of the measured peers saw.
    """
    if measured is None or "training_s" not in measured.values or not measured.values.get("voting_s"):
        return None
    return round(1000 * measured.values["training_s"]), round(1000 * measured.values["voting_s"])


def watched(line: Line, seen: Sequence[SeenBlock]) -> tuple[int, int] | None:
    """Training and voting times of a block that nodes observed; None if none did.

    They are the longest training, and the longest time on one node from the block's arrival until it was final there.
    If an attempt failed, the vote began with the first of all candidates.
    """
    name = line.hash.hex()
    came = [block for block in seen if block.hash == name and any(item.hash == name for item in block.candidates)]
    if not came:
        return None
    began = [min(item.after_ms for item in block.candidates if line.attempt or item.hash == name) for block in came]
    voted = [block.final_ms - began_ms for block, began_ms in zip(came, began, strict=True)]
    return max(block.trained_ms or 0 for block in came), max(voted)


def split(
    took_ms: int | None, mining_ms: int, spent_ms: tuple[int, int] | None, waits_ms: int = 0
) -> tuple[tuple[str, int], ...]:
    """The parts of a block's time, in milliseconds; ``spent_ms`` went into training and voting, if that is known.

    The first ``waits_ms`` of the remaining time passed before members were to train.
    """
    if took_ms is None:
        return (("mine", mining_ms),)
    train, vote = spent_ms or (0, 0)
    left = max(0, took_ms - train - mining_ms - vote)
    wait = min(waits_ms, left)
    waiting = (("wait", wait),) if wait else ()
    if spent_ms is None:
        # Without measurements, voting is part of the time for posts: a chain does not say when it began.
        return (*waiting, ("posts", left - wait), ("mine", min(took_ms, mining_ms)))
    return (*waiting, ("train", train), ("exchange", left - wait), ("mine", mining_ms), ("vote", vote))
