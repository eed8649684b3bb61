"""How long each block took, and with what: training, exchange, mining, voting.

A chain says when a block became final and how long it was mined. What a run measured beside it says the rest.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fedchain.chain.explorer.columns import Line
from fedchain.chain.explorer.views import BlockSummary
from fedchain.node.web.charts import Segment, bar
from fedchain.node.web.measured import Measured


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
    lost: tuple[BlockSummary, ...]
    """Blocks for its height that did not become final."""


def timed(
    lines: Sequence[Line],
    summaries: Iterable[BlockSummary],
    began_ms: int | None,
    measured: Mapping[int, Measured],
    lost: Iterable[BlockSummary],
) -> tuple[Timed, ...]:
    """The blocks of ``lines``, oldest first.

    Args:
        lines: final blocks.
        summaries: of the same blocks.
        began_ms: time of the block before the first of them; None where it is not held.
        measured: of the run, by round.
        lost: blocks that did not become final.
    """
    beaten = dict[int, list[BlockSummary]]()
    for item in lost:
        beaten.setdefault(item.height, []).append(item)
    times = [began_ms, *(line.time_ms for line in lines)]
    rounds = [line.round for line in lines]
    parts = list[tuple[tuple[str, int], ...]]()
    for before_ms, line in zip(times, lines, strict=False):
        took_ms = None if before_ms is None else line.time_ms - before_ms
        own = measured.get(line.round) if rounds.count(line.round) == 1 else None
        parts.append(split(took_ms, line.mining_ms, None if own is None else own.values))
    longest_ms = max((sum(time_ms for _, time_ms in item) for item in parts), default=1)
    return tuple(
        Timed(
            summary=summary,
            attempt=line.attempt,
            took_ms=None if before_ms is None else line.time_ms - before_ms,
            parts=item,
            segments=bar(item, longest_ms),
            lost=tuple(beaten.get(line.height, ())),
        )
        for before_ms, line, summary, item in zip(times, lines, summaries, parts, strict=False)
    )


def split(took_ms: int | None, mining_ms: int, values: Mapping[str, float] | None) -> tuple[tuple[str, int], ...]:
    """What a block's time went into, in milliseconds; ``values`` as they were measured, if they were."""
    if took_ms is None:
        return (("mine", mining_ms),)
    if values is None or not {"training_s", "voting_s"} <= values.keys():
        # The votes are part of what is not mining: a chain does not say when they began.
        return ("posts", max(0, took_ms - mining_ms)), ("mine", min(took_ms, mining_ms))
    train, vote = round(1000 * values["training_s"]), round(1000 * values["voting_s"])
    exchange = max(0, took_ms - train - mining_ms - vote)
    return ("train", train), ("exchange", exchange), ("mine", mining_ms), ("vote", vote)
