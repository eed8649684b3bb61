"""How long each block took, and with what: waiting for its round, training, exchange, mining, voting.

A chain says when a block became final and how long it was mined. What a run measured beside it, or its nodes saw, says
the rest.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fedchain.chain.explorer.columns import Line
from fedchain.chain.explorer.views import BlockSummary
from fedchain.node.core.deadlines import INTERVALS_FROM
from fedchain.node.shell.timeline import SeenBlock
from fedchain.web.charts import Segment, bar
from fedchain.web.measured import Measured
from fedchain.web.rivals import Rival, Seen

LONGEST_DRAWN = 4
"""The longest bar of a list, in medians of their lengths."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A block in a list, with its time."""

    summary: BlockSummary
    """The block."""
    attempt: int
    """Attempt in which its voters agreed, from 0."""
    took_ms: int | None
    """From the block before it to itself, in milliseconds; None where that is not held."""
    parts: tuple[tuple[str, int], ...]
    """Names and milliseconds."""
    segments: tuple[Segment, ...]
    """The same as a bar; the longest bar of the list fills its width."""
    is_shortened: bool
    """Whether the bar is shorter than it would have to be beside the others': one that is waited for hides none."""
    lost: tuple[Rival, ...]
    """Blocks for its height that did not become final."""


def timed(
    lines: Sequence[Line],
    summaries: Iterable[BlockSummary],
    began_ms: int | None,
    measured: Mapping[int, Measured],
    candidates: Mapping[int, Sequence[Rival]],
    seen: Seen,
    round_interval_ms: int = 0,
) -> tuple[Timed, ...]:
    """The blocks of ``lines``, oldest first.

    Args:
        lines: final blocks.
        summaries: of the same blocks.
        began_ms: time of the block before the first of them; None where it is not held.
        measured: of the run, by round.
        candidates: by height, blocks that became final or did not.
        seen: by height, what nodes saw of the blocks.
        round_interval_ms: how long after the block before a round begins, as the genesis document has it.
    """
    times = [began_ms, *(line.time_ms for line in lines)]
    rounds = [line.round for line in lines]
    parts = list[tuple[tuple[str, int], ...]]()
    for before_ms, line in zip(times, lines, strict=False):
        took_ms = None if before_ms is None else line.time_ms - before_ms
        own = measured.get(line.round) if rounds.count(line.round) == 1 else None
        waits_ms = round_interval_ms if line.phase == 0 and line.round >= INTERVALS_FROM else 0
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


def told(measured: Measured | None) -> tuple[int, int] | None:
    """Training and voting of a simulated run's round, in milliseconds; None where it was not measured.

    No vote takes no time: 0 stands for a round whose end none of the measured peers saw.
    """
    if measured is None or "training_s" not in measured.values or not measured.values.get("voting_s"):
        return None
    return round(1000 * measured.values["training_s"]), round(1000 * measured.values["voting_s"])


def watched(line: Line, seen: Sequence[SeenBlock]) -> tuple[int, int] | None:
    """The same of a block that nodes saw come about: the longest training, and the time from when the block first came
    to one of them until it was final there; None where nobody saw it.

    Where an attempt failed, the first candidate of all began the vote.
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
    """What a block's time went into, in milliseconds; ``spent_ms`` on training and voting, where that is known.

    Of what is left, the first ``waits_ms`` went by before anybody was to train.
    """
    if took_ms is None:
        return (("mine", mining_ms),)
    train, vote = spent_ms or (0, 0)
    left = max(0, took_ms - train - mining_ms - vote)
    wait = min(waits_ms, left)
    waiting = (("wait", wait),) if wait else ()
    if spent_ms is None:
        # The votes are part of what is not mining: a chain does not say when they began.
        return (*waiting, ("posts", left - wait), ("mine", min(took_ms, mining_ms)))
    return (*waiting, ("train", train), ("exchange", left - wait), ("mine", mining_ms), ("vote", vote))
